mod effects;
mod killed;

use std::net::{Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};
use std::path::Path;

use ledger::bytes::canon::U53;
use ledger::facts::execution::{Outcome, RunResult};
use ledger::facts::measurement::{Observation, Saw};

use super::*;

struct Scene {
    base: tempfile::TempDir,
    places: Places,
}

/// Places below one folder, and loopback alone.
fn places_below(base: &Path, made: &dyn Fn(PathBuf) -> PathBuf) -> Places {
    let place = |name: &str| made(base.join(name));
    Places {
        state: place("state"),
        six: vec![
            ("first", Some(place("one"))),
            ("second", Some(place("two"))),
            ("third", None),
        ],
        workload: (place("workload"), "/workload".into()),
        evidence: vec![place("keys")],
        addresses: vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
    }
}

fn scene() -> Scene {
    let base = tempfile::tempdir().unwrap();
    let places = places_below(base.path(), &|path| {
        std::fs::create_dir(&path).unwrap();
        path
    });
    Scene { base, places }
}

fn row(control: &str, checks: &[(&str, &str, &str)]) -> Probe {
    let checks: Vec<String> = checks
        .iter()
        .map(|(check, oracle, twin)| {
            format!(
                r#"{{"check":"{check}","denied":["EPERM"],"oracle":"{oracle}","twin":"{twin}"}}"#
            )
        })
        .collect();
    let text = format!(
        r#"{{"arguments":["{control}"],"arms":["run"],"checks":[{}],"control":"{control}","id":"{control}","risk":"controlled"}}"#,
        checks.join(",")
    );
    serde_json::from_str(&text).unwrap()
}

fn secret() -> Nonce {
    Nonce::new(&[0x5e; 16]).unwrap()
}

fn bounds() -> Bounds {
    Bounds {
        deadline_millis: Some(500),
        inside: Some((1_000, 1_000)),
        output_bytes: Some(100),
        ..Bounds::default()
    }
}

impl Scene {
    fn planted(&self, probe: &Probe) -> Planted {
        Planted::new(probe, &secret(), &self.places, &bounds()).unwrap()
    }

    /// Every path that carries a mark.
    fn left(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if name.starts_with(plant::mark::PREFIX) {
                    found.push(path);
                } else if path.is_dir() {
                    walk(&path, found);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.base.path(), &mut found);
        found
    }
}

impl Planted {
    fn values(&self, key: &str) -> Vec<String> {
        let text = String::from_utf8(self.parameters()).unwrap();
        assert!(
            text.starts_with("nonce=5e5e") && text.ends_with("\nend\n"),
            "{text}"
        );
        let lines = text.lines().filter_map(|line| line.split_once('='));
        lines
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| value.to_owned())
            .collect()
    }
}

fn result(millis: u64, outcome: Outcome) -> RunResult {
    RunResult {
        duration_us: U53::new(millis * 1_000),
        errno: None,
        exit_code: (outcome == Outcome::Exited).then_some(0),
        outcome,
        reason: None,
        signal: None,
        stderr: None,
        stdout: None,
    }
}

#[track_caller]
fn saw(observations: &[Observation], check: &str) -> Saw {
    let mut found = observations.iter().filter(|one| one.check == check);
    let one = found
        .next()
        .unwrap_or_else(|| panic!("{check}: {observations:?}"));
    assert!(found.next().is_none());
    one.saw
}

fn quiet(planted: Planted, stdout: &str) -> Vec<Observation> {
    planted.observe(
        stdout.as_bytes(),
        &result(10, Outcome::Exited),
        &HostSide::default(),
    )
}

const FILESYSTEM: &[(&str, &str, &str)] = &[
    ("read", "secret", "allowed"),
    ("tree", "secret", "allowed"),
    ("traversal", "secret", "allowed"),
    ("evidence", "secret", "allowed"),
    ("write", "canary", "allowed"),
];

