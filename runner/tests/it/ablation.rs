//! One control left out: its mechanism is gone, by effect, and every other declared control still is.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use ledger::facts::control::Control;

use crate::evidence::Run;
use crate::faults::with_planted;
use crate::probe::{answers, command_inside};
use crate::world::{Ran, SUPPORTED, World, is_root, ready, skip};

/// Things of the host that a workload without the control gets at.
struct Scene {
    folder: tempfile::TempDir,
    _listener: UnixListener,
}

impl Scene {
    /// A folder in /tmp that everybody may write to, with a file and a socket in it.
    fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ablation-")
            .tempdir_in("/tmp")
            .unwrap();
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o777);
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        open(&socket, 0o777);
        std::fs::write(folder.path().join("canary"), "untouched").unwrap();
        open(&folder.path().join("canary"), 0o666);
        Self {
            folder,
            _listener: listener,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn canary(&self) -> String {
        std::fs::read_to_string(self.path("canary")).unwrap()
    }
}

fn namespace(name: &str) -> String {
    std::fs::read_link(format!("/proc/self/ns/{name}"))
        .unwrap()
        .to_string_lossy()
        .into_owned()
}

/// Runs a script with `control` left out, or none.
fn sh(world: &World, control: Option<Control>, script: &str, arguments: &[&Path]) -> (Ran, Run) {
    let policy = world.policy(|policy| {
        policy["resources"]["timeoutMs"] = 5_000.into();
        policy["resources"]["outputBytes"] = 4_096.into();
    });
    let flags = format!("-P {} --best-effort -C /", policy.display());
    let mut workload = vec![
        Path::new("sh"),
        "-c".as_ref(),
        script.as_ref(),
        "sh".as_ref(),
    ];
    workload.extend(arguments);
    let mut command = world.exec_command(&flags, &workload);
    command.env("OF_THE_CALLER", "caller's");
    if let Some(control) = control {
        command.env("RUNNER_ABLATE", control.as_str());
    }
    with_planted(&mut command);
    let ran = Ran::of(command.output().unwrap());
    (ran, world.last())
}

/// What a workload finds out about one control: what it says under it, and without it.
fn script(control: Control) -> Option<&'static str> {
    Some(match control {
        Control::Network => "readlink /proc/self/ns/net",
        Control::Filesystem => "echo changed >$1/canary; cat $1/canary",
        Control::Process => "cat /proc/$2/comm",
        Control::Environment => "echo ${OF_THE_CALLER-none}",
        Control::Privilege => "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status",
        Control::Timeout => "exec 9>&1; sleep 7; echo over",
        Control::Output => "head -c 9000 /dev/zero | tr '\\0' x",
        Control::Devices => "grep -c ' /dev ' /proc/self/mountinfo; ls /dev",
        Control::User => "id -u",
        Control::Ipc => "readlink /proc/self/ns/ipc; test -S $1/socket && echo seen; ls $1",
        Control::Descriptors => "test -e /proc/self/fd/7 && echo open",
        Control::Terminal => "cut -d' ' -f6 /proc/self/stat",
        Control::Files => "ulimit -n",
        // By a call of the test program.
        Control::Syscalls => return None,
        // Nothing of these is applied by this runtime.
        Control::Memory | Control::Processes | Control::Cpu | Control::Disk => return None,
    })
}

