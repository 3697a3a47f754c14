//! From the text of a policy to its value, with every mistake on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use miette::NamedSource;

use super::check::{Contradiction, contradictions};
use super::json::{self, Field, Node, Value};
use super::nearest::nearest;
use super::problem::{Problem, ProblemCode, ReadPolicyError, line_and_column};
use super::{
    Channel, Devices, Enforcement, Filesystem, Mode, Nesting, Network, NetworkMode, Policy,
    Process, Resources, Root, Syscalls,
};
use crate::bytes::canon::U53;
use crate::facts::control::Control;

/// Longest policy document in bytes.
pub const MAX_POLICY_BYTES: usize = 1 << 20;

/// How many mistakes of one document are kept.
const MAX_PROBLEMS: usize = 100;

impl Policy {
    /// Reads a document; `name` is what errors call it, such as its path.
    ///
    /// # Errors
    /// It is not UTF-8, longer than [`MAX_POLICY_BYTES`], not JSON, or not a policy; the error has every
    /// mistake (the first hundred), each with its place.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, ReadPolicyError> {
        let text = match std::str::from_utf8(bytes) {
            _ if bytes.len() > MAX_POLICY_BYTES => {
                let message = format!(
                    "found a document of {} bytes, expected at most {MAX_POLICY_BYTES}",
                    bytes.len()
                );
                return Err(unreadable(name, ProblemCode::TooLong, "", message));
            }
            Ok(text) => text,
            Err(error) => {
                let (valid, _) = bytes
                    .split_at_checked(error.valid_up_to())
                    .unwrap_or_default();
                let message = format!(
                    "found a byte that is not UTF-8 at byte {}, expected JSON text",
                    error.valid_up_to()
                );
                let valid = String::from_utf8_lossy(valid);
                return Err(unreadable(name, ProblemCode::NotText, &valid, message));
            }
        };
        let mut reader = Reader::new();
        let policy = match json::parse(text) {
            Ok(node) => reader.policy(&node),
            Err(error) => {
                let found = text
                    .get(error.span.clone())
                    .filter(|found| !found.is_empty());
                let at_end = error.span.end == text.len();
                let message = match found {
                    Some(found) => format!(
                        "found {:?}, expected {}",
                        json::shorten(found),
                        error.expected
                    ),
                    None => format!("found nothing, expected {}", error.expected),
                };
                let help = at_end.then(|| "the document ends here".to_owned());
                reader.problem(ProblemCode::Syntax, error.span, message, help);
                None
            }
        };
        match policy {
            Some(policy) if reader.problems.is_empty() => Ok(policy),
            _ => Err(reader.finish(name, text)),
        }
    }
}

fn unreadable(name: &str, code: ProblemCode, text: &str, message: String) -> ReadPolicyError {
    let mut reader = Reader::new();
    reader.problem(code, text.len()..text.len(), message, None);
    reader.finish(name, text)
}

struct Found {
    code: ProblemCode,
    span: Range<usize>,
    message: String,
    help: Option<String>,
}

struct Reader {
    problems: Vec<Found>,
    /// Where each field stands, by path (`network.hosts[0]`).
    places: BTreeMap<String, Range<usize>>,
    /// Fields whose value was not understood: what depends on them is not judged.
    broken: BTreeSet<String>,
}

/// The fields of one object, by name.
struct Object<'a> {
    path: String,
    fields: BTreeMap<&'a str, &'a Node>,
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

impl Reader {
    fn new() -> Self {
        Self {
            problems: Vec::new(),
            places: BTreeMap::new(),
            broken: BTreeSet::new(),
        }
    }

    fn problem(
        &mut self,
        code: ProblemCode,
        span: Range<usize>,
        message: String,
        help: Option<String>,
    ) {
        self.problems.push(Found {
            code,
            span,
            message,
            help,
        });
    }

    fn finish(mut self, name: &str, text: &str) -> ReadPolicyError {
        self.problems
            .sort_by_key(|found| (found.span.start, found.span.end));
        self.problems.truncate(MAX_PROBLEMS);
        let source = Arc::new(NamedSource::new(name, text.to_owned()).with_language("JSON"));
        let problems = self.problems.into_iter().map(|found| {
            let (line, column) = line_and_column(text, found.span.start);
            let label = match found.message.split_once(", expected ") {
                Some((_, expected)) => format!("expected {expected}"),
                None => "here".to_owned(),
            };
            Problem {
                code: found.code,
                message: found.message,
                label,
                help: found.help,
                span: found.span,
                line,
                column,
                source: Arc::clone(&source),
            }
        });
        ReadPolicyError {
            name: name.to_owned(),
            problems: problems.collect(),
        }
    }

