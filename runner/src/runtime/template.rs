//! **template**: a runtime described by a document: a command line around the workload, and what it is said to do.
//!
//! ```json
//! {
//!   "id": "unshare-net",
//!   "version": "1",
//!   "declares": [{ "control": "network", "mechanism": "network-namespace" }],
//!   "command": ["unshare", "--net", "--", "{program}", "{arguments}"],
//!   "environment": "clear",
//!   "ablations": { "network": { "command": ["{program}", "{arguments}"] } }
//! }
//! ```
//! Nothing of it is believed: what it declares is recorded as declared, and a measurement shows what of that is true. The
//! command is started like a workload of `native`, in the caller's session and with the descriptors that the launcher leaves open.
//! docs/runtimes.md describes each field.

mod asked;
mod document;
mod program;
mod read;
mod words;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ledger::bytes::canon::escape_bytes;
use ledger::bytes::key::random_bytes;
use ledger::facts::control::Control;
use ledger::facts::execution::{NotExecuted, RuntimeUsed};
use ledger::facts::policy::Policy;

use super::launch;
use crate::init::wire::{ProgramReport, ProgramSpec};
use crate::mechanism::identity::DEFAULT_INSIDE;
use crate::mechanism::mounts;
use crate::mechanism::seccomp::Architecture;
use crate::plan::{
    Answer, Begun, Effect, Intent, Job, Launch, LaunchError, Plan, Program, Reason, Runtime,
    SYSTEM, Streams, Tree, Why,
};
use crate::runtime::scratch::Scratch;
use asked::Asked;
use document::{Claim, Environment, Way};
pub use read::ReadTemplateError;
use words::Values;

/// Least CPU time of which there is a quota, in thousandths of a processor.
const LEAST_CPU: u64 = 10;
/// Stands for the workload's program.
const PROGRAM: &str = "{program}";

/// A runtime that a document describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    id: String,
    /// Which document it is, for records: the beginning of its hash.
    document: String,
    version: String,
    version_command: Option<Vec<String>>,
    /// What its program needs to start, for people.
    needs: Vec<String>,
    /// Where its program is, once it was looked for.
    found: OnceLock<Result<PathBuf, String>>,
    /// What its program says of its version, once it was asked.
    said: OnceLock<Result<String, String>>,
    declares: BTreeMap<Control, Claim>,
    way: Way,
    folders: Vec<String>,
    cleanup: Vec<Vec<String>>,
    calibration: Vec<String>,
    ablations: BTreeMap<Control, Way>,
}

