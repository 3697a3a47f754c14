//! Templates of sandboxes that people use (examples/runtimes), where those are installed: what each declares is measured, and one
//! that lost a flag has exactly the false guarantees, or the open gaps, which that flag was good for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{Table, UNAVAILABLE, measure, policy, suite, told};
use crate::world::{Ran, World, is_root, program, skip};

/// A sandbox, and what its matrix shows.
struct Sandbox {
    name: &'static str,
    /// Programs without which nothing runs.
    programs: &'static [&'static str],
    /// Whether it is for root alone.
    root: bool,
    /// The daemon that it needs.
    daemon: Option<Daemon>,
    /// Declared cells that come to something else than `contained`.
    others: &'static [(&'static str, super::Came)],
    lost: &'static [Lost],
}

/// What is asked of a client before anything is measured, so that a daemon that does not answer is no failure.
struct Daemon {
    /// Variables of the tests' own caller: where it is, where its client is, and where the lane wants everything temporary to be.
    named_by: &'static [&'static str],
    asked: &'static [&'static [&'static str]],
    /// A check that gets through in daemons before this major version alone.
    mended: (&'static str, u32),
}

/// A flag, and what is false without it.
struct Lost {
    /// Words of the command, or a place in a file.
    flag: &'static str,
    /// What stands there instead.
    by: &'static [&'static str],
    /// The cells that get through: false guarantees, but where the policy's own field went in by it.
    cells: &'static [&'static str],
}

const fn lost(flag: &'static str, cells: &'static [&'static str]) -> Lost {
    let by = &[];
    Lost { flag, by, cells }
}

/// Nobody counted, and nobody was reached: of a runtime that is not looked into it is not known what lives on.
const SURVIVAL: (&str, super::Came) = ("process/survival", UNAVAILABLE);
/// As whom it starts the workload a template does not say.
const HOST: (&str, super::Came) = ("user/host", UNAVAILABLE);
/// The network; and abstract sockets, which belong to it.
const NETWORK_AND_SOCKETS: &[&str] = &[
    "ipc/abstract",
    "network/tcp4",
    "network/tcp6",
    "network/udp",
    "network/udp6",
    "network/path",
    "network/dns",
];
const NETWORK: &[&str] = &[
    "network/tcp4",
    "network/tcp6",
    "network/udp",
    "network/udp6",
    "network/path",
    "network/dns",
];

fn example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/runtimes");
    folder.join(format!("{name}.json"))
}

/// Where every caller can read it.
fn written(world: &World, document: &Value) -> PathBuf {
    world.file("template.json", &document.to_string())
}

/// An attack that does not succeed bare on this host either.
fn shows_nothing_here(reason: &str) -> bool {
    ["host-forbids", "baseline-contained"].contains(&reason)
}

impl Sandbox {
    fn document(&self) -> Value {
        serde_json::from_slice(&std::fs::read(example(self.name)).unwrap()).unwrap()
    }

    /// A world from which its daemon, too, is in reach.
    fn world(&self) -> World {
        let names = self.daemon.iter().flat_map(|daemon| daemon.named_by);
        names.fold(World::new(), |world, name| match std::env::var_os(name) {
            Some(value) => world.with(name, value),
            None => world,
        })
    }

    /// A program, where a daemon's client may be, too.
    fn find(&self, name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").filter(|_| self.daemon.is_some());
        let folders = path.iter().flat_map(std::env::split_paths);
        let mut found = folders.map(|folder| folder.join(name));
        found.find(|path| path.is_file()).or_else(|| program(name))
    }

