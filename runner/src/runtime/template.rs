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

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use ledger::bytes::canon::escape_bytes;
use ledger::facts::control::Control;
use ledger::facts::execution::NotExecuted;
use ledger::facts::policy::Policy;
use serde::Deserialize;

use super::document::list_for_object;
use super::launch;
use crate::init::wire::{ProgramReport, ProgramSpec};
use crate::plan::{
    Answer, Begun, Effect, Intent, Job, Launch, LaunchError, Plan, Program, Reason, Runtime,
    Streams, Tree,
};

/// Longest document, in bytes.
const MAX_DOCUMENT: u64 = 256 << 10;
/// What of a document is an object; `*` is each.
const OBJECTS: [&[&str]; 3] = [&[], &["declares", "*"], &["ablations", "*"]];
/// Stands for the workload's program.
const PROGRAM: &str = "{program}";
/// Stands for the workload's arguments, a word each.
const ARGUMENTS: &str = "{arguments}";
/// Names of the runtimes that are built in.
const TAKEN: [&str; 6] = ["auto", "embedded", "native", "bwrap", "unshare", "wasi"];

/// A runtime that a document describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    id: String,
    version: String,
    declares: BTreeMap<Control, Claim>,
    way: Way,
    ablations: BTreeMap<Control, Way>,
}

/// What is said of one control.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    mechanism: String,
    value: Option<String>,
}

/// How the workload is started.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    command: Vec<String>,
    environment: Environment,
}

/// What the command's environment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Environment {
    /// What the policy says.
    #[default]
    Clear,
    /// All that the caller has.
    Inherit,
}

/// The document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    id: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "for whoever reads the document")]
    description: Option<String>,
    declares: Vec<DeclaresEntry>,
    command: Vec<String>,
    #[serde(default)]
    environment: Environment,
    #[serde(default)]
    ablations: BTreeMap<Control, AblationEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaresEntry {
    control: Control,
    mechanism: String,
    #[serde(default)]
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AblationEntry {
    #[serde(default)]
    command: Option<Vec<String>>,
    #[serde(default)]
    environment: Option<Environment>,
}

/// Why a document describes no runtime.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ReadTemplateError {
    /// It cannot be read.
    #[error("cannot read the runtime template {path}", path = path.display())]
    #[diagnostic(code(runner::template::read))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too long.
    #[error("{path} has more than {MAX_DOCUMENT} bytes, which no runtime template has", path = path.display())]
    #[diagnostic(code(runner::template::too_long))]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It is not the JSON that it should be.
    #[error("{path}: {source}", path = path.display())]
    #[diagnostic(
        code(runner::template::form),
        help("schema/runtime.schema.json says what a runtime template looks like")
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// Where and what.
        source: serde_json::Error,
    },
    /// A field says something that cannot be.
    #[error("{path}: {field}: {what}", path = path.display())]
    #[diagnostic(
        code(runner::template::field),
        help("docs/runtimes.md describes each field")
    )]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What was found and what was expected.
        what: String,
    },
}

impl Template {
    /// Reads a document.
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be.
    pub fn load(path: &Path) -> Result<Self, ReadTemplateError> {
        use std::io::Read as _;
        let failed = |source| ReadTemplateError::Read {
            path: path.to_owned(),
            source,
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut text = Vec::new();
        file.take(MAX_DOCUMENT + 1)
            .read_to_end(&mut text)
            .map_err(failed)?;
        if text.len() as u64 > MAX_DOCUMENT {
            return Err(ReadTemplateError::TooLong {
                path: path.to_owned(),
            });
        }
        Self::parse(path, &text)
    }

    /// Reads the text of a document; `path` is for messages.
    ///
    /// # Errors
    /// It says something that cannot be.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, ReadTemplateError> {
        let lists = std::str::from_utf8(text)
            .ok()
            .and_then(|text| list_for_object(text, &OBJECTS));
        if lists.is_some() {
            return Err(ReadTemplateError::Form {
                path: path.to_owned(),
                source: serde::de::Error::custom("found a list, expected an object"),
            });
        }
        let document: Document =
            serde_json::from_slice(text).map_err(|source| ReadTemplateError::Form {
                path: path.to_owned(),
                source,
            })?;
        check(document).map_err(|(field, what)| ReadTemplateError::Field {
            path: path.to_owned(),
            field,
            what,
        })
    }

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
}

/// A field and what is wrong with it.
type Wrong = (String, String);