impl Template {
    /// What it is said to do.
    pub fn declares(&self) -> impl Iterator<Item = Control> + '_ {
        self.declares.keys().copied()
    }

    /// How a job is started; `None` when it leaves out a control for which the document has no way.
    fn way(&self, job: &Job) -> Option<&Way> {
        match job.ablate {
            None => Some(&self.way),
            Some(control) => self.ablations.get(&control),
        }
    }

    /// What its program needs to start, in words of the document.
    #[must_use]
    pub fn needs(&self) -> &[String] {
        &self.needs
    }

    /// Its version in records where no program is to be asked; `None` where the document says that one is.
    #[must_use]
    pub fn version_unasked(&self) -> Option<String> {
        let is_said = self.version_command.is_none();
        is_said.then(|| self.named(&self.version))
    }

    /// Why its program cannot be started, found without starting anything.
    #[must_use]
    pub fn lacks_program(&self) -> Option<String> {
        self.program()?.as_ref().err().cloned()
    }

    /// A version as records have it.
    fn named(&self, version: &str) -> String {
        format!("{version} {}{}", RuntimeUsed::TEMPLATE, self.document)
    }

    /// The file of its program; `None` where it has none of its own, or where only a launch knows its name.
    fn program(&self) -> Option<&Result<PathBuf, String>> {
        let first = self.way.command.first()?;
        let is_known = self.way.has_program() && words::placeholders(first).next().is_none();
        is_known.then(|| self.found.get_or_init(|| program::resolve(first.as_ref())))
    }

    /// What its program says of its version; `None` where the document has no command for that.
    fn said(&self) -> Option<&Result<String, String>> {
        let (_, arguments) = self.version_command.as_ref()?.split_first()?;
        let path = self.program()?;
        Some(self.said.get_or_init(|| {
            let path = path.as_ref().map_err(Clone::clone)?;
            program::ask_version(path, arguments, self.way.is_clear())
        }))
    }

    /// A word that is executed, as the file that it names.
    fn executed(&self, mut words: Vec<OsString>) -> Result<Vec<OsString>, String> {
        if let Some(first) = words.first_mut() {
            let known = self.way.command.first().zip(self.program());
            *first = match known.filter(|(word, _)| first == word.as_str()) {
                Some((_, found)) => found.clone()?.into_os_string(),
                None => program::resolve(first)?.into_os_string(),
            };
        }
        Ok(words)
    }

    /// What the words of the document stand for under a policy; what a launch alone knows is missing.
    fn limits(policy: &Policy) -> Values {
        let resources = &policy.resources;
        let mebibytes = |value: u64| value.saturating_mul(1 << 20);
        let mut values = Values::default();
        let mut set = |name, value: Option<String>| {
            if let Some(value) = value {
                values.set(name, value);
            }
        };
        let number = |value: Option<ledger::bytes::canon::U53>| value.map(|value| value.value());
        // The kernel takes no quota below 1 ms of each 100.
        let cpu = number(resources.cpu_millis).filter(|millis| *millis >= LEAST_CPU);
        let exactly = |value: Option<u64>, unit: u64| {
            value
                .filter(|value| value % unit == 0)
                .map(|value| value / unit)
        };
        let memory = number(resources.memory_mb).map(mebibytes);
        let disk = number(policy.filesystem.max_workspace_mb).map(mebibytes);
        let seconds = exactly(number(resources.timeout_ms), 1_000);
        let text = |value: Option<u64>| value.map(|value| value.to_string());
        set("memory", text(memory));
        set("processes", text(number(resources.processes)));
        set(
            "cpus",
            cpu.map(|millis| format!("{}.{:03}", millis / 1_000, millis % 1_000)),
        );
        set("cpu-percent", text(exactly(cpu, 10)));
        // Of each 100 ms, in microseconds.
        set(
            "cpu-quota",
            text(cpu.map(|millis| millis.saturating_mul(100))),
        );
        set("open-files", text(number(resources.open_files)));
        set("output", text(number(resources.output_bytes)));
        set("disk", text(disk));
        set("timeout", text(seconds));
        let id = |id: Option<u32>| id.unwrap_or(DEFAULT_INSIDE).to_string();
        values.set("uid", id(policy.process.user));
        values.set("gid", id(policy.process.group));
        values
    }

    /// What they stand for in one launch.
    fn values(plan: &Plan, scratch: &Scratch) -> Values {
        let mut values = Self::limits(&plan.policy);
        let caller = (nix::unistd::geteuid(), nix::unistd::getegid());
        values.set("caller-uid", caller.0.to_string());
        values.set("caller-gid", caller.1.to_string());
        values.set("name", scratch.name());
        values.set("scratch", scratch.path().into_os_string().into_vec());
        values.set("workdir", plan.cwd.clone().into_os_string().into_vec());
        if let Some((program, arguments)) = plan.job.argv.split_first() {
            values.add("program", [program.as_bytes()]);
            let path = Path::new(program);
            // The system's are there for every program.
            let is_own =
                path.is_absolute() && !SYSTEM.iter().any(|system| path.starts_with(system));
            if let Some(folder) = path.parent().filter(|_| is_own) {
                values.set("program-folder", folder.as_os_str().as_bytes());
            }
            for argument in arguments {
                values.add("argument", [argument.as_bytes()]);
            }
        }
        // Whatever the launcher itself has.
        for (name, value) in &crate::plan::environment(&plan.policy, &plan.job) {
            values.add("variable", [name.as_bytes(), value.as_bytes()]);
        }
        for bind in &plan.tree.binds {
            let group = if bind.read_only { "read" } else { "write" };
            let paths = [&bind.source, &bind.target];
            values.add(group, paths.map(|path| path.as_os_str().as_bytes()));
        }
        for name in plan.policy.syscalls.denied() {
            values.add("denied", [name.as_bytes()]);
        }
        values
    }

    /// Why this plan cannot be shown by this command: something is to be seen for which it has no word.
    fn refuse_what_is_not_shown(way: &Way, plan: &Plan) -> Result<(), LaunchError> {
        let refused = |what: String| LaunchError::Refused {
            control: Control::Filesystem,
            why: Reason::CANNOT_SHOW.into(),
            what,
        };
        let binds = &plan.tree.binds;
        let read_only = binds.iter().filter(|bind| bind.read_only);
        let sources: Vec<&Path> = read_only.map(|bind| bind.source.as_path()).collect();
        if let Some((source, place)) = writable_within(&sources)? {
            return Err(refused(format!(
                "cannot show {}: {} is mounted in it, which a sandbox may leave writable that makes the folder alone read-only; mount it read-only, or show another folder",
                source.display(),
                place.display()
            )));
        }
        for (index, bind) in binds.iter().enumerate() {
            let word = if bind.read_only {
                "read-source"
            } else {
                "write-source"
            };
            let (source, target) = (bind.source.display(), bind.target.display());
            if !way.uses(word) {
                return Err(refused(format!(
                    "the template has no {{{word}}}, and so no way to show {source}"
                )));
            }
            // Shallow targets come first.
            let mut above = binds.iter().take(index);
            let other = above.find(|above| {
                above.read_only != bind.read_only && bind.target.starts_with(&above.target)
            });
            if let Some(other) = other.filter(|_| !way.keeps_order()) {
                return Err(refused(format!(
                    "cannot show {source} at {target}: it lies in {}, one is to be read and the other to be written to, and the template names such not beside one another, and so in no order",
                    other.target.display()
                )));
            }
            let mut covered = plan.tree.covered.iter();
            if let Some(place) = covered.find(|it| it.starts_with(&bind.target)) {
                return Err(refused(format!(
                    "cannot show {source}: a template cannot cover {} in it, which no workload may see; show another folder",
                    place.display()
                )));
            }
        }
        match plan.job.secrets.first() {
            Some(secret) => Err(refused(format!(
                "a template has no way to show the secret {}",
                secret.name
            ))),
            None => Ok(()),
        }
    }

    /// Makes the folder of a launch, with all that the document says is in it.
    fn furnish(&self, way: &Way, values: &Values, scratch: &mut Scratch) -> Result<(), String> {
        if !way.uses("scratch") && self.folders.is_empty() && way.files.is_empty() {
            return Ok(());
        }
        let failed = |name: &str, why: &dyn std::fmt::Display| {
            format!("cannot make {name} of the runtime {}: {why}", self.id)
        };
        scratch
            .make()
            .map_err(|error| failed("the folder", &error))?;
        for name in &self.folders {
            for (of, place) in values.filled([name.as_str()]) {
                let place = Path::new(OsStr::from_bytes(&place));
                // What is to be shown there may be a file.
                let source = of.and_then(|(_, row)| row.first());
                let is_file = source.is_some_and(|it| Path::new(OsStr::from_bytes(it)).is_file());
                let made = if is_file {
                    scratch.file(place, b"")
                } else {
                    scratch.folder(place)
                };
                made.map_err(|error| failed(name, &error))?;
            }
        }
        for (name, content) in &way.files {
            let content = values.file(content).map_err(|error| failed(name, &error))?;
            scratch
                .file(Path::new(name), &content)
                .map_err(|error| failed(name, &error))?;
        }
        Ok(())
    }
}