    /// What its client says to these words, or why it says nothing.
    fn ask(&self, words: &[&str]) -> Result<String, String> {
        let client = self.find(self.programs[0]).unwrap();
        // A daemon may be there and not answer.
        let mut command = Command::new("timeout");
        let output = command.arg("20").arg(client).args(words).output().unwrap();
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).unwrap());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().last().unwrap_or_default();
        Err(format!("{} {}: {last}", self.programs[0], words[0]))
    }

    /// A measurement. On a busy machine a daemon may not say its version in the time that it has for that: then it is asked again.
    fn answered(&self, measure: impl Fn() -> Ran) -> Table {
        let mut ran = measure();
        for _ in 0..3 {
            let is_late = ran.code == Some(125) && ran.err.contains("gives no answer within");
            if self.daemon.is_none() || !is_late {
                break;
            }
            ran = measure();
        }
        Table::of(&ran.ended(0))
    }

    /// Declared cells that come to something else than `contained`, with the daemon that there is.
    fn others(&self) -> Vec<(&'static str, super::Came)> {
        let mut others = self.others.to_vec();
        if let Some(daemon) = &self.daemon {
            let version = self.ask(daemon.asked[0]).unwrap();
            let major = version.split('.').next().unwrap();
            let major: u32 = major.parse().unwrap();
            let (check, mended) = daemon.mended;
            others.retain(|(other, _)| *other != check || major < mended);
        }
        others
    }

    /// Why it cannot be tried here, found by trying.
    fn lacks(&self, world: &World, policy: &Path) -> Option<String> {
        if self.root && !is_root() {
            return Some("not root".to_owned());
        }
        if let Some(missing) = self.programs.iter().find(|name| self.find(name).is_none()) {
            return Some(format!("no {missing}"));
        }
        if self.daemon.is_some() && std::env::var_os("DOCKER_HOST").is_none() {
            return Some("no DOCKER_HOST: tests/docker/run starts a daemon".to_owned());
        }
        for words in self.daemon.iter().flat_map(|daemon| daemon.asked) {
            if let Err(why) = self.ask(words) {
                return Some(why);
            }
        }
        let rows = suite(world, |row| row["control"] == "environment");
        let more = format!("--no-baseline --suite {}", rows.display());
        let template = written(world, &self.document());
        let table = self.answered(|| measure(world, &template, policy, &more));
        let cell = table.cell("environment/inherited");
        (cell.reason == "no-output").then(|| cell.detail.clone())
    }

    /// Everything, and nothing that is declared stays without a result.
    fn whole(&self, world: &World, policy: &Path) {
        let template = written(world, &self.document());
        // Where no deadline is promised, what starts too slowly for the one of the suite is no matter of a busy machine.
        let document = self.document();
        let declared = document["declares"].as_array().unwrap();
        let has_deadline = declared.iter().any(|one| one["control"] == "timeout");
        let rows = suite(world, |row| has_deadline || row["control"] != "timeout");
        let more = format!("--suite {}", rows.display());
        let table = Table::calm(|| self.answered(|| measure(world, &template, policy, &more)));
        let mut wrong = Vec::new();
        let others = self.others();
        for (id, cell) in table.cells.iter().filter(|(_, cell)| cell.declared) {
            let other = others.iter().find(|(check, _)| check == id);
            let expected = other.map_or(super::Contained, |(_, came)| *came);
            let found = (cell.verdict.as_str(), cell.reason.as_str());
            if found != told(expected, true) && !shows_nothing_here(&cell.reason) {
                wrong.push(format!("{id}: {found:?}: {}", cell.detail));
            }
        }
        assert!(wrong.is_empty(), "{}:\n{}", self.name, wrong.join("\n"));
        for control in declared.iter().map(|one| one["control"].as_str().unwrap()) {
            let cells = table.cells.iter();
            let mut cells = cells.filter(|(id, _)| id.split('/').next() == Some(control));
            let has_result = cells.any(|(_, cell)| {
                ["contained", "false-guarantee"].contains(&cell.verdict.as_str())
                    || shows_nothing_here(&cell.reason)
            });
            assert!(has_result, "{}: {control} is not measured", self.name);
        }
    }

    /// The cells that are false guarantees without a flag, beside those that are it anyway.
    fn without(&self, world: &World, policy: &Path, lost: &Lost) {
        let mut document = self.document();
        let words: Vec<&str> = lost.flag.split(' ').collect();
        let flags = document["flags"].as_array().unwrap();
        let flags = flags.iter().filter(|one| {
            let own = one["words"].as_array().into_iter().flatten();
            let mut own = own.map(|word| word.as_str().unwrap()).peekable();
            one["at"] == lost.flag || own.peek().is_some() && own.all(|word| words.contains(&word))
        });
        let controls: BTreeSet<String> = flags
            .flat_map(|flag| -> Vec<String> {
                serde_json::from_value(flag["controls"].clone()).unwrap()
            })
            .collect();
        assert!(
            !controls.is_empty(),
            "{} has no flag {}",
            self.name,
            lost.flag
        );
        lose(&mut document, lost);
        let quick = |control: &str| {
            let slow = [
                "memory",
                "processes",
                "cpu",
                "disk",
                "timeout",
                "output",
                "terminal",
                "process",
            ];
            !slow.contains(&control)
        };
        let rows = suite(world, |row| {
            let control = row["control"].as_str().unwrap().to_owned();
            row["arms"] = json!(["run"]);
            quick(&control) || controls.contains(&control)
        });
        let more = format!("--no-baseline --suite {}", rows.display());
        let template = written(world, &document);
        let table = Table::calm(|| self.answered(|| measure(world, &template, policy, &more)));
        let found = table.cells.iter();
        let found = found.filter(|(_, cell)| cell.verdict == "false-guarantee");
        let found: BTreeSet<&str> = found.map(|(id, _)| id.as_str()).collect();
        let others = self.others();
        let anyway = others.iter();
        let anyway = anyway.filter(|(_, came)| *came == super::Escaped);
        let forbidden = |id: &&str| {
            let cell = table.cells.get(*id);
            cell.is_none_or(|cell| !shows_nothing_here(&cell.reason))
        };
        // A flag by which a field of the policy went in takes the declaration with it: nothing is promised, and it gets through.
        let declared = |id: &&str| table.cells.get(*id).is_some_and(|cell| cell.declared);
        let expected: BTreeSet<&str> = anyway
            .map(|(check, _)| *check)
            .chain(lost.cells.iter().copied())
            .filter(forbidden)
            .filter(declared)
            .collect();
        let open = lost.cells.iter().filter(|id| !declared(id));
        for id in open.filter(|id| forbidden(id)) {
            let cell = table.cell(id);
            let says = (
                cell.verdict.as_str(),
                lost.flag.contains('{') || lost.flag.contains('#'),
            );
            assert_eq!(
                says,
                ("escaped", true),
                "{} without {}: {id}",
                self.name,
                lost.flag
            );
        }
        let details: Vec<&String> = table.cells.values().map(|cell| &cell.detail).collect();
        assert_eq!(
            found, expected,
            "{} without {}: {details:#?}",
            self.name, lost.flag
        );
    }

    fn try_out(&self, name: &str) {
        let world = self.world();
        let policy = policy(&world, 30_000, |policy| {
            // What starts inside takes some of it.
            policy["resources"]["memoryMb"] = 64.into();
        });
        if let Some(reason) = self.lacks(&world, &policy) {
            return skip(name, reason);
        }
        self.whole(&world, &policy);
        for lost in self.lost {
            self.without(&world, &policy, lost);
        }
    }
}