#[test]
fn a_run_that_does_nothing_is_seen_to_do_nothing_and_leaves_nothing() {
    let rows = [
        row(
            "network",
            &[
                ("tcp4", "listener", "instrument"),
                ("udp", "listener", "instrument"),
                ("dns", "listener", "instrument"),
            ],
        ),
        row("filesystem", FILESYSTEM),
        row(
            "process",
            &[
                ("signal", "signal", "allowed"),
                ("visibility", "line", "allowed"),
            ],
        ),
        row("environment", &[("inherited", "secret", "allowed")]),
        row(
            "ipc",
            &[
                ("unix", "listener", "instrument"),
                ("abstract", "listener", "instrument"),
                ("host-sockets", "line", "instrument"),
            ],
        ),
        row("descriptors", &[("inherited", "secret", "allowed")]),
        row("terminal", &[("inject", "host", "allowed")]),
        row("syscalls", &[("calibration", "line", "allowed")]),
    ];
    for probe in rows {
        let scene = scene();
        let planted = scene.planted(&probe);
        assert!(!scene.left().is_empty());
        let observations = quiet(planted, "");
        for one in &observations {
            assert_eq!(one.saw, Saw::Nothing, "{one:?}");
            assert!(one.alive_before && one.alive_after, "{one:?}");
        }
        let outside = probe
            .checks
            .iter()
            .filter(|check| check.oracle != ledger::facts::suite::Oracle::Line);
        assert_eq!(observations.len(), outside.count(), "{}", probe.control);
        assert_eq!(
            scene.left(),
            [""; 0].map(PathBuf::from),
            "{}",
            probe.control
        );
    }
}

#[test]
fn a_secret_at_a_listener_is_seen_for_the_check_that_sent_it() {
    let scene = scene();
    let probe = row(
        "network",
        &[
            ("tcp4", "listener", "instrument"),
            ("udp", "listener", "instrument"),
            ("dns", "listener", "instrument"),
        ],
    );
    let planted = scene.planted(&probe);
    let tcp = planted.values("tcp4");
    let mut stream = TcpStream::connect(&tcp[0]).unwrap();
    io::Write::write_all(
        &mut stream,
        format!("{} network/tcp4\n", secret()).as_bytes(),
    )
    .unwrap();
    // A stranger's words are nothing.
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.send_to(b"5e5e network/udp", &planted.values("udp4")[0])
        .unwrap();
    let observations = quiet(planted, "");
    assert_eq!(saw(&observations, "network/tcp4"), Saw::Nonce);
    assert_eq!(saw(&observations, "network/udp"), Saw::Nothing);
    assert_eq!(saw(&observations, "network/dns"), Saw::Nothing);
}

#[test]
fn without_an_address_that_leaves_the_host_there_is_no_peer() {
    let scene = scene();
    let planted = scene.planted(&row("network", &[("path", "listener", "instrument")]));
    assert!(planted.values("peer").is_empty());
    let observations = quiet(planted, "");
    assert_eq!(saw(&observations, "network/path"), Saw::Unavailable);
    let why = observations[0].expected.clone().unwrap();
    assert!(why.contains("no peer"), "{why}");
}

#[test]
fn a_query_for_the_runs_own_name_is_seen() {
    let scene = scene();
    let planted = scene.planted(&row(
        "network",
        &[
            ("tcp4", "listener", "instrument"),
            ("dns", "listener", "instrument"),
        ],
    ));
    let dns = planted.values("dns")[0].clone();
    let (at, name) = dns.split_once('/').unwrap();
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .send_to(&query, at)
        .unwrap();
    let observations = quiet(planted, "");
    assert_eq!(saw(&observations, "network/dns"), Saw::Nonce);
    assert_eq!(saw(&observations, "network/tcp4"), Saw::Nothing);
}

#[test]
fn what_was_read_counts_for_the_line_in_which_it_stands() {
    let scene = scene();
    let planted = scene.planted(&row("filesystem", FILESYSTEM));
    let text = std::fs::read_to_string(&planted.values("read")[1]).unwrap();
    let line = format!(
        "probe=filesystem dimension=filesystem check=traversal result=escaped errno=none twin=none detail={text} up"
    );
    let observations = quiet(planted, &line);
    assert_eq!(saw(&observations, "filesystem/traversal"), Saw::Nonce);
    for other in ["read", "tree", "evidence", "write"] {
        assert_eq!(
            saw(&observations, &format!("filesystem/{other}")),
            Saw::Nothing
        );
    }
    // Outside any line, and in hexadecimal digits: for whatever it was planted for.
    let planted = scene.planted(&row("filesystem", FILESYSTEM));
    let name = std::fs::read_dir(&planted.values("tree")[0])
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .file_name();
    let hex = ledger::bytes::hash::to_hex(name.as_encoded_bytes());
    let decoy = std::fs::read_to_string(&planted.values("evidence")[0]).unwrap();
    let observations = quiet(planted, &format!("x\nfound {hex} and {decoy}\n"));
    assert_eq!(saw(&observations, "filesystem/tree"), Saw::Nonce);
    assert_eq!(saw(&observations, "filesystem/evidence"), Saw::Nonce);
    assert_eq!(saw(&observations, "filesystem/read"), Saw::Nothing);
}