/// Whether what a workload says shows that the control is not there.
fn shows_none(control: Control, out: &str, scene: &Scene) -> bool {
    let out = out.trim();
    match control {
        Control::Network => out == namespace("net"),
        Control::Filesystem => out == "changed" && scene.canary() == "changed\n",
        Control::Process => out == std::fs::read_to_string("/proc/self/comm").unwrap().trim(),
        Control::Environment => out == "caller's",
        Control::Privilege => {
            let zeros = "0000000000000000";
            out.contains("NoNewPrivs:\t0") && !out.contains(zeros)
        }
        Control::Timeout => out == "over",
        Control::Output => out.len() == 9_000,
        Control::Devices => {
            let host = std::fs::read_dir("/dev").unwrap();
            let names: BTreeSet<&str> = out.lines().skip(1).collect();
            out.starts_with("1\n")
                && host
                    .map(|entry| entry.unwrap().file_name())
                    .all(|name| names.contains(name.to_str().unwrap()))
        }
        Control::User => out == "0",
        Control::Ipc => out == format!("{}\nseen\nsocket", namespace("ipc")),
        Control::Descriptors => out == "open",
        // A session that is not of this pid namespace has no number in it.
        Control::Terminal => out == "0",
        Control::Files => out != "128",
        Control::Syscalls | Control::Memory | Control::Processes | Control::Cpu | Control::Disk => {
            panic!("{control} has no script")
        }
    }
}

/// Controls that go with another: host root needs no capability to have one.
fn goes_along(control: Control, by_root: bool) -> &'static [&'static str] {
    if control == Control::User && by_root {
        &["privilege"]
    } else {
        &[]
    }
}

#[track_caller]
fn check_declared(control: Control, by_root: bool, without: &Run, under: &Run) {
    let declared = |run: &Run| -> BTreeSet<&'static str> {
        let all = SUPPORTED.into_iter();
        all.filter(|name| run.declares(name)).collect()
    };
    let mut expected = declared(under);
    expected.remove(control.as_str());
    for name in goes_along(control, by_root) {
        expected.remove(name);
    }
    let unsupported = &without.start.controls.unsupported;
    assert_eq!(declared(without), expected, "{control}: {unsupported:?}");
    if SUPPORTED.contains(&control.as_str()) {
        assert_eq!(without.reason(control.as_str()), Some("ablated"));
    }
}

fn walk(world: &World, by_root: bool) {
    let scene = Scene::new();
    let pid = PathBuf::from(std::process::id().to_string());
    let arguments: [&Path; 2] = [scene.folder.path(), &pid];
    for control in Control::ALL.iter().copied() {
        let asked = script(control).unwrap_or("true");
        let (ran_under, under) = sh(world, None, asked, &arguments);
        let (ran, without) = sh(world, Some(control), asked, &arguments);
        check_declared(control, by_root, &without, &under);
        if script(control).is_none() {
            continue;
        }
        let uid = |run: &Run| {
            let observed = run.execution.observed.as_ref();
            observed.and_then(|observed| observed.uid).unwrap()
        };
        assert_ne!(uid(&under), 0, "{control}");
        assert_eq!(uid(&without) == 0, by_root && control == Control::User);
        let none = shows_none(control, &ran.out, &scene);
        assert!(none, "{control} is still there: {ran:#?}");
        std::fs::write(scene.path("canary"), "untouched").unwrap();
        let none = shows_none(control, &ran_under.out, &scene);
        assert!(!none, "{control} is not there: {ran_under:#?}");
    }
}

#[test]
fn each_control_alone_can_be_left_out() {
    walk(&ready!(), is_root());
}

#[test]
fn each_control_alone_can_be_left_out_by_an_ordinary_user() {
    let _ = ready!();
    let name = "each_control_alone_can_be_left_out_by_an_ordinary_user";
    if let Some(world) = World::of_user(name, &[]).filter(|_| is_root()) {
        walk(&world, false);
    }
}

#[test]
fn sockets_that_come_and_go_keep_nothing_from_starting() {
    let world = ready!().with("RUNNER_ABLATE", "ipc");
    let scene = Scene::new();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let folder = scene.folder.path().to_owned();
    let coming = std::thread::spawn(move || {
        let mut number = 0;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let listeners: Vec<_> = (number..number + 20)
                .map(|number| folder.join(format!("socket-{number}")))
                .map(|path| (UnixListener::bind(&path).unwrap(), path))
                .collect();
            for (_, path) in &listeners {
                std::fs::remove_file(path).unwrap();
            }
            number += 20;
        }
    });
    for _ in 0..10 {
        world.exec("--best-effort", &["true"]).ended(0);
    }
    drop(stop);
    coming.join().unwrap();
}