/// A mount below one of these folders that can be written to.
fn writable_within<'s>(sources: &[&'s Path]) -> Result<Option<(&'s Path, PathBuf)>, LaunchError> {
    if sources.is_empty() {
        return Ok(None);
    }
    let path = Path::new("/proc/self/mountinfo");
    let mounts = mounts::read(path).map_err(|error| LaunchError::Step {
        what: format!("cannot read {}: {error}", path.display()),
    })?;
    Ok(sources.iter().find_map(|source| {
        let mut below = mounts::below(&mounts, source);
        let found = below.find(|mount| mount.target != **source && !mount.has("ro"))?;
        Some((*source, found.target.clone()))
    }))
}

impl Way {
    /// The command line of a launch.
    fn words(&self, values: &Values) -> Vec<OsString> {
        let words = values.words(&self.command).into_iter();
        words.map(OsString::from_vec).collect()
    }

    /// Whether the program that is started is not the workload's.
    fn has_program(&self) -> bool {
        self.command.first().is_some_and(|first| first != PROGRAM)
    }

    /// Whether it shows the folders that it is asked to show, and no others.
    fn shows_folders(&self) -> bool {
        self.uses("read-source")
    }
}

impl Runtime for Template {
    fn id(&self) -> &str {
        &self.id
    }