fn check(document: Document) -> Result<Template, Wrong> {
    let wrong = |field: &str, what: String| Err((field.to_owned(), what));
    let id = document.id;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = id
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    if !begins || id.len() > 64 || !id.bytes().all(is_name) {
        let expected = "expected a letter, then letters, digits and `-`, all small, at most 64";
        return wrong("id", format!("{id:?}; {expected}"));
    }
    if TAKEN.contains(&id.as_str()) {
        return wrong("id", format!("{id:?} is a runtime that is built in"));
    }
    let version = document.version.unwrap_or_else(|| "0".to_owned());
    if version.is_empty() || version.len() > 64 || version.chars().any(char::is_control) {
        return wrong(
            "version",
            "expected 1 to 64 printable characters".to_owned(),
        );
    }
    let mut declares = BTreeMap::new();
    for entry in document.declares {
        let texts = [Some(&entry.mechanism), entry.value.as_ref()];
        for text in texts.into_iter().flatten() {
            if text.is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
                let field = format!("declares, {}", entry.control);
                return wrong(&field, "expected 1 to 200 printable characters".to_owned());
            }
        }
        let claim = Claim {
            mechanism: entry.mechanism,
            value: entry.value,
        };
        if declares.insert(entry.control, claim).is_some() {
            return wrong("declares", format!("{} stands there twice", entry.control));
        }
    }
    check_command("command", &document.command)?;
    let way = Way {
        command: document.command,
        environment: document.environment,
    };
    let mut ablations = BTreeMap::new();
    for (control, entry) in document.ablations {
        let field = format!("ablations, {control}");
        if entry.command.is_none() && entry.environment.is_none() {
            return wrong(&field, "expected `command` or `environment`".to_owned());
        }
        if let Some(command) = &entry.command {
            check_command(&field, command)?;
        }
        let other = Way {
            command: entry.command.unwrap_or_else(|| way.command.clone()),
            environment: entry.environment.unwrap_or(way.environment),
        };
        ablations.insert(control, other);
    }
    Ok(Template {
        id,
        version,
        declares,
        way,
        ablations,
    })
}

fn check_command(field: &str, command: &[String]) -> Result<(), Wrong> {
    let wrong = |what: String| Err((field.to_owned(), what));
    if command
        .first()
        .is_none_or(|first| first.is_empty() || first == ARGUMENTS)
    {
        return wrong("expected a program as its first word".to_owned());
    }
    for word in command {
        let is_placeholder = word.starts_with('{') && word.ends_with('}');
        if is_placeholder && word != PROGRAM && word != ARGUMENTS {
            return wrong(format!("{word}; expected {PROGRAM} or {ARGUMENTS}"));
        }
        if word.contains('\0') {
            return wrong("a word holds a zero byte".to_owned());
        }
    }
    Ok(())
}

impl Way {
    /// The command line of a workload.
    fn command(&self, argv: &[OsString]) -> Vec<OsString> {
        let (program, arguments) = match argv.split_first() {
            Some((program, arguments)) => (Some(program), arguments),
            None => (None, argv),
        };
        let mut words = Vec::new();
        for word in &self.command {
            match word.as_str() {
                PROGRAM => words.extend(program.cloned()),
                ARGUMENTS => words.extend(arguments.iter().cloned()),
                word => words.push(word.into()),
            }
        }
        words
    }

    /// Whether the program that is started is not the workload's.
    fn has_program(&self) -> bool {
        self.command.first().is_some_and(|first| first != PROGRAM)
    }
}

impl Runtime for Template {
    fn id(&self) -> &str {
        &self.id
    }

    fn shows_workload(&self) -> bool {
        false
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    /// The same for every control and every policy: what the document says.
    fn answer(&self, control: Control, _: &Policy, job: &Job) -> Answer {
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
        let intent = Intent::by(claim.mechanism.clone());
        Answer::Intends(match &claim.value {
            Some(value) => intent.limited(value.clone()),
            None => intent,
        })
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

    fn cwd(&self, _: &Tree, job: &Job) -> PathBuf {
        launch::callers_folder(job)
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
        let command = way.command(&plan.job.argv);
        let usual = launch::program(plan);
        let program = ProgramSpec {
            argv: command.iter().map(|word| word.clone().into_vec()).collect(),
            ..usual
        };
        let spec = launch::bare(plan, program);
        let init = launch::build(
            &mut begun?,
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
        effect.launch = command
            .iter()
            .map(|word| escape_bytes(word.as_bytes()))
            .collect();
        effect.key_reachable = true;
        effect.host_uid = super::read_back::uid_of(init.pid);
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
            held: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
