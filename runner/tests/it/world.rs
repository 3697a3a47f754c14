//! A home, a ledger and a working folder for one test, and runs of the program in them with a scrubbed environment.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::evidence::{Evidence, Run, evidence};

/// Controls that the embedded runtime can declare under [`World::policy`], and bubblewrap where it is installed; each has a row that
/// holds on any host where it can be tried.
pub(crate) const SUPPORTED: [&str; 14] = [
    "network",
    "filesystem",
    "process",
    "environment",
    "privilege",
    "syscalls",
    "timeout",
    "output",
    "devices",
    "user",
    "ipc",
    "descriptors",
    "terminal",
    "files",
];
/// How long anything may take that must happen soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Says that a test could not run here.
pub(crate) fn skip(test: &str, reason: impl Display) {
    eprintln!("SKIPPED: {test}: {reason}");
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "did not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Puts a copy of `program` at `to`, written by another process: a child that another test forks meanwhile has what this one has
/// open for writing, and until it executes its own program nobody can execute that (execve(2), ETXTBSY).
pub(crate) fn install(program: &Path, to: &Path) {
    let mut command = Command::new("install");
    let status = command.args(["-m", "755"]).args([program, to]).status();
    assert!(status.unwrap().success(), "{}", to.display());
}

/// The same of a text.
pub(crate) fn install_script(text: &str, to: &Path) {
    let draft = to.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    install(&draft, to);
    std::fs::remove_file(draft).unwrap();
}

/// Finds a program of the host.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    path.split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}

/// Everything that a run sees of its caller.
pub(crate) struct World {
    base: tempfile::TempDir,
    runner: PathBuf,
    before: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    /// A filter around everything denies namespaces, as the one of many container engines does.
    no_namespaces: bool,
    /// What stands at which place of the host, in a mount namespace that is there before that filter.
    bound: Vec<(PathBuf, PathBuf)>,
}

/// A world in which sandboxes can be built; where the host makes none, says so and returns from the test.
macro_rules! ready {
    () => {{
        fn here() {}
        let test = std::any::type_name_of_val(&here).trim_end_matches("::here");
        if let Some(reason) = $crate::world::no_sandbox() {
            return $crate::world::skip(test, reason);
        }
        $crate::world::World::new()
    }};
}
pub(crate) use ready;

/// The runtimes that isolate something and are installed here, with what has `exec` take them; says of a test which are not.
pub(crate) fn runtimes(test: &str) -> Vec<(&'static str, &'static str)> {
    let mut all = vec![("embedded", "--runtime embedded")];
    for (name, flags) in [
        ("bwrap", "--runtime bwrap"),
        ("unshare", "--runtime unshare --best-effort"),
    ] {
        match program(name) {
            Some(_) => all.push((name, flags)),
            None => skip(test, format!("no {name}")),
        }
    }
    all
}

/// Those of them that build a whole sandbox.
pub(crate) fn sandboxes(test: &str) -> Vec<(&'static str, &'static str)> {
    let mut all = runtimes(test);
    all.retain(|(name, _)| *name != "unshare");
    all
}

/// Why this host builds no sandbox, as `runner doctor` found by trying.
pub(crate) fn no_sandbox() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = World::new().run("--json doctor").json();
        let lacking = found["capabilities"].as_array().unwrap().iter();
        let lacking = lacking.filter(|one| one["works"] == false);
        let list: Vec<String> = lacking
            .map(|one| format!("{}: {}", one["name"], one["error"]))
            .collect();
        (found["ready"] != true).then(|| list.join(", "))
    });
    found.as_deref()
}

/// Why the caller of this world can have no limits on a whole tree, as `runner doctor` found by trying.
pub(crate) fn no_groups(world: &World) -> Option<String> {
    let found = world.run("--json doctor").json();
    let all = found["capabilities"].as_array().unwrap();
    let groups = all
        .iter()
        .find(|one| one["name"] == "resource-groups")
        .unwrap();
    (groups["works"] != true).then(|| groups["error"].to_string())
}