    fn shows_workload(&self) -> bool {
        self.way.shows_folders()
    }

    /// What a launcher makes of the folder that it is started in is its own matter.
    fn starts_where_asked(&self) -> bool {
        self.way.uses("workdir") || !self.way.has_program()
    }

    fn version(&self) -> String {
        let version = match self.said() {
            None => &self.version,
            Some(Ok(version)) => version,
            Some(Err(_)) => "none",
        };
        self.named(version)
    }

    fn is_missing(&self) -> Option<Why> {
        let why = match self.program() {
            Some(Err(why)) => why,
            _ => self.said()?.as_ref().err()?,
        };
        let needs = match self.needs.as_slice() {
            [] => String::new(),
            needs => format!("; {} needs {}", self.id, needs.join("; ")),
        };
        Some(Why {
            reason: Reason::RUNTIME_MISSING,
            detail: Some(format!("{why}{needs}")),
        })
    }

    /// What a launch would refuse.
    fn try_here(&self, plan: &Plan) -> Result<(), LaunchError> {
        match self.way(&plan.job) {
            Some(way) => Self::refuse_what_is_not_shown(way, plan),
            None => Ok(()),
        }
    }

    fn calibration(&self) -> Option<Vec<u16>> {
        if self.calibration.is_empty() {
            return None;
        }
        let numbers = self.calibration.iter().filter_map(|name| {
            let number = Architecture::native()?.number(name)?;
            u16::try_from(number).ok()
        });
        Some(numbers.collect())
    }