    fn wrong_type(&mut self, path: &str, node: &Node, expected: &str) {
        let of = if path.is_empty() {
            String::new()
        } else {
            format!(" for {path}")
        };
        let message = format!("found {}{of}, expected {expected}", node.value.found());
        self.problem(ProblemCode::WrongType, node.span.clone(), message, None);
        self.broken.insert(path.to_owned());
    }

    fn object<'a>(
        &mut self,
        path: &str,
        node: &'a Node,
        known: &[&'static str],
    ) -> Option<Object<'a>> {
        let Value::Object(fields) = &node.value else {
            self.wrong_type(path, node, "an object");
            return None;
        };
        let mut object = Object {
            path: path.to_owned(),
            fields: BTreeMap::new(),
        };
        for Field {
            name,
            name_span,
            node,
        } in fields
        {
            let field = join(path, name);
            if !known.contains(&name.as_str()) {
                let within = if path.is_empty() {
                    "a policy".to_owned()
                } else {
                    path.to_owned()
                };
                let message = format!(
                    "found the field {:?} in {within}, expected one of {}",
                    json::shorten(name),
                    known.join(", ")
                );
                let help = nearest(name, known.iter().copied())
                    .map(|near| format!("did you mean {near}?"));
                self.problem(ProblemCode::UnknownField, name_span.clone(), message, help);
            } else if object.fields.contains_key(name.as_str()) {
                let message = format!("found the field {name:?} again, expected it once");
                self.problem(
                    ProblemCode::DuplicateField,
                    name_span.clone(),
                    message,
                    None,
                );
                self.broken.insert(field);
            } else {
                self.places.insert(field, node.span.clone());
                object.fields.insert(name, node);
            }
        }
        Some(object)
    }

    fn items<'a>(
        &mut self,
        object: &Object<'a>,
        name: &str,
        of: &str,
    ) -> Option<(String, &'a [Node])> {
        let node = object.fields.get(name)?;
        let path = join(&object.path, name);
        let Value::List(items) = &node.value else {
            self.wrong_type(&path, node, &format!("a list of {of}"));
            return None;
        };
        Some((path, items))
    }

    /// A list of texts that each read as a `T`.
    fn list<T>(
        &mut self,
        object: &Object<'_>,
        name: &str,
        of: &str,
        mut read: impl FnMut(&mut Self, &str, &Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let (path, items) = self.items(object, name, of)?;
        let mut all = Vec::with_capacity(items.len());
        for node in items {
            let item = match &node.value {
                Value::Text(text) => read(self, text, node),
                _ => {
                    self.wrong_type(&format!("{path}[]"), node, "a text");
                    None
                }
            };
            match item {
                Some(item) => {
                    self.places
                        .insert(format!("{path}[{}]", all.len()), node.span.clone());
                    all.push(item);
                }
                // The list is incomplete, the other items are still judged.
                None => {
                    self.broken.insert(format!("{path}[]"));
                }
            }
        }
        Some(all)
    }

    fn texts(&mut self, object: &Object<'_>, name: &str, of: &str) -> Option<Vec<String>> {
        self.list(object, name, of, |_, text, _| Some(text.to_owned()))
    }

    fn parsed<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
        object: &Object<'_>,
        name: &str,
        of: &str,
    ) -> Option<Vec<T>> {
        self.list(object, name, of, |reader, text, node| {
            match text.parse::<T>() {
                Ok(item) => Some(item),
                Err(error) => {
                    reader.problem(
                        ProblemCode::BadValue,
                        node.span.clone(),
                        error.to_string(),
                        None,
                    );
                    None
                }
            }
        })
    }

    fn controls(&mut self, object: &Object<'_>, name: &str) -> Option<Vec<Control>> {
        let names = || Control::ALL.iter().map(|control| control.as_str());
        self.list(object, name, "controls", |reader, text, node| {
            let control = text.parse::<Control>().ok();
            if control.is_none() {
                let message = format!(
                    "found the control {:?}, expected one of {}",
                    json::shorten(text),
                    names().collect::<Vec<_>>().join(", ")
                );
                let help = nearest(text, names()).map(|near| format!("did you mean {near}?"));
                reader.problem(
                    ProblemCode::UnknownControl,
                    node.span.clone(),
                    message,
                    help,
                );
            }
            control
        })
    }

    fn text(&mut self, object: &Object<'_>, name: &str) -> Option<String> {
        let node = object.fields.get(name)?;
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => {
                self.wrong_type(&join(&object.path, name), node, "a text");
                None
            }
        }
    }

    fn word<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
        object: &Object<'_>,
        name: &str,
    ) -> Option<T> {
        let node = object.fields.get(name)?;
        let text = self.text(object, name)?;
        match text.parse::<T>() {
            Ok(word) => Some(word),
            Err(error) => {
                let message = error.to_string();
                self.problem(ProblemCode::UnknownWord, node.span.clone(), message, None);
                self.broken.insert(join(&object.path, name));
                None
            }
        }
    }

    fn flag(&mut self, object: &Object<'_>, name: &str) -> Option<bool> {
        let node = object.fields.get(name)?;
        match node.value {
            Value::Bool(flag) => Some(flag),
            _ => {
                self.wrong_type(&join(&object.path, name), node, "true or false");
                None
            }
        }
    }

    fn number(&mut self, object: &Object<'_>, name: &str, max: u64) -> Option<U53> {
        let node = object.fields.get(name)?;
        let number = match &node.value {
            Value::Number(digits) => digits
                .parse()
                .ok()
                .filter(|number| *number <= max)
                .and_then(U53::new),
            _ => None,
        };
        if number.is_none() {
            let expected = format!("a whole number from 1 to {max}");
            self.wrong_type(&join(&object.path, name), node, &expected);
        }
        number
    }

    fn limit(&mut self, object: &Object<'_>, name: &str) -> Option<U53> {
        self.number(object, name, U53::MAX.value())
    }

    fn unix_id(&mut self, object: &Object<'_>, name: &str) -> Option<u32> {
        let node = object.fields.get(name)?;
        let id = match &node.value {
            Value::Number(digits) => digits.parse().ok(),
            _ => None,
        };
        if id.is_none() {
            let expected = format!("a numeric id from 0 to {}", u32::MAX - 1);
            self.wrong_type(&join(&object.path, name), node, &expected);
        }
        id
    }

    fn section<'a>(
        &mut self,
        object: &Object<'a>,
        name: &str,
        known: &[&'static str],
    ) -> Option<Object<'a>> {
        let node = object.fields.get(name)?;
        self.object(&join(&object.path, name), node, known)
    }

    fn policy(&mut self, node: &Node) -> Option<Policy> {
        const FIELDS: &[&str] = &[
            "id",
            "description",
            "enforcement",
            "filesystem",
            "network",
            "resources",
            "process",
            "syscalls",
            "devices",
            "nesting",
        ];
        let document = self.object("", node, FIELDS)?;
        for name in ["id", "enforcement"] {
            if !document.fields.contains_key(name) {
                let message = format!("found a policy without {name:?}, expected that field");
                // The brace that opens the document, not all of it.
                let span = node.span.start..node.span.start + 1;
                self.problem(ProblemCode::MissingField, span, message, None);
                self.broken.insert(name.to_owned());
            }
        }
        let policy = Policy {
            description: self.text(&document, "description").unwrap_or_default(),
            devices: self.devices(&document),
            enforcement: self.enforcement(&document),
            filesystem: self.filesystem(&document),
            id: self.text(&document, "id").unwrap_or_default(),
            nesting: self.word(&document, "nesting").unwrap_or(Nesting::Deny),
            network: self.network(&document),
            process: self.process(&document),
            resources: self.resources(&document),
            syscalls: self.syscalls(&document),
        };
        for contradiction in contradictions(&policy) {
            self.contradiction(contradiction, node);
        }
        Some(policy)
    }

    /// A contradiction is reported unless one of its sides was not understood in the first place.
    fn contradiction(&mut self, found: Contradiction, document: &Node) {
        if self.is_broken(&found.field) || found.other.is_some_and(|other| self.is_broken(other)) {
            return;
        }
        let span = self
            .place_of(&found.field)
            .unwrap_or_else(|| document.span.clone());
        self.problem(found.code, span, found.message, found.help);
    }

    /// Whether the field, something around it or something within it was not understood.
    fn is_broken(&self, field: &str) -> bool {
        let within = |outer: &str, inner: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.broken
            .iter()
            .any(|broken| within(broken, field) || within(field, broken))
    }

    /// Where the field stands, or the nearest thing around it that is in the document.
    fn place_of(&self, field: &str) -> Option<Range<usize>> {
        let mut field = field;
        loop {
            if let Some(span) = self.places.get(field) {
                return Some(span.clone());
            }
            field = field.get(..field.rfind(['.', '['])?)?;
        }
    }

    fn enforcement(&mut self, document: &Object<'_>) -> Enforcement {
        const FIELDS: &[&str] = &["mode", "requiredControls", "wantedControls"];
        let Some(object) = self.section(document, "enforcement", FIELDS) else {
            return Enforcement::default();
        };
        Enforcement {
            mode: self.word(&object, "mode").unwrap_or(Mode::Strict),
            required_controls: self
                .controls(&object, "requiredControls")
                .unwrap_or_default(),
            wanted_controls: self.controls(&object, "wantedControls").unwrap_or_default(),
        }
    }

    fn filesystem(&mut self, document: &Object<'_>) -> Filesystem {
        const FIELDS: &[&str] = &[
            "root",
            "path",
            "readOnly",
            "writable",
            "protect",
            "maxWorkspaceMb",
            "followSymlinks",
        ];
        let default = Filesystem::default();
        let Some(object) = self.section(document, "filesystem", FIELDS) else {
            return default;
        };
        const BIND: &str = "paths SRC or SRC:DST";
        Filesystem {
            follow_symlinks: self.flag(&object, "followSymlinks").unwrap_or(false),
            max_workspace_mb: self.limit(&object, "maxWorkspaceMb"),
            path: self.text(&object, "path"),
            protect: self
                .texts(&object, "protect", "paths")
                .unwrap_or(default.protect),
            read_only: self.parsed(&object, "readOnly", BIND).unwrap_or_default(),
            root: self.word(&object, "root").unwrap_or(Root::Ephemeral),
            writable: self.parsed(&object, "writable", BIND).unwrap_or_default(),
        }
    }

    fn network(&mut self, document: &Object<'_>) -> Network {
        const FIELDS: &[&str] = &["mode", "hosts", "channel", "dns"];
        let Some(object) = self.section(document, "network", FIELDS) else {
            return Network::default();
        };
        Network {
            channel: self.word::<Channel>(&object, "channel"),
            dns: self.flag(&object, "dns").unwrap_or(false),
            hosts: self
                .parsed(&object, "hosts", "host:port")
                .unwrap_or_default(),
            mode: self.word(&object, "mode").unwrap_or(NetworkMode::None),
        }
    }

    fn resources(&mut self, document: &Object<'_>) -> Resources {
        const FIELDS: &[&str] = &[
            "cpuMillis",
            "memoryMb",
            "processes",
            "timeoutMs",
            "openFiles",
            "outputBytes",
        ];
        let Some(object) = self.section(document, "resources", FIELDS) else {
            return Resources::default();
        };
        Resources {
            cpu_millis: self.limit(&object, "cpuMillis"),
            memory_mb: self.limit(&object, "memoryMb"),
            open_files: self.limit(&object, "openFiles"),
            output_bytes: self.limit(&object, "outputBytes"),
            processes: self.limit(&object, "processes"),
            timeout_ms: self.limit(&object, "timeoutMs"),
        }
    }

    fn process(&mut self, document: &Object<'_>) -> Process {
        const FIELDS: &[&str] = &[
            "capabilities",
            "environment",
            "allowedEnvironment",
            "user",
            "group",
        ];
        let Some(object) = self.section(document, "process", FIELDS) else {
            return Process::default();
        };
        Process {
            allowed_environment: self
                .texts(&object, "allowedEnvironment", "names")
                .unwrap_or_default(),
            capabilities: self
                .texts(&object, "capabilities", "names")
                .unwrap_or_default(),
            environment: self.environment(&object),
            group: self.unix_id(&object, "group"),
            user: self.unix_id(&object, "user"),
        }
    }

    fn environment(&mut self, process: &Object<'_>) -> BTreeMap<String, String> {
        let Some(node) = process.fields.get("environment") else {
            return BTreeMap::new();
        };
        let path = "process.environment";
        let Value::Object(fields) = &node.value else {
            self.wrong_type(path, node, "an object of names and texts");
            return BTreeMap::new();
        };
        let mut environment = BTreeMap::new();
        for Field {
            name,
            name_span,
            node,
        } in fields
        {
            let field = join(path, name);
            let Value::Text(value) = &node.value else {
                self.wrong_type(&field, node, "a text");
                continue;
            };
            if environment.insert(name.clone(), value.clone()).is_some() {
                let message = format!("found the variable {name:?} again, expected it once");
                self.problem(
                    ProblemCode::DuplicateField,
                    name_span.clone(),
                    message,
                    None,
                );
            }
            self.places.insert(field, name_span.clone());
        }
        environment
    }

    fn syscalls(&mut self, document: &Object<'_>) -> Syscalls {
        const FIELDS: &[&str] = &["allow", "deny", "profile"];
        let Some(object) = self.section(document, "syscalls", FIELDS) else {
            return Syscalls::default();
        };
        Syscalls {
            allow: self
                .texts(&object, "allow", "system calls")
                .unwrap_or_default(),
            deny: self
                .texts(&object, "deny", "system calls")
                .unwrap_or_default(),
            profile: self.text(&object, "profile"),
        }
    }

    fn devices(&mut self, document: &Object<'_>) -> Devices {
        let Some(object) = self.section(document, "devices", &["allow"]) else {
            return Devices::default();
        };
        Devices {
            allow: self
                .texts(&object, "allow", "paths below /dev")
                .unwrap_or_default(),
        }
    }
}