#[test]
fn a_policys_filter_can_be_left_out() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let flags = format!("-P {} --best-effort", policy.display());
    let ask = |control: Option<&str>| {
        let mut command = command_inside(&world, &flags, &["getcpu", "io_uring_setup"]);
        command.envs(control.map(|name| ("RUNNER_ABLATE", name)));
        answers(&Ran::of(command.output().unwrap()))
    };
    assert_eq!(ask(None)["getcpu"], "EPERM");
    let without = ask(Some("syscalls"));
    assert_eq!(without["getcpu"], "ok");
    assert_eq!(without["io_uring_setup"], "EPERM", "the base filter stays");
    assert_eq!(world.last().reason("syscalls"), Some("ablated"));
}

#[test]
fn sockets_are_reached_without_ipc_and_no_network_is() {
    let world = ready!();
    let scene = Scene::new();
    let name = format!("ablation-{}", std::process::id());
    let own = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&own).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    // Until the test program ends.
    std::thread::spawn(move || {
        for stream in tcp.incoming() {
            let _ = stream.unwrap().write_all(b"hello");
        }
    });
    let attempts = [
        format!("unix:{}", scene.path("socket").display()),
        format!("abstract:{name}"),
        format!("tcp:{address}"),
    ];
    let attempts = attempts.each_ref().map(String::as_str);
    let policy = world.policy(|_| {});
    let flags = format!("-P {} --best-effort", policy.display());
    let ask = |control: Option<&str>| {
        let mut command = command_inside(&world, &flags, &attempts);
        command.envs(control.map(|name| ("RUNNER_ABLATE", name)));
        let answers = answers(&Ran::of(command.output().unwrap()));
        attempts.map(|attempt| answers[attempt] == "ok")
    };
    assert_eq!(ask(None), [false, false, false]);
    assert_eq!(ask(Some("ipc")), [true, true, false]);
    assert!(world.last().declares("network"));
    assert_eq!(ask(Some("network")), [false, false, true]);
    assert!(world.last().declares("ipc"));
    // The socket is seen, and cannot be connected to.
    assert_eq!(ask(Some("filesystem")), [false, false, false]);
    assert!(world.last().declares("ipc"));
}

#[test]
fn what_cannot_be_left_out_is_not_run() {
    let world = ready!()
        .with("OF_THE_CALLER", "x")
        .with("RUNNER_ABLATE", "filesystem");
    let policy = world.policy(|_| {});
    let flags = format!(
        "-P {} --best-effort --secret OF_THE_CALLER",
        policy.display()
    );
    let ran = world.exec(&flags, &["true"]).ended(125);
    assert!(ran.err.contains("ablation-not-possible"), "{}", ran.err);
    let run = world.last();
    assert_eq!(run.reason("filesystem"), Some("ablation-not-possible"));
    assert!(run.start.controls.declared.is_empty());
    // A strict policy refuses a run without a control that it requires.
    let flags = format!("-P {}", policy.display());
    world.exec(&flags, &["true"]).ended(126);
}

#[test]
fn evidence_stays_covered_without_filesystem() {
    let world = ready!();
    let (_, _) = sh(&world, None, "true", &[]);
    let ledger = world.ledger();
    let script = "ls $1 | wc -l; ls $2 | wc -l";
    let (ran, run) = sh(
        &world,
        Some(Control::Filesystem),
        script,
        &[&ledger, &world.keys()],
    );
    assert_eq!(ran.out, "0\n0\n", "{ran:#?}");
    assert_eq!(run.start.key_reachable, None);
}