/// Takes a flag out of a document, and what says why it was there.
fn lose(document: &mut Value, lost: &Lost) {
    if let Some((file, pointer)) = lost.flag.split_once('#') {
        let (above, last) = pointer.rsplit_once('/').unwrap();
        match document["files"][file].pointer_mut(above).unwrap() {
            Value::Array(all) => drop(all.remove(last.parse().unwrap())),
            Value::Object(all) => drop(all.remove(last).unwrap()),
            other => panic!("{other}"),
        }
    } else {
        let words: Vec<Value> = lost.flag.split(' ').map(Value::from).collect();
        let command = document["command"].as_array_mut().unwrap();
        let at = command.windows(words.len()).position(|one| one == words);
        let at = at.unwrap();
        let by = lost.by.iter().map(|word| Value::from(*word));
        command.splice(at..at + words.len(), by);
    }
    for field in ["flags", "ablations"] {
        document.as_object_mut().unwrap().remove(field);
    }
}

const FIREJAIL: Sandbox = Sandbox {
    name: "firejail",
    programs: &["firejail"],
    root: false,
    daemon: None,
    // Its default list has no io_uring.
    others: &[SURVIVAL, ("syscalls/new", super::Escaped)],
    lost: &[
        lost("--net=none", NETWORK),
        lost("--rlimit-nofile={open-files}", &["files/open"]),
        lost(
            "--private-dev",
            // /dev/shm is the host's, too.
            &[
                "devices/nodes",
                "filesystem/read",
                "filesystem/tree",
                "filesystem/write",
                "filesystem/traversal",
            ],
        ),
        lost(
            "--caps.drop=all",
            &["privilege/capabilities", "devices/nodes"],
        ),
        lost(
            "--seccomp",
            &[
                "syscalls/calibration",
                "syscalls/after-exec",
                "privilege/no-new-privs",
                "privilege/userns",
            ],
        ),
    ],
};

const RUNC: Sandbox = Sandbox {
    name: "runc",
    programs: &["runc"],
    root: true,
    daemon: None,
    others: &[SURVIVAL, HOST],
    lost: &[
        lost("config.json#/linux/namespaces/2", NETWORK_AND_SOCKETS),
        lost("config.json#/linux/namespaces/1", &["process/visibility"]),
        lost("config.json#/process/user", &["user/inside"]),
        lost("config.json#/process/rlimits", &["files/open"]),
        lost(
            "config.json#/process/noNewPrivileges",
            &["privilege/no-new-privs"],
        ),
        lost(
            "config.json#/linux/resources/memory",
            &["memory/touch", "memory/children", "memory/tmpfs"],
        ),
        lost(
            "config.json#/linux/resources/pids",
            &["processes/fork", "processes/threads"],
        ),
        lost(
            "config.json#/linux/seccomp",
            &[
                "privilege/userns",
                "syscalls/calibration",
                "syscalls/after-exec",
                "syscalls/alternate",
                "syscalls/new",
            ],
        ),
    ],
};

