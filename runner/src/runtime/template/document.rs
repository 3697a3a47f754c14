//! The document that describes a runtime, and what in it cannot be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use ledger::facts::control::Control;
use ledger::facts::execution::RuntimeUsed;
use serde::Deserialize;
use serde_json::Value;

use super::words;

/// What of a document is an object; `*` is each of a list, `{}` each member.
pub(super) const OBJECTS: [&[&str]; 6] = [
    &[],
    &["declares", "*"],
    &["ablations", "{}"],
    &["ablations", "{}", "replace", "*"],
    &["flags", "*"],
    &["ran", "*"],
];
/// What is shown of the host, and where.
const SHOWN: [(&str, &str); 2] = [
    ("read-source", "read-target"),
    ("write-source", "write-target"),
];
/// Longest text of one control.
const MAX_TEXT: usize = 200;

/// What is said of one control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) mechanism: String,
    pub(super) value: Option<String>,
}

/// How the workload is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) command: Vec<String>,
    pub(super) environment: Environment,
    pub(super) files: BTreeMap<String, Value>,
}

/// What the command's environment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Environment {
    /// What the policy says.
    #[default]
    Clear,
    /// All that the caller has.
    Inherit,
}

/// The document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Document {
    id: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    version_command: Option<Vec<String>>,
    #[serde(default)]
    #[expect(dead_code, reason = "for whoever reads the document")]
    description: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "for whoever reads the document")]
    sources: Vec<String>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "for whoever reads the document")]
    ran: Vec<RanEntry>,
    declares: Vec<DeclaresEntry>,
    command: Vec<String>,
    #[serde(default)]
    environment: Environment,
    #[serde(default)]
    files: BTreeMap<String, Value>,
    #[serde(default)]
    folders: Vec<String>,
    #[serde(default)]
    cleanup: Vec<Vec<String>>,
    #[serde(default)]
    calibration: Vec<String>,
    #[serde(default)]
    flags: Vec<FlagEntry>,
    #[serde(default)]
    ablations: BTreeMap<Control, AblationEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RanEntry {
    #[expect(dead_code, reason = "for whoever reads the document")]
    version: String,
    #[expect(dead_code, reason = "for whoever reads the document")]
    on: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaresEntry {
    control: Control,
    mechanism: String,
    #[serde(default)]
    value: Option<String>,
}

/// Why something stands in the command or in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlagEntry {
    #[serde(default)]
    words: Vec<String>,
    #[serde(default)]
    at: Option<String>,
    reason: FlagReason,
    #[serde(default)]
    controls: Vec<Control>,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FlagReason {
    /// It applies a control.
    Control,
    /// It says what the vendor does anyway.
    VendorDefault,
    /// Nothing runs without it.
    MinimumToRun,
    /// It changes what is printed, and nothing else.
    OutputOnly,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AblationEntry {
    #[serde(default)]
    command: Option<Vec<String>>,
    #[serde(default)]
    environment: Option<Environment>,
    #[serde(default)]
    replace: Vec<ReplaceEntry>,
    #[serde(default)]
    remove: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplaceEntry {
    words: Vec<String>,
    #[serde(default)]
    by: Vec<String>,
}

/// What is left of a document in which nothing is wrong.
#[derive(Debug)]
pub(super) struct Sound {
    pub(super) id: String,
    pub(super) version: Option<String>,
    pub(super) version_command: Option<Vec<String>>,
    pub(super) needs: Vec<String>,
    pub(super) declares: BTreeMap<Control, Claim>,
    pub(super) way: Way,
    pub(super) folders: Vec<String>,
    pub(super) cleanup: Vec<Vec<String>>,
    pub(super) calibration: Vec<String>,
    pub(super) ablations: BTreeMap<Control, Way>,
}

/// A field and what is wrong with it.
type Wrong = (String, String);

fn wrong<T>(field: &str, what: impl Into<String>) -> Result<T, Wrong> {
    Err((field.to_owned(), what.into()))
}

impl Document {
    /// Looks at everything that is said.
    pub(super) fn check(self) -> Result<Sound, Wrong> {
        check_id(&self.id)?;
        check_version(self.version.as_deref(), self.version_command.as_deref())?;
        let declares = claims(self.declares)?;
        check_command("command", &self.command)?;
        if let Some(asked) = self
            .version_command
            .as_ref()
            .and_then(|words| words.first())
            && self.command.first() != Some(asked)
        {
            let launched = self.command.first().map_or("", String::as_str);
            return wrong(
                "versionCommand",
                format!("found {asked:?}, expected the program that is launched, {launched:?}"),
            );
        }
        for (name, content) in &self.files {
            check_name("files", name)?;
            let field = format!("files, {name}");
            for text in words::texts(content) {
                check_words(&field, [text])?;
            }
            for name in words::names(content) {
                check_plain(&field, name)?;
            }
            if let Some((name, what)) = words::astray(content, None) {
                return wrong(&field, format!("found {{{name}}} {what}"));
            }
        }
        for name in &self.folders {
            let place = name.replace("{read-target}", "/t");
            check_name("folders", &place.replace("{write-target}", "/t"))?;
            check_words("folders", [name.as_str()])?;
        }
        check_places(self.files.keys(), &self.folders)?;
        for command in &self.cleanup {
            check_command("cleanup", command)?;
        }
        for name in &self.calibration {
            if ledger::facts::policy::syscalls::lookup(name).is_none() {
                let what = format!("found {name:?}, expected the name of a system call");
                return wrong("calibration", what);
            }
        }
        let way = Way {
            command: self.command,
            environment: self.environment,
            files: self.files,
        };
        way.check_program("command")?;
        way.check_shown("command")?;
        check_flags(&way, &declares, &self.flags)?;
        let mut ablations = BTreeMap::new();
        for (control, entry) in self.ablations {
            ablations.insert(control, way.without(control, entry)?);
        }
        Ok(Sound {
            id: self.id,
            version: self.version,
            version_command: self.version_command,
            needs: self.needs,
            declares,
            way,
            folders: self.folders,
            cleanup: self.cleanup,
            calibration: self.calibration,
            ablations,
        })
    }
}

fn check_id(id: &str) -> Result<(), Wrong> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = id
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    if !begins || id.len() > 64 || !id.bytes().all(is_name) {
        let expected = "expected a letter, then letters, digits and `-`, all small, at most 64";
        return wrong("id", format!("found {id:?}, {expected}"));
    }
    if id == "auto" || RuntimeUsed::BUILT_IN.contains(&id) {
        let what = format!("found {id:?}, a runtime that is built in; expected another name");
        return wrong("id", what);
    }
    Ok(())
}

fn check_version(version: Option<&str>, command: Option<&[String]>) -> Result<(), Wrong> {
    let is_good = |version: &str| {
        !version.is_empty() && version.len() <= 64 && !version.chars().any(char::is_control)
    };
    if let Some(version) = version.filter(|version| !is_good(version)) {
        let what = format!("found {version:?}, expected 1 to 64 printable characters");
        return wrong("version", what);
    }
    if let Some(version) = version {
        check_plain("version", version)?;
        if version.contains(RuntimeUsed::TEMPLATE) {
            let what = format!(
                "found {:?} in it, expected a version",
                RuntimeUsed::TEMPLATE
            );
            return wrong("version", what);
        }
    }
    for word in command.into_iter().flatten() {
        check_plain("versionCommand", word)?;
    }
    let Some(command) = command else {
        return Ok(());
    };
    if version.is_some() {
        return wrong(
            "versionCommand",
            "found `version` beside it; expected one of them",
        );
    }
    let is_empty = command.first().is_none_or(String::is_empty);
    if is_empty || command.iter().any(|word| word.contains('\0')) {
        let what = format!("found {command:?}, expected a program and its arguments");
        return wrong("versionCommand", what);
    }
    Ok(())
}

fn claims(entries: Vec<DeclaresEntry>) -> Result<BTreeMap<Control, Claim>, Wrong> {
    let mut declares = BTreeMap::new();
    for entry in entries {
        let field = format!("declares, {}", entry.control);
        let texts = [Some(&entry.mechanism), entry.value.as_ref()];
        for text in texts.into_iter().flatten() {
            if text.is_empty() || text.len() > MAX_TEXT || text.chars().any(char::is_control) {
                let what = format!("found {text:?}, expected 1 to 200 printable characters");
                return wrong(&field, what);
            }
        }
        check_plain(&field, &entry.mechanism)?;
        if let Some(value) = &entry.value {
            check_words(&field, [value.as_str()])?;
            if let Some(name) = words::placeholders(value).find(|name| !words::is_of_policy(name)) {
                let expected = "expected a limit or an id of the policy";
                return wrong(&field, format!("found {{{name}}} in `value`, {expected}"));
            }
        }
        let claim = Claim {
            mechanism: entry.mechanism,
            value: entry.value,
        };
        if declares.insert(entry.control, claim).is_some() {
            let what = format!("found {} twice, expected it once", entry.control);
            return wrong("declares", what);
        }
    }
    Ok(declares)
}

fn check_words<'a>(field: &str, all: impl IntoIterator<Item = &'a str>) -> Result<(), Wrong> {
    match all.into_iter().find_map(words::problem) {
        Some(problem) => wrong(field, problem),
        None => Ok(()),
    }
}

fn check_command(field: &str, command: &[String]) -> Result<(), Wrong> {
    let is_none = |first: &String| first.is_empty() || first == "{arguments}";
    if command.first().is_none_or(is_none) {
        let found = match command.first() {
            Some(first) => format!("{first:?}"),
            None => "no words".to_owned(),
        };
        let what = format!("found {found}, expected a program as its first word");
        return wrong(field, what);
    }
    for word in command {
        if words::placeholders(word).any(|name| name == "value") {
            let expected = "expected values in files alone, for words can be read by others and stand in records";
            return wrong(
                field,
                format!("found {{value}} in the word {word:?}, {expected}"),
            );
        }
    }
    check_words(field, command.iter().map(String::as_str))
}

/// A text in which nothing stands for something else.
fn check_plain(field: &str, text: &str) -> Result<(), Wrong> {
    match words::unknown(text).or_else(|| words::placeholders(text).next()) {
        Some(name) => wrong(
            field,
            format!("found {{{name}}} in {text:?}, expected no placeholder here"),
        ),
        None => Ok(()),
    }
}

/// Nothing is made twice, and nothing below a file.
fn check_places<'a>(
    files: impl Iterator<Item = &'a String>,
    folders: &'a [String],
) -> Result<(), Wrong> {
    let mut all: Vec<(&Path, &str, bool)> = files
        .map(|name| (Path::new(name), "files", true))
        .chain(
            folders
                .iter()
                .map(|name| (Path::new(name), "folders", false)),
        )
        .collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    for (at, (path, _, is_file)) in all.iter().enumerate() {
        for (other, field, _) in all.iter().skip(at + 1) {
            let found = (path.display(), other.display());
            if path == other {
                let what = format!("found {} and {}, expected one place once", found.0, found.1);
                return wrong(field, what);
            }
            if *is_file && other.starts_with(path) {
                let what = format!(
                    "found {} below the file {}, expected a folder above it",
                    found.1, found.0
                );
                return wrong(field, what);
            }
        }
    }
    Ok(())
}