/// Makes a pseudo-terminal the controlling terminal of the program that is run.
#[allow(unsafe_code, reason = "a session begins between fork and exec")]
fn with_terminal(command: &mut std::process::Command, terminal: std::os::fd::OwnedFd) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: setsid and ioctl are async-signal-safe and the closure owns the terminal.
    unsafe {
        command.pre_exec(move || {
            let number = terminal.as_raw_fd();
            if libc::setsid() < 0 || libc::ioctl(number, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

#[test]
fn without_terminal_the_callers_is_there() {
    let world = ready!();
    let policy = world.policy(|_| {});
    for (control, expected) in [(None, "none\n"), (Some("terminal"), "the caller's\n")] {
        let pair = nix::pty::openpty(None, None).unwrap();
        let flags = format!("-P {} --best-effort", policy.display());
        let script = "(: </dev/tty) 2>/dev/null && echo \"the caller's\" || echo none";
        let mut command = world.exec_command(&flags, &["sh", "-c", script]);
        command.envs(control.map(|name| ("RUNNER_ABLATE", name)));
        with_terminal(&mut command, pair.slave);
        let ran = Ran::of(command.output().unwrap()).ended(0);
        assert_eq!(ran.out, expected);
    }
}

/// What the user namespace keeps closed where the host's processes are seen: their environment, the host's files behind
/// them (ptrace(2), access mode checks).
#[test]
fn processes_that_are_seen_stay_closed() {
    let _ = ready!();
    let Some(world) = World::of_user("processes_that_are_seen_stay_closed", &[]) else {
        return;
    };
    let world = world
        .with("OF_THE_CALLER", "found")
        .with("RUNNER_ABLATE", "process");
    let scene = Scene::new();
    let script = "for one in /proc/[0-9]*; do \
            grep -qz OF_THE_CALLER=found $one/environ && echo environment; \
            cat $one/root$1/canary; \
        done 2>/dev/null; true";
    let run = |flags: &str, nesting: &str| {
        let policy = world.policy(|policy| policy["nesting"] = nesting.into());
        let flags = format!("-P {} --best-effort -C / {flags}", policy.display());
        let ran = world.sh(&flags, script, &[scene.folder.path()]).ended(0);
        (ran.out, world.last())
    };
    let (seen, _) = run("--runtime native --allow-native", "deny");
    for open in ["environment", "untouched"] {
        assert!(seen.contains(open), "not even bare: {seen:?}");
    }
    for nesting in ["deny", "allow"] {
        let (seen, recorded) = run("", nesting);
        assert!(
            !seen.contains("environment") && !seen.contains("untouched"),
            "{seen:?}"
        );
        for control in ["filesystem", "environment", "devices", "ipc", "descriptors"] {
            assert!(recorded.declares(control), "{control}");
        }
    }
}

#[test]
fn capabilities_undo_no_mount_or_filesystem_is_not_declared() {
    let world = ready!().with("RUNNER_ABLATE", "privilege");
    let run = |nesting: &str| {
        let policy = world.policy(|policy| {
            policy["nesting"] = nesting.into();
            policy["process"]["user"] = 0.into();
            policy["process"]["group"] = 0.into();
            policy["syscalls"] = serde_json::json!({ "deny": ["getcpu"] });
        });
        let flags = format!("-P {} --best-effort -C /", policy.display());
        let script = "PATH=$PATH:/sbin:/usr/sbin; umount /proc/sys 2>/dev/null && echo unmounted || echo kept";
        (world.sh(&flags, script, &[]).ended(0).out, world.last())
    };
    let (seen, recorded) = run("allow");
    assert_eq!(seen, "unmounted\n");
    for control in ["filesystem", "devices"] {
        assert_eq!(recorded.reason(control), Some("not-read-back"), "{control}");
    }
    let (seen, recorded) = run("deny");
    if recorded.declares("filesystem") {
        assert_eq!(seen, "kept\n");
    } else {
        skip(
            "capabilities_undo_no_mount_or_filesystem_is_not_declared",
            "no Landlock",
        );
    }
}