    /// What the document says; but for a limit that the policy does not set.
    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        if job.leaves_out(control) {
            let reason = match self.way(job) {
                Some(_) => Reason::ABLATED,
                None => Reason::ABLATION_NOT_POSSIBLE,
            };
            return Answer::Cannot(reason.into());
        }
        let Some(claim) = self.declares.get(&control) else {
            return Answer::Cannot(Reason::NOT_IN_TEMPLATE.into());
        };
        let way = self.way(job).unwrap_or(&self.way);
        let asked = Asked {
            way,
            calibration: !self.calibration.is_empty(),
            values: &Self::limits(policy),
            policy,
            job,
        };
        if let Some(why) = asked.unmet(control) {
            return Answer::Cannot(why);
        }
        let intent = Intent::by(claim.mechanism.clone());
        let Some(value) = &claim.value else {
            return Answer::Intends(intent);
        };
        match Self::limits(policy).text(value) {
            Some(value) => Answer::Intends(intent.limited(value)),
            None => Answer::Cannot(match policy.limit_of(control) {
                // It does name one, which these words cannot say.
                Some((field, Some(limit))) => {
                    asked::why(format!("{field} {limit} cannot be said by {value}"))
                }
                _ => Reason::POLICY_SETS_NO_LIMIT.into(),
            }),
        }
    }

    fn environment(&self, policy: &Policy, job: &Job) -> Vec<(OsString, OsString)> {
        match self.way(job).map(|way| way.environment) {
            Some(Environment::Inherit) => {
                let mut all = job.caller_environment.clone();
                all.sort();
                all
            }
            Some(Environment::Clear) | None => crate::plan::environment(policy, job),
        }
    }

    fn cwd(&self, tree: &Tree, job: &Job) -> PathBuf {
        match self.way(job) {
            Some(way) if way.uses("workdir") => tree.cwd(job),
            Some(way) if way.shows_folders() => "/".into(),
            _ => launch::callers_folder(job),
        }
    }

    fn begin(&self, _: &Policy, _: &Job, streams: Streams) -> Result<Begun, LaunchError> {
        launch::begin(0, streams, |_| Ok(()))
    }

    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        let Some(way) = self.way(&plan.job) else {
            let control = plan.job.ablate.map_or("none", Control::as_str);
            let (id, reason) = (&self.id, Reason::ABLATION_NOT_POSSIBLE);
            return Err(LaunchError::Step {
                what: format!(
                    "the template {id} says nothing of a way without {control}: {reason}"
                ),
            });
        };
        Self::refuse_what_is_not_shown(way, plan)?;
        if let Some(why) = self.is_missing() {
            return Err(LaunchError::Step {
                what: why.to_string(),
            });
        }
        let random = random_bytes().map_err(|error| LaunchError::Step {
            what: error.to_string(),
        })?;
        let mut scratch = Scratch::new(random);
        let values = Self::values(plan, &scratch);
        self.furnish(way, &values, &mut scratch)
            .map_err(|what| LaunchError::Step { what })?;
        let failed = |what| LaunchError::Step { what };
        let mut command = way.words(&values);
        if way.has_program() {
            command = self.executed(command).map_err(failed)?;
        }
        let cleanup = self.cleanup.iter().map(|command| {
            let words = values.words(command).into_iter();
            self.executed(words.map(OsString::from_vec).collect())
        });
        let cleanup = cleanup.collect::<Result<_, _>>().map_err(failed)?;
        let mut program = ProgramSpec {
            argv: command.iter().map(|word| word.clone().into_vec()).collect(),
            ..launch::program(plan)
        };
        let mut environment = plan.environment.clone();
        if way.is_clear() && way.has_program() && way.uses("value") {
            // The workload's variables go in by a file; none of them (LD_PRELOAD, PATH) is to act on the launcher.
            environment = std::env::var_os("PATH")
                .map(|path| vec![("PATH".into(), path)])
                .unwrap_or_default();
            program.environment = launch::as_words(&environment);
        }
        if way.shows_folders() {
            // Where the workload starts is no folder of the launcher's.
            program.cwd = plan.job.caller_cwd.clone().unwrap_or_else(|| "/".into());
        }
        let recorded = values.without_variables();
        let files = way.files.iter().map(|(name, content)| {
            let content = recorded.file(content).map_err(|error| error.to_string())?;
            Ok(format!("{name}: {}", escape_bytes(&content)))
        });
        let files = files.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let spec = launch::bare(plan, program);
        let mut begun = begun?;
        scratch.arm(cleanup, environment);
        let init = launch::build(
            &mut begun,
            &spec,
            (&[], plan.job.caller_terminal.as_deref()),
            meanwhile,
            |_, _| {},
        )?;
        let found = launch::found(plan, init.report.program.as_ref());
        let mut runtime_sha256 = None;
        let program = match (found, way.has_program()) {
            (found, false) => found,
            (Program::Found { sha256, .. }, true) => {
                runtime_sha256 = sha256;
                // Where the runtime finds it, and whether it does, is its own matter.
                let asked = plan.job.argv.first();
                let asked = asked.map(|name| escape_bytes(name.as_bytes()));
                Program::Found {
                    path: asked.unwrap_or_default(),
                    sha256: None,
                }
            }
            // Not the workload's fault.
            (Program::Unusable { path, errno, .. }, true) => {
                let is_found_out = matches!(
                    init.report.program,
                    Some(ProgramReport::Unusable { reason, .. }) if reason != NotExecuted::LaunchFailed
                );
                let first = command.first().map(|word| escape_bytes(word.as_bytes()));
                let path = match first.filter(|_| is_found_out) {
                    Some(first) => {
                        let why = errno.map(io::Error::from_raw_os_error);
                        let why = why.map(|error| crate::sys::errno_name(&error));
                        let why = why.unwrap_or_default();
                        format!("the program {first} of the runtime {}: {why}", self.id)
                    }
                    None => path,
                };
                Program::Unusable {
                    path,
                    reason: NotExecuted::LaunchFailed,
                    errno,
                }
            }
        };
        let mut effect = Effect::new(program);
        effect.runtime_sha256 = runtime_sha256;
        let words = command.iter().map(OsString::as_os_str);
        effect.launch = words.map(OsStr::as_bytes).map(escape_bytes).collect();
        effect.launch.extend(files);
        effect.key_reachable = true;
        // Of a program of the runtime's nobody says as whom it starts the workload.
        effect.host_uid = (!way.has_program())
            .then(|| super::read_back::uid_of(init.pid))
            .flatten();
        for (control, intent) in &plan.intended {
            effect.declare(intent.declare(*control));
        }
        Ok(Launch {
            effect,
            init: init.pidfd,
            init_pid: init.pid,
            first: None,
            control: init.control,
            terminal: init.terminal,
            workspace: None,
            leaving: None,
            group: None,
            held: vec![Box::new(scratch)],
        })
    }
}

#[cfg(test)]
mod tests;