/// The verdict of a run that goes well under the policy `standard`, without a writable folder: it wants limits, which not every
/// caller can have.
pub(crate) fn at_best(world: &World) -> &'static str {
    match no_groups(world) {
        Some(_) => "reduced",
        None => "as-requested",
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        for folder in ["home/work", "state", "data"] {
            std::fs::create_dir_all(base.path().join(folder)).unwrap();
        }
        Self {
            base,
            runner: env!("CARGO_BIN_EXE_runner").into(),
            before: Vec::new(),
            variables: Vec::new(),
            no_namespaces: false,
            bound: Vec::new(),
        }
    }

    /// A world whose caller is an ordinary user with these supplementary groups; `None` where that cannot be had.
    pub(crate) fn of_user(test: &str, groups: &[u32]) -> Option<Self> {
        const ID: u32 = 61_234;
        let mut world = Self::new();
        if !is_root() {
            if groups.is_empty() {
                return Some(world);
            }
            skip(test, "only root can give a process supplementary groups");
            return None;
        }
        let Some(setpriv) = program("setpriv") else {
            skip(test, "no setpriv (util-linux)");
            return None;
        };
        // The user may not reach the build folder.
        let copy = world.path("runner");
        // A hard link would change the program's ctime, and with it what every other run says of its host.
        install(&world.runner, &copy);
        world.runner = copy;
        for path in ["", "home", "home/work", "state", "data"] {
            std::os::unix::fs::chown(world.path(path), Some(ID), Some(ID)).unwrap();
        }
        let groups = if groups.is_empty() {
            "--clear-groups".to_owned()
        } else {
            let list: Vec<String> = groups.iter().map(ToString::to_string).collect();
            format!("--groups={}", list.join(","))
        };
        world.before = [
            setpriv.into(),
            format!("--reuid={ID}").into(),
            format!("--regid={ID}").into(),
            groups.into(),
            "--inh-caps=-all".into(),
            "--".into(),
        ]
        .to_vec();
        Some(world)
    }

    /// Gives every run from now on a supplementary group; `false` where that cannot be had.
    pub(crate) fn in_a_group(&mut self) -> bool {
        let Some(setpriv) = program("setpriv").filter(|_| is_root()) else {
            return false;
        };
        self.before = vec![setpriv.into(), "--groups=61300".into(), "--".into()];
        true
    }

    /// Runs everything from now on in a mount namespace in which `script` has mounted things; says why not when
    /// this host makes none. `$1` is this world's folder. The caller stays who it is: root mounts, and becomes an ordinary user then.
    pub(crate) fn mounted(&mut self, script: &str) -> Result<(), String> {
        let unshare = program("unshare").ok_or("no unshare (util-linux)")?;
        let mut before: Vec<OsString> = vec![unshare.into()];
        if !is_root() {
            before.extend(["--user", "--map-current-user", "--keep-caps"].map(OsString::from));
        }
        before.extend(["--mount", "--propagation", "private", "sh", "-ec"].map(OsString::from));
        before.push(format!("{script}\nshift; exec \"$@\"").into());
        before.extend(["sh".into(), self.base.path().into()]);
        let tried = Command::new(&before[0])
            .args(&before[1..])
            .arg("true")
            .output()
            .map_err(|error| error.to_string())?;
        if !tried.status.success() {
            return Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned());
        }
        self.before.splice(0..0, before);
        Ok(())
    }

    /// Runs everything from now on behind another program.
    pub(crate) fn behind(&mut self, words: &[&str]) {
        self.before = words.iter().map(OsString::from).collect();
    }

    /// Runs everything from now on where nobody makes namespaces.
    pub(crate) fn without_namespaces(mut self) -> Self {
        self.no_namespaces = true;
        self
    }

    /// Runs everything from now on with these folders bound at these places of the host, where nobody makes namespaces. Root alone
    /// can do that.
    pub(crate) fn bound(mut self, binds: &[(&Path, &Path)]) -> Self {
        let binds = binds.iter();
        self.bound = binds
            .map(|(source, target)| (source.to_path_buf(), target.to_path_buf()))
            .collect();
        self
    }

    /// Runs everything from now on where parts of /proc are covered or read-only, as engines of containers leave it: the kernel
    /// mounts no fresh one in a user namespace then. Says why not where that cannot be had.
    pub(crate) fn with_masks(&mut self) -> Result<(), String> {
        let script = "for name in kcore keys timer_list interrupts; do
                test ! -e /proc/$name || mount --bind /dev/null /proc/$name
            done
            mount --bind /proc/sys /proc/sys
            mount -o remount,bind,ro /proc/sys";
        self.mounted(script)
    }

    /// From now on runs a copy of the program that is made now.
    pub(crate) fn install_runner(&mut self) {
        let copy = self.path("runner");
        install(&self.runner, &copy);
        self.runner = copy;
    }

    /// Runs everything from now on in namespaces of its own (flags of unshare(1)), in which `script` has run; an ordinary user
    /// in a user namespace too, as itself. Says why not when this host makes none.
    pub(crate) fn apart(&mut self, flags: &[&str], script: &str) -> Result<(), String> {
        let unshare = program("unshare").ok_or("no unshare (util-linux)")?;
        let mut before: Vec<OsString> = vec![unshare.into()];
        if !is_root() && !flags.contains(&"--user") {
            before.extend(["--user", "--map-current-user", "--keep-caps"].map(OsString::from));
        }
        before.extend(flags.iter().map(OsString::from));
        before.extend(["sh", "-ec"].map(OsString::from));
        before.extend([format!("{script}\nexec \"$@\"").into(), "sh".into()]);
        let tried = Command::new(&before[0])
            .args(&before[1..])
            .arg("true")
            .output()
            .map_err(|error| error.to_string())?;
        if !tried.status.success() {
            return Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned());
        }
        self.before = before;
        Ok(())
    }

    /// Runs everything from now on in user and mount namespaces of its own, the former with the caller's ids alone and all
    /// capabilities, in which `script` has run; says why not when this host makes none.
    pub(crate) fn confined(&mut self, map: &str, script: &str) -> Result<(), String> {
        let unshare = program("unshare").ok_or("no unshare (util-linux)")?;
        let mut before: Vec<OsString> = vec![unshare.into()];
        before.extend(["--user", map, "--keep-caps", "--mount", "sh", "-ec"].map(OsString::from));
        before.extend([format!("{script}\nexec \"$@\"").into(), "sh".into()]);
        let tried = Command::new(&before[0])
            .args(&before[1..])
            .arg("true")
            .output()
            .map_err(|error| error.to_string())?;
        if !tried.status.success() {
            return Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned());
        }
        self.before = before;
        Ok(())
    }

    pub(crate) fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().into()));
        self
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.path().join(name)
    }

    /// Makes a folder.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Makes a file.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.path("state/containment-ledger/default")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.path("data/containment-ledger/keys")
    }

    /// A strict policy file that requires all [`SUPPORTED`] controls, changed by `change`.
    pub(crate) fn policy(&self, change: impl FnOnce(&mut serde_json::Value)) -> PathBuf {
        let mut policy = json!({
            "id": "test",
            "enforcement": { "mode": "strict", "requiredControls": SUPPORTED, "wantedControls": [] },
            "filesystem": { "maxWorkspaceMb": 64 },
            "network": { "mode": "none" },
            "resources": { "timeoutMs": 120_000, "openFiles": 128, "outputBytes": 1_048_576 },
            "process": { "environment": { "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp" } },
            "syscalls": { "profile": "default", "deny": ["getcpu"] },
        });
        change(&mut policy);
        self.file("policy.json", &policy.to_string())
    }

    /// The program with these arguments, everything about it set but its streams.
    pub(crate) fn command<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        arguments: I,
    ) -> Command {
        let mut command = match self.before.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.runner);
                command
            }
            None => Command::new(&self.runner),
        };
        command
            .args(arguments)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_DATA_HOME", self.path("data"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path("home/work"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.no_namespaces {
            deny_namespaces(&mut command, &self.bound);
        }
        command
    }

    /// Runs the program with arguments that stand in one text, separated by spaces.
    pub(crate) fn run(&self, arguments: &str) -> Ran {
        Ran::of(self.command(arguments.split_whitespace()).output().unwrap())
    }

    /// `runner exec` as a command: flags separated by spaces, then the program and its arguments.
    pub(crate) fn exec_command<S: AsRef<OsStr>>(&self, flags: &str, workload: &[S]) -> Command {
        let mut command = self.command(["exec"]);
        command
            .args(flags.split_whitespace())
            .arg("--")
            .args(workload);
        command
    }

    /// `runner exec` to its end.
    pub(crate) fn exec<S: AsRef<OsStr>>(&self, flags: &str, workload: &[S]) -> Ran {
        Ran::of(self.exec_command(flags, workload).output().unwrap())
    }

    /// `runner exec` of a shell script, whose arguments are `$1`, `$2`, …
    pub(crate) fn sh(&self, flags: &str, script: &str, arguments: &[&Path]) -> Ran {
        let mut workload: Vec<&OsStr> =
            vec!["sh".as_ref(), "-c".as_ref(), script.as_ref(), "sh".as_ref()];
        workload.extend(arguments.iter().map(|path| path.as_os_str()));
        self.exec(flags, &workload)
    }

    /// Reads the ledger; fails when the walk finds anything wrong with it.
    pub(crate) fn evidence(&self) -> Evidence {
        evidence(&self.ledger())
    }

    /// The newest run.
    pub(crate) fn last(&self) -> Run {
        self.evidence().runs().pop().expect("no run is recorded")
    }

    /// All bytes of all files of the ledger.
    pub(crate) fn ledger_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        read_all(&self.ledger(), &mut bytes);
        assert!(!bytes.is_empty());
        bytes
    }
}

