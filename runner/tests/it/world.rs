//! A home, a ledger and a working folder for one test, and runs of the program in them with a scrubbed environment.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, Output as ProcessOutput, Stdio};
use std::time::{Duration, Instant};

use ledger::facts::control::Control;
use ledger::facts::execution::{Execution, Output, Start};
use ledger::facts::list::{List, Sealable};
use ledger::file::source::{ReadError, Source};
use ledger::file::walk::{Findings, Shown, Visitor, walk};
use ledger::finding::Finding;
use ledger::record::{Body, Opened, Record};
use serde_json::json;

/// Controls that the embedded runtime can declare under [`World::policy`].
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
const PATIENCE: Duration = Duration::from_secs(60);

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
        std::fs::hard_link(&world.runner, &copy)
            .or_else(|_| std::fs::copy(&world.runner, &copy).map(drop))
            .unwrap();
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
    /// this host makes none. `$1` is this world's folder.
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

impl Ran {
    pub(crate) fn of(output: ProcessOutput) -> Self {
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

/// Every record of a ledger, in order.
pub(crate) struct Evidence {
    pub(crate) records: Vec<(Record, Option<Opened>)>,
}

impl Visitor for Evidence {
    fn verified(&mut self, shown: &Shown<'_>, _: &mut Findings) -> Result<(), ReadError> {
        let opening = shown.opening.map(|opening| opening.open.clone());
        self.records.push(((**shown.record).clone(), opening));
        Ok(())
    }

    fn unverified(&mut self, sequence: u64) {
        panic!("record {sequence} does not verify");
    }
}

pub(crate) fn evidence(ledger: &Path) -> Evidence {
    let (evidence, findings) = walked(ledger);
    assert!(findings.is_empty(), "{findings:#?}");
    evidence
}

/// Reads a ledger; the records that verify, and everything there is to say.
pub(crate) fn walked(ledger: &Path) -> (Evidence, Vec<Finding>) {
    let mut evidence = Evidence {
        records: Vec::new(),
    };
    let mut source = Source::open(ledger).unwrap();
    let walked = walk(&mut source, None, &mut evidence).unwrap();
    (evidence, walked.findings.into_list())
}

impl Evidence {
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.records
            .iter()
            .map(|(record, _)| record.body.kind())
            .collect()
    }

    /// The runs that have ended, in the order of their ends.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let ended = self
            .records
            .iter()
            .filter_map(|(record, opened)| match &record.body {
                Body::Execution(execution) => Some((execution, opened)),
                _ => None,
            });
        ended
            .map(|(execution, opened)| {
                let at = usize::try_from(execution.start.value()).unwrap();
                let (Body::Start(start), at_start) =
                    (&self.records[at].0.body, &self.records[at].1)
                else {
                    panic!("record {at} is no start");
                };
                let opened = opened.clone().unwrap_or_default();
                let at_start = at_start.clone().unwrap_or_default();
                let output = |clear: &Option<Sealable<Output>>, sealed: Option<Output>| match clear
                {
                    Some(Sealable::Clear(output)) => Some(output.clone()),
                    Some(Sealable::Sealed(_)) => Some(sealed.expect("sealed, and no opening")),
                    None => None,
                };
                let argv = match &start.workload.argv {
                    Sealable::Clear(list) => list.clone(),
                    Sealable::Sealed(_) => at_start.argv.expect("sealed, and no opening").1,
                };
                let List::Inline(argv) = argv else {
                    panic!("a long argv");
                };
                Run {
                    argv,
                    start: (**start).clone(),
                    stdout: output(
                        &execution.result.stdout,
                        opened.stdout.map(|salted| salted.1),
                    ),
                    stderr: output(
                        &execution.result.stderr,
                        opened.stderr.map(|salted| salted.1),
                    ),
                    execution: (**execution).clone(),
                }
            })
            .collect()
    }
}

/// One run as its ledger has it, sealed values taken from their openings.
pub(crate) struct Run {
    pub(crate) argv: Vec<String>,
    pub(crate) start: Start,
    pub(crate) stdout: Option<Output>,
    pub(crate) stderr: Option<Output>,
    pub(crate) execution: Execution,
}

impl Run {
    pub(crate) fn declares(&self, control: &str) -> bool {
        self.start
            .controls
            .declares(control.parse::<Control>().unwrap())
    }

    /// Why a control is not declared.
    pub(crate) fn reason(&self, control: &str) -> Option<&str> {
        let unsupported = &self.start.controls.unsupported;
        let gap = unsupported
            .iter()
            .find(|gap| gap.control.as_str() == control);
        gap.map(|gap| gap.reason.as_str())
    }
}