/// A path below the folder of one launch.
fn check_name(field: &str, name: &str) -> Result<(), Wrong> {
    let mut parts = Path::new(name).components();
    let is_plain = parts.all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !is_plain || name.contains('\0') {
        let expected = "expected a path without `..` below the folder of a launch";
        return wrong(field, format!("found {name:?}; {expected}"));
    }
    check_plain(field, name)
}

/// Each flag is there; and where reasons are given, every word that looks like one has its own.
fn check_flags(
    way: &Way,
    declares: &BTreeMap<Control, Claim>,
    flags: &[FlagEntry],
) -> Result<(), Wrong> {
    let mut reasoned = BTreeSet::new();
    for flag in flags {
        let field = match &flag.at {
            Some(at) => format!("flags, {at}"),
            None => format!("flags, {}", flag.words.join(" ")),
        };
        match &flag.at {
            Some(_) if !flag.words.is_empty() => {
                let what = "found `words` and `at`, expected one of them";
                return wrong(&field, what);
            }
            Some(at) => {
                let mut files = way.files.clone();
                place(&mut files, at).map_err(|what| (field.clone(), what))?;
            }
            None => {
                let at = find(&way.command, &flag.words).map_err(|what| (field.clone(), what))?;
                reasoned.extend(at..at + flag.words.len());
            }
        }
        if flag.why.trim().is_empty() {
            return wrong(&field, "found nothing in `why`, expected a reason");
        }
        if (flag.reason == FlagReason::Control) == flag.controls.is_empty() {
            let (found, expected) = if flag.controls.is_empty() {
                ("no `controls`", "those that it applies")
            } else {
                ("`controls`", "none where the reason is not `control`")
            };
            return wrong(&field, format!("found {found}, expected {expected}"));
        }
        if let Some(control) = flag.controls.iter().find(|one| !declares.contains_key(one)) {
            let what =
                format!("found {control}, which stands not in `declares`; expected one that does");
            return wrong(&field, what);
        }
    }
    let options = way.command.iter().take_while(|word| *word != "--");
    let options = options.enumerate().find(|(at, word)| {
        let is_option = word.len() > 1 && word.starts_with('-');
        is_option && !reasoned.contains(at)
    });
    match options {
        Some((_, word)) if !flags.is_empty() => wrong(
            "flags",
            format!("found none for {word}, expected a reason for each option"),
        ),
        _ => Ok(()),
    }
}