/// Puts binds and a filter around a command: unshare(2) and clone(2) with any kind of namespace fail with EPERM, and clone3(2), whose
/// arguments no filter sees, is not there.
#[allow(unsafe_code, reason = "a filter is installed between fork and exec")]
fn deny_namespaces(command: &mut Command, bound: &[(PathBuf, PathBuf)]) {
    use runner::sys::filter::{Instruction, install};
    use std::os::unix::process::CommandExt as _;
    const KINDS: u32 = 0x7e02_0000;
    let step = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let is = |number: libc::c_long, jf| step(0x15, 0, jf, u32::try_from(number).unwrap());
    let give = |value| step(0x06, 0, 0, value);
    let errno = |errno: i32| give(0x0005_0000 | errno.unsigned_abs());
    let filter = [
        step(0x20, 0, 0, 0),
        is(libc::SYS_clone3, 1),
        errno(libc::ENOSYS),
        is(libc::SYS_unshare, 1),
        errno(libc::EPERM),
        is(libc::SYS_clone, 3),
        step(0x20, 0, 0, 16),
        step(0x45, 0, 1, KINDS),
        errno(libc::EPERM),
        give(0x7fff_0000),
    ];
    let is_root = is_root();
    let bound = bound.to_vec();
    // SAFETY: system calls alone, of paths that are short enough to need no memory.
    unsafe {
        command.pre_exec(move || {
            if !bound.is_empty() {
                apart(&bound)?;
            }
            if !is_root {
                nix::sys::prctl::set_no_new_privs()?;
            }
            install("seccomp", &filter)
        });
    }
}