const PODMAN: Sandbox = Sandbox {
    name: "podman",
    programs: &["podman", "runc"],
    root: true,
    daemon: None,
    others: &[SURVIVAL, HOST, ("privilege/userns", super::Escaped)],
    lost: &[
        Lost {
            flag: "--network=none",
            // Its default would make a bridge on this host.
            by: &["--network=host"],
            cells: NETWORK_AND_SOCKETS,
        },
        lost("--user={uid}:{gid}", &["user/inside"]),
        lost(
            "--security-opt=no-new-privileges",
            &["privilege/no-new-privs"],
        ),
        lost(
            "--pids-limit={processes}",
            &["processes/fork", "processes/threads"],
        ),
        Lost {
            flag: "--ulimit=nofile={open-files}:{open-files}",
            // Its default is more than every caller may have.
            by: &["--ulimit=nofile=4096:4096"],
            cells: &["files/open"],
        },
    ],
};

const DOCKER: Sandbox = Sandbox {
    name: "docker",
    programs: &["docker"],
    root: true,
    daemon: Some(Daemon {
        named_by: &["DOCKER_HOST", "PATH", "TMPDIR"],
        asked: &[
            &["version", "--format={{.Server.Version}}"],
            &["image", "inspect", "containment-empty"],
        ],
        mended: ("syscalls/new", 25),
    }),
    others: &[
        SURVIVAL,
        HOST,
        // Its default list allows no unshare(2) at all, not even what everybody may leave.
        ("privilege/userns", super::TWIN_FAILED),
        // Older ones have no io_uring.
        ("syscalls/new", super::Escaped),
    ],
    lost: &[
        Lost {
            flag: "--network=none",
            // Its default would need a bridge on this host.
            by: &["--network=host"],
            cells: NETWORK_AND_SOCKETS,
        },
        lost("--user={uid}:{gid}", &["user/inside"]),
        lost(
            "--security-opt=no-new-privileges",
            &["privilege/no-new-privs"],
        ),
        lost(
            "--pids-limit={processes}",
            &["processes/fork", "processes/threads"],
        ),
        lost("--ulimit=nofile={open-files}:{open-files}", &["files/open"]),
    ],
};

#[test]
fn firejail_holds_what_it_declares_and_each_flag_holds_its_own() {
    FIREJAIL.try_out("firejail_holds_what_it_declares_and_each_flag_holds_its_own");
}

#[test]
fn runc_holds_what_it_declares_and_each_flag_holds_its_own() {
    RUNC.try_out("runc_holds_what_it_declares_and_each_flag_holds_its_own");
}

#[test]
fn podman_holds_what_it_declares_but_namespaces_and_each_flag_holds_its_own() {
    PODMAN.try_out("podman_holds_what_it_declares_but_namespaces_and_each_flag_holds_its_own");
}

/// `tests/docker/run` starts a daemon for it.
#[test]
fn docker_holds_what_it_declares_but_one_call_and_each_flag_holds_its_own() {
    DOCKER.try_out("docker_holds_what_it_declares_but_one_call_and_each_flag_holds_its_own");
}

/// Each file says on what it was run, or that it was not, where its claims come from, and why each flag is there.
#[test]
fn every_example_is_whole() {
    let folder = example("runc");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        runner::runtime::template::Template::load(&path).unwrap();
        assert_eq!(document["id"], name.as_str());
        for field in ["description", "sources", "needs", "ran"] {
            assert!(document.get(field).is_some(), "{name}: no {field}");
        }
        let sources = document["sources"].as_array().unwrap();
        let is_public = |one: &Value| one.as_str().unwrap().starts_with("https://");
        assert!(
            !sources.is_empty() && sources.iter().all(is_public),
            "{name}"
        );
        let has_options = document["command"].as_array().unwrap().iter();
        let has_options = has_options.take_while(|word| *word != "--");
        let has_options = has_options.filter(|word| word.as_str().unwrap().starts_with('-'));
        assert!(
            has_options.count() == 0 || document.get("flags").is_some(),
            "{name}"
        );
        names.insert(name);
    }
    let expected = [
        "codex",
        "crun",
        "docker",
        "firejail",
        "nono",
        "nsjail",
        "podman",
        "runc",
        "runsc",
        "srt",
        "systemd-nspawn",
        "systemd-run",
    ];
    assert_eq!(names, expected.map(str::to_owned).into());
    let world = World::new();
    let folder = folder.parent().unwrap().display().to_string();
    world.run(&format!("validate {folder}")).ended(0);
    let listed = world.run(&format!("--json runtimes {folder}")).ended(0);
    let listed = listed.json().as_array().unwrap().clone();
    let listed: Vec<_> = listed
        .iter()
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    assert!(
        names.iter().all(|name| listed.contains(&name.as_str())),
        "{listed:?}"
    );
    let empty = world.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let none = world.run(&format!("runtimes {}", empty.display())).ended(2);
    assert!(none.says("no runtime template (*.json) in"), "{}", none.err);
}