/// Where these words stand one after the other: exactly once.
fn find(command: &[String], sought: &[String]) -> Result<usize, String> {
    if sought.is_empty() {
        return Err("found no words, expected some of the command".to_owned());
    }
    let mut found = command
        .windows(sought.len())
        .enumerate()
        .filter(|(_, words)| *words == sought)
        .map(|(at, _)| at);
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => Err("found nowhere in the command; expected once".to_owned()),
        (Some(_), Some(_)) => Err("found twice in the command; expected once".to_owned()),
    }
}

/// A place in a file: `config.json#/linux/seccomp` (RFC 6901 behind the `#`).
fn place<'f>(files: &'f mut BTreeMap<String, Value>, at: &str) -> Result<&'f mut Value, String> {
    let expected = "expected FILE#/PLACE, a place in a file of `files`";
    let (file, pointer) = at
        .split_once('#')
        .ok_or_else(|| format!("found {at:?}, {expected}"))?;
    let found = files
        .get_mut(file)
        .and_then(|file| file.pointer_mut(pointer));
    found.ok_or_else(|| format!("found {at:?}, which is not there; {expected}"))
}

impl Way {
    /// As an ablation says.
    fn without(&self, control: Control, entry: AblationEntry) -> Result<Self, Wrong> {
        let field = format!("ablations, {control}");
        let nothing = entry.command.is_none()
            && entry.environment.is_none()
            && entry.replace.is_empty()
            && entry.remove.is_empty();
        if nothing {
            let expected =
                "found nothing, expected `command`, `environment`, `replace` or `remove`";
            return wrong(&field, expected);
        }
        let mut other = self.clone();
        if let Some(command) = entry.command {
            other.command = command;
        }
        if let Some(environment) = entry.environment {
            other.environment = environment;
        }
        for one in entry.replace {
            let at = find(&other.command, &one.words).map_err(|what| (field.clone(), what))?;
            other.command.splice(at..at + one.words.len(), one.by);
        }
        for at in &entry.remove {
            // Written nowhere: what follows it in a list keeps its number until then.
            *place(&mut other.files, at).map_err(|what| (field.clone(), what))? = Value::Null;
        }
        check_command(&field, &other.command)?;
        other.check_program(&field)?;
        other.check_shown(&field)?;
        Ok(other)
    }

