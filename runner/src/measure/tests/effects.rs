//! Processes, descriptors, terminals, users, deadlines and caps.

use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;

use ledger::bytes::hash::Hash;
use ledger::facts::execution::Output;
use ledger::facts::list::Sealable;
use ledger::facts::suite::ProbeProgram;

use super::*;

#[test]
fn a_signal_and_a_survivor_are_seen() {
    let checks = [
        ("signal", "signal", "allowed"),
        ("survival", "host", "allowed"),
    ];
    let scene = scene();
    let planted = scene.planted(&row("process", &checks));
    let pid: i32 = planted.values("pid")[0].parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGUSR1).unwrap();
    let socket = planted.values("unix")[0].clone();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let survivor = std::thread::spawn(move || {
        // Until the listener is gone with everything else.
        while stopped.try_recv().is_err() {
            let Ok(mut stream) = UnixStream::connect(&socket) else {
                return;
            };
            let words = format!("{} process/survival\n", secret());
            let _ = io::Write::write_all(&mut stream, words.as_bytes());
            std::thread::yield_now();
        }
    });
    let observations = quiet(planted, "");
    drop(stop);
    survivor.join().unwrap();
    assert_eq!(saw(&observations, "process/signal"), Saw::Signal);
    assert_eq!(saw(&observations, "process/survival"), Saw::Changed);
    // One that was heard and is dead.
    let planted = scene.planted(&row("process", &checks));
    let mut stream = UnixStream::connect(&planted.values("unix")[0]).unwrap();
    io::Write::write_all(
        &mut stream,
        format!("{} process/survival\n", secret()).as_bytes(),
    )
    .unwrap();
    drop(stream);
    let observations = quiet(planted, "");
    assert_eq!(saw(&observations, "process/survival"), Saw::Nothing);
    assert_eq!(saw(&observations, "process/signal"), Saw::Nothing);
    // Nobody was heard, nobody counted; or somebody counted.
    let observations = quiet(scene.planted(&row("process", &checks)), "");
    assert_eq!(saw(&observations, "process/survival"), Saw::Unavailable);
    for (survivors, expected) in [(0, Saw::Nothing), (1, Saw::Changed)] {
        let facts = HostSide {
            survivors: Some(survivors),
            ..HostSide::default()
        };
        let planted = scene.planted(&row("process", &checks));
        let observations = planted.observe(b"", &result(1, Outcome::Exited), &facts);
        assert_eq!(saw(&observations, "process/survival"), expected);
    }
}

#[test]
fn a_variable_a_descriptor_and_a_socket_are_seen() {
    let scene = scene();
    let checks = [("inherited", "secret", "allowed")];
    let planted = scene.planted(&row("environment", &checks));
    let environment = planted.environment();
    let value = |name: &str| {
        let found = environment.iter().find(|(own, _)| own == name).unwrap();
        found.1.to_str().unwrap().to_owned()
    };
    let present = format!("{PRESENT_VARIABLE}={}", value(PRESENT_VARIABLE));
    assert_eq!(planted.values("present"), [present]);
    let parameters = String::from_utf8(planted.parameters()).unwrap();
    assert!(!parameters.contains(&value(ABSENT_VARIABLE)));
    let printed = value(PRESENT_VARIABLE);
    assert_eq!(
        saw(&quiet(planted, &printed), "environment/inherited"),
        Saw::Nothing
    );
    let planted = scene.planted(&row("environment", &checks));
    let absent = planted.environment()[0].1.to_str().unwrap().to_owned();
    assert_eq!(
        saw(&quiet(planted, &absent), "environment/inherited"),
        Saw::Nonce
    );

    let planted = scene.planted(&row("descriptors", &checks));
    let numbers: Vec<String> = planted
        .descriptors()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(planted.values("fd"), numbers);
    let file = std::fs::read_to_string(format!("/proc/self/fd/{}", numbers[0])).unwrap();
    assert_eq!(
        saw(&quiet(planted, &file), "descriptors/inherited"),
        Saw::Nonce
    );
    let planted = scene.planted(&row("descriptors", &checks));
    let socket = crate::sys::descriptor::take_planted(planted.descriptors()[1]).unwrap();
    nix::unistd::write(
        &socket,
        format!("{} descriptors/inherited\n", secret()).as_bytes(),
    )
    .unwrap();
    // The number belongs to what is planted.
    std::mem::forget(socket);
    assert_eq!(
        saw(&quiet(planted, ""), "descriptors/inherited"),
        Saw::Nonce
    );
}

#[test]
fn input_of_the_terminal_that_nobody_typed_is_seen() {
    let scene = scene();
    let probe = row("terminal", &[("inject", "host", "allowed")]);
    let planted = scene.planted(&probe);
    let path = &planted.terminal().unwrap().path;
    let tty = std::fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(path)
        .unwrap();
    // What a program prints there is no input.
    nix::unistd::write(&tty, b"printed").unwrap();
    assert_eq!(saw(&quiet(planted, ""), "terminal/inject"), Saw::Nothing);
    let planted = scene.planted(&probe);
    nix::unistd::write(&planted.terminal().unwrap().master, b"5").unwrap();
    assert_eq!(saw(&quiet(planted, ""), "terminal/inject"), Saw::Nonce);
}