#[test]
fn a_twin_that_read_nothing_of_what_is_allowed_makes_the_oracle_unavailable() {
    let scene = scene();
    let line =
        "probe=filesystem dimension=filesystem check=read result=contained errno=ENOENT twin=ok";
    let observations = quiet(scene.planted(&row("filesystem", FILESYSTEM)), line);
    assert_eq!(saw(&observations, "filesystem/read"), Saw::Unavailable);
    let planted = scene.planted(&row("filesystem", FILESYSTEM));
    let inside = planted.values("allowed")[0].clone();
    let host = scene
        .places
        .workload
        .0
        .join(inside.strip_prefix("/workload/").unwrap());
    let allowed = std::fs::read_to_string(host).unwrap();
    let observations = quiet(planted, &format!("{line} detail=allowed={allowed}"));
    assert_eq!(saw(&observations, "filesystem/read"), Saw::Nothing);
}

#[test]
fn a_changed_canary_is_seen_and_a_dead_place_is_not_alive() {
    let scene = scene();
    let planted = scene.planted(&row("filesystem", FILESYSTEM));
    std::fs::write(&planted.values("write")[1], "").unwrap();
    let gone = planted.values("read")[0].clone();
    std::fs::remove_file(gone).unwrap();
    let observations = quiet(planted, "");
    assert_eq!(saw(&observations, "filesystem/write"), Saw::Changed);
    let read = observations
        .iter()
        .find(|one| one.check == "filesystem/read")
        .unwrap();
    assert!(read.alive_before && !read.alive_after, "{read:?}");
    assert!(scene.left().is_empty());
}

#[test]
fn what_cannot_be_planted_is_said_in_the_observation() {
    let mut scene = scene();
    scene.places.six = vec![("only", Some(scene.base.path().join("missing")))];
    scene.places.evidence.clear();
    let planted = scene.planted(&row("filesystem", FILESYSTEM));
    assert_eq!(planted.skipped(), ["only: ENOENT"]);
    let observations = quiet(planted, "");
    let read = observations
        .iter()
        .find(|one| one.check == "filesystem/read")
        .unwrap();
    assert_eq!(read.saw, Saw::Unavailable);
    assert!(!read.alive_before && !read.alive_after);
    assert!(
        read.expected.as_ref().unwrap().contains("only: ENOENT"),
        "{read:?}"
    );
}

#[test]
fn dropped_without_an_observation_everything_is_removed() {
    let scene = scene();
    for control in ["filesystem", "ipc", "descriptors", "process"] {
        let planted = scene.planted(&row(control, &[("x", "line", "allowed")]));
        assert!(scene.left().len() >= 3, "{control}: {:?}", scene.left());
        drop(planted);
        assert!(scene.left().is_empty(), "{control}: {:?}", scene.left());
    }
}

#[test]
fn what_is_planted_for_a_control_is_what_its_oracles_look_at() {
    use super::suite::problems::has_oracle;
    use ledger::facts::control::Control;
    use ledger::facts::suite::Oracle;
    let scene = scene();
    for control in Control::ALL {
        for oracle in Oracle::ALL.iter().filter(|it| **it != Oracle::Line) {
            let row = row(control.as_str(), &[("mine", oracle.as_str(), "allowed")]);
            let seen =
                scene
                    .planted(&row)
                    .observe(b"", &result(1, Outcome::Exited), &HostSide::default());
            let [seen] = seen.as_slice() else {
                panic!("{control} {oracle}: {seen:?}");
            };
            let what = seen.expected.clone().unwrap_or_default();
            let blind = what.starts_with("nothing to look at it with");
            assert_eq!(
                has_oracle(*control, *oracle),
                !blind,
                "{control} {oracle}: {what}"
            );
        }
    }
}