    /// What names a folder of the host says beside it where that is shown, and is there for each of them.
    fn check_shown(&self, field: &str) -> Result<(), Wrong> {
        for names in self.shown().into_iter().flatten() {
            for (source, target) in SHOWN {
                if !names.contains(source) {
                    continue;
                }
                if !names.contains(target) {
                    let expected = "expected both in one word, or in one element of a list: it may be shown in another place";
                    return wrong(
                        field,
                        format!("found {{{source}}} without {{{target}}}, {expected}"),
                    );
                }
                if let Some(limit) = names.iter().find(|name| words::LIMITS.contains(name)) {
                    let expected = "expected them apart: where the policy sets no such limit nothing would be shown";
                    return wrong(
                        field,
                        format!("found {{{source}}} and {{{limit}}} in one, {expected}"),
                    );
                }
            }
        }
        Ok(())
    }

    /// Where folders are named: neighbours together.
    fn shown(&self) -> Vec<words::Together<'_>> {
        let mut all = words::together(self.command.iter().map(String::as_str));
        all.extend(self.files.values().flat_map(words::together_in));
        all
    }

    /// Whether what is to be read and what is to be written to is told in one row, so that what lies in another comes after it.
    pub(super) fn keeps_order(&self) -> bool {
        let shown = self.shown();
        let names_some = shown.iter().filter(|together| {
            let mut names = together.iter().flatten();
            names.any(|name| SHOWN.iter().any(|(source, _)| name == source))
        });
        names_some.count() < 2
    }

    /// The workload's program stands somewhere, or it is not the workload that runs.
    fn check_program(&self, field: &str) -> Result<(), Wrong> {
        if self.uses("program") {
            return Ok(());
        }
        let expected = "found no {program}, expected it as a word of the command or in a file";
        wrong(field, expected)
    }

    /// Whether the command has the policy's variables alone.
    pub(super) const fn is_clear(&self) -> bool {
        matches!(self.environment, Environment::Clear)
    }

    /// Whether one of these stands anywhere in it.
    pub(super) fn uses(&self, name: &str) -> bool {
        let in_files = self.files.values().flat_map(words::texts);
        let mut all = self.command.iter().map(String::as_str).chain(in_files);
        all.any(|word| words::placeholders(word).any(|one| one == name))
    }
}