#[test]
fn a_socket_is_seen_with_who_connected() {
    let scene = scene();
    let probe = row(
        "ipc",
        &[
            ("unix", "listener", "instrument"),
            ("host-sockets", "line", "instrument"),
        ],
    );
    let planted = scene.planted(&probe);
    let mut stream = UnixStream::connect(&planted.values("decoy")[0]).unwrap();
    io::Write::write_all(
        &mut stream,
        format!("{} ipc/host-sockets\n", secret()).as_bytes(),
    )
    .unwrap();
    let observations = quiet(planted, "");
    assert_eq!(saw(&observations, "ipc/host-sockets"), Saw::Nonce);
    assert_eq!(saw(&observations, "ipc/unix"), Saw::Nothing);

    let probe = row(
        "user",
        &[("inside", "line", "allowed"), ("host", "host", "allowed")],
    );
    let own = nix::unistd::geteuid().as_raw();
    let facts = |observed_uid, promised_uid| HostSide {
        observed_uid,
        promised_uid,
        launcher_uid: own,
        ..HostSide::default()
    };
    for (observed, promised, expected) in [
        (None, None, Saw::Unavailable),
        (Some(0), None, Saw::Changed),
        (Some(own + 1), Some(own + 1), Saw::Nothing),
        (Some(own), Some(own + 1), Saw::Changed),
    ] {
        let planted = scene.planted(&probe);
        assert_eq!(planted.values("inside"), ["1000:1000"]);
        let observations =
            planted.observe(b"", &result(1, Outcome::Exited), &facts(observed, promised));
        assert_eq!(
            saw(&observations, "user/host"),
            expected,
            "{observed:?} {promised:?}"
        );
    }
    // Who connects is believed before what was measured elsewhere.
    let planted = scene.planted(&probe);
    let mut stream = UnixStream::connect(&planted.values("unix")[0]).unwrap();
    io::Write::write_all(&mut stream, format!("{} user/host\n", secret()).as_bytes()).unwrap();
    let observations = planted.observe(
        b"",
        &result(1, Outcome::Exited),
        &facts(Some(own + 1), Some(own + 1)),
    );
    assert_eq!(saw(&observations, "user/host"), Saw::Changed);
}

#[test]
fn a_deadline_and_a_cap_are_judged_by_what_was_measured() {
    let scene = scene();
    let probe = row("timeout", &[("deadline", "host", "allowed")]);
    let own = format!("{} timeout/outlived\n", secret());
    let stranger = format!("{} timeout/outlived\n", Nonce::new(&[1; 16]).unwrap());
    for (millis, outcome, said, expected) in [
        (510, Outcome::Timeout, "", Saw::Nothing),
        // By the deadline, on a machine that was busy.
        (5_000, Outcome::Timeout, "", Saw::Nothing),
        // By the runtime, or by whoever.
        (600, Outcome::Signaled, "", Saw::Nothing),
        (600, Outcome::Exited, &stranger, Saw::Nothing),
        // By itself, however late it was.
        (510, Outcome::Exited, &own, Saw::Changed),
        (9_000, Outcome::Exited, &own, Saw::Changed),
        (900, Outcome::Timeout, &own, Saw::Changed),
        // Before the deadline, whatever it says; late, and nothing said; not to its end.
        (20, Outcome::Exited, "", Saw::Unavailable),
        (20, Outcome::Exited, &own, Saw::Unavailable),
        (9_000, Outcome::Exited, "", Saw::Unavailable),
        (9_000, Outcome::Exited, &stranger, Saw::Unavailable),
        (900, Outcome::Interrupted, "", Saw::Unavailable),
    ] {
        let planted = scene.planted(&probe);
        assert_eq!(planted.values("millis"), ["800"]);
        let facts = HostSide::default();
        let observations = planted.observe(said.as_bytes(), &result(millis, outcome), &facts);
        let case = format!("{millis} {outcome:?} {said}");
        assert_eq!(saw(&observations, "timeout/deadline"), expected, "{case}");
    }
    // Where the runner kept a deadline, how late it came to it itself tells whose lateness that was.
    for (late, expected) in [(100, Saw::Changed), (200, Saw::Unavailable)] {
        let planted = scene.planted(&probe);
        let facts = HostSide {
            late_millis: Some(late),
            ..HostSide::default()
        };
        let observations = planted.observe(own.as_bytes(), &result(900, Outcome::Exited), &facts);
        assert_eq!(saw(&observations, "timeout/deadline"), expected, "{late}");
    }
    // One that says no such word has a longer time, and is judged by it.
    let mut foreign = probe;
    foreign.program = Some(ProbeProgram {
        path: "probe.sh".to_owned(),
        sha256: None,
    });
    for (millis, outcome, expected) in [
        (20, Outcome::Exited, Saw::Unavailable),
        (1_400, Outcome::Exited, Saw::Nothing),
        (2_500, Outcome::Exited, Saw::Changed),
        (2_500, Outcome::Timeout, Saw::Nothing),
    ] {
        let planted = scene.planted(&foreign);
        assert_eq!(planted.values("millis"), ["2500"]);
        let observations = planted.observe(b"", &result(millis, outcome), &HostSide::default());
        assert_eq!(saw(&observations, "timeout/deadline"), expected, "{millis}");
    }
    let probe = row("output", &[("cap", "host", "allowed")]);
    for (bytes, kept, cut, expected) in [
        (90, 90, false, Saw::Unavailable),
        (200, 100, true, Saw::Nothing),
        (200, 200, false, Saw::Changed),
        (200, 200, true, Saw::Changed),
    ] {
        let mut result = result(1, Outcome::Exited);
        result.stderr = Some(Sealable::Clear(Output {
            base64: None,
            blob: None,
            bytes: U53::new(bytes).unwrap(),
            kept: U53::new(kept).unwrap(),
            sha256: Hash::of(b""),
            text: None,
        }));
        let facts = HostSide {
            stderr_cut: cut,
            ..HostSide::default()
        };
        let planted = scene.planted(&probe);
        assert_eq!(planted.values("bytes"), ["200"]);
        let observations = planted.observe(b"", &result, &facts);
        assert_eq!(
            saw(&observations, "output/cap"),
            expected,
            "{bytes} {kept} {cut}"
        );
    }
}