/// A mount namespace of this process's own, with these binds.
fn apart(bound: &[(PathBuf, PathBuf)]) -> nix::Result<()> {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none)?;
    for (source, target) in bound {
        mount(Some(source), target, none, MsFlags::MS_BIND, none)?;
    }
    Ok(())
}

fn read_all(folder: &Path, bytes: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, bytes);
        } else {
            bytes.extend(std::fs::read(&path).unwrap());
        }
    }
}

pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) err: String,
}

/// A line of arguments, run by a shell that did something to itself before.
pub(crate) fn in_bash(world: &World, bash: &Path, before: &str, line: &str) -> Ran {
    let runner = world.command(line.split_whitespace());
    let mut command = Command::new(bash);
    command
        .args(["-c", &format!("{before}; exec \"$0\" \"$@\"")])
        .arg(runner.get_program())
        .args(runner.get_args())
        .env_clear()
        .stdout(Stdio::null());
    let variables = runner.get_envs();
    command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = runner.get_current_dir() {
        command.current_dir(folder);
    }
    Ran::of(command.output().unwrap())
}

/// An error as it was meant, whatever the width of the page made of it.
pub(crate) fn flat(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '│' | '├' | '─' | '▶' | '╰' | '×'))
        .collect()
}

impl Ran {
    /// Whether these words are on stderr, whatever the width of the page made of them.
    #[must_use]
    pub(crate) fn says(&self, words: &str) -> bool {
        flat(&self.err).contains(&flat(words))
    }

    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            bytes: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Fails unless it ended with this exit status.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The JSON document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}
