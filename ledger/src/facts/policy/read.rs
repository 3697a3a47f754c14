//! From the text of a policy to its value, with every mistake on the way.

use std::collections::BTreeMap;

use super::check::contradictions;
use super::json::{self, Field, Node, Value};
use super::problem::{ProblemCode, ReadPolicyError};
use super::reader::{MAX_ITEMS, Object, Reader, join};
use super::{
    Channel, Devices, Enforcement, Filesystem, Mode, Nesting, Network, NetworkMode, Policy,
    Process, Resources, Root, Syscalls,
};

/// Longest policy document in bytes.
pub const MAX_POLICY_BYTES: usize = 1 << 20;

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
                let found = match text.get(error.span.clone()) {
                    Some(found) if !error.at_end => format!("{:?}", json::shorten(found)),
                    _ => "the end of the document".to_owned(),
                };
                let message = format!("found {found}, expected {}", error.expected);
                reader.problem(ProblemCode::Syntax, error.span, message, None);
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

impl Reader {
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
        if fields.len() > MAX_ITEMS {
            self.too_many(path, node, fields.len());
            return BTreeMap::new();
        }
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
