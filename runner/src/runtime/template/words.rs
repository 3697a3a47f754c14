//! **Words** of a template: what stands in braces in them, and what it stands for in one launch.
//!
//! ```text
//! {program} {arguments}                       the workload
//! {variable} {value}                          each variable of its environment
//! {read-source} {read-target}                 each folder that it may read; {write-…} those it may write to
//! {denied}                                    each system call that the policy denies
//! {scratch} {name} {workdir} {uid} {gid} {caller-uid} {caller-gid}
//! {memory} {processes} {cpus} {cpu-percent} {cpu-quota} {open-files} {output} {disk} {timeout} {program-folder}
//! ```
//! A word with one of the second kind ("each") stands there once for each, and not at all where there is none. A word
//! with a limit that the policy does not set stands there not at all. The same holds for the elements of a list in a file.
//!
//! Folders lie in one another, and what comes later covers what came before. So neighbours that stand there for folders, to
//! read or to write to, stand there folder by folder, what lies above before what lies below.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What stands there once for each of several, by what is counted.
const EACH: [(&str, &[&str]); 6] = [
    ("argument", &["arguments"]),
    ("variable", &["variable", "value"]),
    ("read", &["read-source", "read-target"]),
    ("write", &["write-source", "write-target"]),
    ("denied", &["denied"]),
    ("program", &["program"]),
];
/// What is shown, one thing in another.
const SHOWN: [&str; 2] = ["read", "write"];
/// What has one value in every launch.
const ALWAYS: [&str; 7] = [
    "scratch",
    "name",
    "workdir",
    "uid",
    "gid",
    "caller-uid",
    "caller-gid",
];
/// What has a value where the policy sets one, or where the program is named by its whole path.
pub(super) const LIMITS: [&str; 10] = [
    "program-folder",
    "memory",
    "processes",
    "cpus",
    "cpu-percent",
    "cpu-quota",
    "open-files",
    "output",
    "disk",
    "timeout",
];

/// What stands in braces in a text, without the braces: small letters and `-`. Behind a `$` it is the shell's matter.
pub(super) fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Placeholder(name) => Some(name),
        Piece::Text(_) => None,
    })
}

/// Whether it stands for something.
pub(super) fn is_known(name: &str) -> bool {
    ALWAYS.contains(&name) || LIMITS.contains(&name) || group(name).is_some()
}

/// What is counted where this stands.
fn group(name: &str) -> Option<&'static str> {
    let found = EACH.iter().find(|(_, names)| names.contains(&name));
    found.map(|(group, _)| *group)
}

/// What makes a word stand there once more.
fn group_in(text: &str) -> Option<&'static str> {
    groups(text).first().copied()
}

/// The things of which each makes the word stand there once more: none or one, else the word means nothing.
fn groups(text: &str) -> Vec<&'static str> {
    let mut groups: Vec<_> = placeholders(text).filter_map(group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// What is wrong with a word.
pub(super) fn problem(word: &str) -> Option<String> {
    if word.contains('\0') {
        return Some("a word holds a zero byte".to_owned());
    }
    if let Some(name) = unknown(word) {
        return Some(format!(
            "found {{{name}}}, which stands for nothing; expected one of those in docs/runtimes.md"
        ));
    }
    match groups(word).as_slice() {
        [] | [_] => None,
        [first, second, ..] => Some(format!(
            "found each {first} and each {second} in one word; expected one of them"
        )),
    }
}

/// What stands in braces as a name does, however it is written, and stands for nothing: `{memroy}`, `{Memory}`, `{read_source}`.
/// Behind a `$` it is the shell's matter.
pub(super) fn unknown(text: &str) -> Option<&str> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    text.match_indices('{').find_map(|(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + 1..)?);
        let (name, _) = after.split_once('}')?;
        let is_one = name.starts_with(|letter: char| letter.is_ascii_alphabetic());
        let is_one = is_one && name.chars().all(is_name) && !before.ends_with('$');
        (is_one && !is_known(name)).then_some(name)
    })
}

/// Whether a policy alone says what it stands for.
pub(super) fn is_of_policy(name: &str) -> bool {
    ["uid", "gid"].contains(&name) || (LIMITS.contains(&name) && name != "program-folder")
}

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((name, after)) = placeholder(rest) {
            rest = after;
            return Some(Piece::Placeholder(name));
        }
        // Up to the next brace that is not behind a `$`.
        let mut end = rest.len();
        let mut before = None;
        for (at, letter) in rest.char_indices() {
            if letter == '{' && before != Some('$') && at > 0 {
                end = at;
                break;
            }
            before = Some(letter);
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(Piece::Text(piece))
    })
}

/// `{name}` at the beginning, and what follows.
fn placeholder(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.strip_prefix('{')?.split_once('}')?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    (name.bytes().next()?.is_ascii_lowercase() && name.bytes().all(is_name))
        .then_some((name, after))
}

/// What everything stands for in one launch.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    one: BTreeMap<&'static str, Vec<u8>>,
    each: BTreeMap<&'static str, Vec<Vec<Vec<u8>>>>,
    /// Which of [`SHOWN`] was added when.
    shown: Vec<&'static str>,
}

/// Text of a file that cannot be written as it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    /// JSON has no such text; what it is stays unsaid, as it may be a secret.
    #[error("{0} is not UTF-8, which a file of the template needs")]
    NotText(String),
    /// It would be two lines; likewise.
    #[error("{0} holds a line break, which a line of a file of the template cannot hold")]
    TwoLines(String),
}

/// One of several, and of what.
pub(super) type RowOf<'v> = Option<(&'static str, &'v Vec<Vec<u8>>)>;

impl Values {
    /// Says what one thing stands for.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<Vec<u8>>) {
        self.one.insert(name, value.into());
    }

    /// Whether it stands for something.
    pub(super) fn has(&self, name: &str) -> bool {
        self.one.contains_key(name)
    }

    /// Adds one of several: its columns as in [`EACH`].
    pub(super) fn add<const N: usize>(&mut self, group: &'static str, columns: [&[u8]; N]) {
        let row = columns.map(<[u8]>::to_vec).to_vec();
        self.each.entry(group).or_default().push(row);
        if SHOWN.contains(&group) {
            self.shown.push(group);
        }
    }

    /// The same, for a record: the values of variables are nobody's business.
    pub(super) fn without_variables(mut self) -> Self {
        for row in self.each.get_mut("variable").into_iter().flatten() {
            if let Some(value) = row.get_mut(1) {
                *value = b"{value}".to_vec();
            }
        }
        self
    }

    fn rows(&self, group: &str) -> &[Vec<Vec<u8>>] {
        self.each.get(group).map_or(&[], Vec::as_slice)
    }

    /// Words in a row, each once, several times, or not at all.
    pub(super) fn words<'w>(&self, words: impl IntoIterator<Item = &'w String>) -> Vec<Vec<u8>> {
        let filled = self
            .filled(words.into_iter().map(String::as_str))
            .into_iter();
        filled.map(|(_, word)| word).collect()
    }

    /// The same, each with what it is one of.
    pub(super) fn filled<'w>(
        &self,
        words: impl IntoIterator<Item = &'w str>,
    ) -> Vec<(RowOf<'_>, Vec<u8>)> {
        let all = self.expanded(words.into_iter().map(|word| (word, group_in(word))));
        let filled = all.into_iter();
        filled
            .filter_map(|(word, row)| Some((row, self.fill(word, row)?)))
            .collect()
    }

    /// Things in a row, each as often as what it counts is there, and with that.
    fn expanded<T: Copy>(
        &self,
        things: impl IntoIterator<Item = (T, Option<&'static str>)>,
    ) -> Vec<(T, RowOf<'_>)> {
        let mut all = Vec::new();
        let mut together: Vec<(T, &'static str)> = Vec::new();
        for (thing, group) in things {
            if let Some(group) = group.filter(|group| SHOWN.contains(group)) {
                together.push((thing, group));
                continue;
            }
            self.show(&mut together, &mut all);
            match group {
                None => all.push((thing, None)),
                Some(group) => {
                    let rows = self.rows(group).iter();
                    all.extend(rows.map(|row| (thing, Some((group, row)))));
                }
            }
        }
        self.show(&mut together, &mut all);
        all
    }

    /// What stands together for folders, folder by folder in their order.
    fn show<'v, T: Copy>(
        &'v self,
        together: &mut Vec<(T, &'static str)>,
        all: &mut Vec<(T, RowOf<'v>)>,
    ) {
        let mut rows = SHOWN.map(|group| (group, self.rows(group).iter()));
        for shown in &self.shown {
            let of = rows.iter_mut().find(|(group, _)| group == shown);
            let Some((group, row)) = of.and_then(|(group, rows)| Some((*group, rows.next()?)))
            else {
                continue;
            };
            let those = together.iter().filter(|(_, one)| *one == group);
            all.extend(those.map(|(thing, _)| (*thing, Some((group, row)))));
        }
        together.clear();
    }

    /// A text with everything in its place; `None` where there is nothing to put there.
    fn fill(&self, text: &str, row: RowOf<'_>) -> Option<Vec<u8>> {
        let mut filled = Vec::new();
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => filled.extend_from_slice(text.as_bytes()),
                Piece::Placeholder(name) => filled.extend_from_slice(self.value(name, row)?),
            }
        }
        Some(filled)
    }

    fn value<'v>(&'v self, name: &str, row: RowOf<'v>) -> Option<&'v Vec<u8>> {
        let Some(group) = group(name) else {
            return self.one.get(name);
        };
        let (_, names) = EACH.iter().find(|(one, _)| *one == group)?;
        let column = names.iter().position(|one| *one == name)?;
        let (_, row) = row.filter(|(one, _)| *one == group)?;
        row.get(column)
    }

    /// A text of the document's that is for people, such as the value of a limit.
    pub(super) fn text(&self, text: &str) -> Option<String> {
        let filled = self.fill(text, None)?;
        Some(String::from_utf8_lossy(&filled).into_owned())
    }

    /// What a file is to hold: lines where the document has a list of texts, else JSON.
    pub(super) fn file(&self, content: &Value) -> Result<Vec<u8>, FillError> {
        if let Some(lines) = lines(content) {
            let mut text = Vec::new();
            for (line, row) in self.expanded(lines.map(|line| (line, group_in(line)))) {
                let Some(filled) = self.fill(line, row) else {
                    continue;
                };
                if filled.contains(&b'\n') {
                    return Err(FillError::TwoLines(said(line, row)));
                }
                text.extend_from_slice(&filled);
                text.push(b'\n');
            }
            return Ok(text);
        }
        let filled = self.json(content, None)?.unwrap_or(Value::Null);
        Ok(filled.to_string().into_bytes())
    }

    /// Whether a member of an object is a limit that the policy does not set.
    fn lacks_limit(&self, value: &Value) -> bool {
        let lacks = |text: &str| {
            let mut limits = placeholders(text).filter(|name| LIMITS.contains(name));
            limits.any(|name| !self.has(name))
        };
        let members = value.as_object().into_iter().flat_map(|all| all.values());
        members.filter_map(Value::as_str).any(lacks)
    }

    /// `None` where it is not to be there.
    fn json(&self, value: &Value, row: RowOf<'_>) -> Result<Option<Value>, FillError> {
        Ok(match value {
            Value::Null => None,
            Value::Bool(_) | Value::Number(_) => Some(value.clone()),
            Value::String(text) => match self.fill(text, row) {
                None => None,
                Some(filled) => {
                    let filled = String::from_utf8(filled)
                        .map_err(|_| FillError::NotText(said(text, row)))?;
                    let is_alone = placeholder(text).is_some_and(|(_, after)| after.is_empty());
                    let number = filled.parse::<u64>().ok();
                    Some(match number.filter(|_| is_alone && is_number(text)) {
                        Some(number) => number.into(),
                        None => filled.into(),
                    })
                }
            },
            Value::Array(all) => {
                let mut list = Vec::new();
                // An element that lacks a limit of its own is none: half of it would mean something else.
                let all = elements(all).filter(|one| !self.lacks_limit(one));
                let all = all.map(|one| (one, each_of(one).filter(|_| row.is_none())));
                for (one, own) in self.expanded(all) {
                    list.extend(self.json(one, own.or(row))?);
                }
                Some(list.into())
            }
            Value::Object(all) => {
                let mut object = serde_json::Map::new();
                for (key, one) in all {
                    if let Some(one) = self.json(one, row)? {
                        object.insert(key.clone(), one);
                    }
                }
                Some(object.into())
            }
        })
    }
}

/// Whether what stands there alone is to be a number in JSON.
fn is_number(text: &str) -> bool {
    let mut names = placeholders(text);
    names.any(|name| LIMITS.contains(&name) || ["uid", "gid"].iter().any(|id| name.ends_with(id)))
}

/// What a text of the document stands for, by its name and not by its content.
fn said(text: &str, row: RowOf<'_>) -> String {
    let variable = row.filter(|(group, _)| *group == "variable");
    match variable.and_then(|(_, row)| row.first()) {
        Some(name) => format!("the variable {}", ledger::bytes::canon::escape_bytes(name)),
        None => format!("what {text:?} stands for"),
    }
}

/// The lines of a file that is a list of texts.
pub(super) fn lines(content: &Value) -> Option<impl Iterator<Item = &str>> {
    let all = content.as_array()?;
    let texts: Option<Vec<&str>> = all.iter().map(Value::as_str).collect();
    texts.map(Vec::into_iter)
}

/// Every text of a value, names apart.
pub(super) fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(all) => all.iter().flat_map(texts).collect(),
        Value::Object(all) => all.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Every name of a member in a value.
pub(super) fn names(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(all) => all.iter().flat_map(names).collect(),
        Value::Object(all) => {
            let below = all.values().flat_map(names);
            all.keys().map(String::as_str).chain(below).collect()
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// The elements of a list that are written: what an ablation took out is none.
fn elements(all: &[Value]) -> impl Iterator<Item = &Value> {
    all.iter().filter(|one| !one.is_null())
}

/// Neighbours that stand there for folders: what each of them names.
pub(super) type Together<'t> = Vec<BTreeSet<&'t str>>;

/// All such in a row of words.
pub(super) fn together<'t>(words: impl IntoIterator<Item = &'t str>) -> Vec<Together<'t>> {
    let words = words.into_iter();
    neighbours(words.map(|word| (group_in(word), placeholders(word).collect())))
}

/// All such in a file.
pub(super) fn together_in(content: &Value) -> Vec<Together<'_>> {
    match content {
        Value::Array(all) => {
            let of = |one| texts(one).into_iter().flat_map(placeholders).collect();
            let own = elements(all).map(|one| (each_of(one), of(one)));
            let below = elements(all).filter(|one| each_of(one).is_none());
            let mut found = neighbours(own);
            found.extend(below.flat_map(together_in));
            found
        }
        Value::Object(all) => all.values().flat_map(together_in).collect(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn neighbours<'t>(
    row: impl Iterator<Item = (Option<&'static str>, BTreeSet<&'t str>)>,
) -> Vec<Together<'t>> {
    let mut found = Vec::new();
    let mut before = false;
    for (group, names) in row {
        let is_shown = group.is_some_and(|group| SHOWN.contains(&group));
        match found.last_mut() {
            Some(last) if is_shown && before => Together::push(last, names),
            _ if is_shown => found.push(vec![names]),
            _ => {}
        }
        before = is_shown;
    }
    found
}

/// What in a file stands for each of several, where nothing is repeated for that: it would stand for nothing.
pub(super) fn astray<'t>(
    content: &'t Value,
    of: Option<&'static str>,
) -> Option<(&'t str, String)> {
    match content {
        Value::String(text) => {
            let found = placeholders(text).find_map(|name| Some((name, group(name)?)));
            let (name, group) = found.filter(|(_, group)| Some(*group) != of)?;
            let place = match of {
                Some(of) => format!("where each {of} stands"),
                None => "outside of a list".to_owned(),
            };
            Some((
                name,
                format!("{place}; expected it in a list, once for each {group}"),
            ))
        }
        Value::Array(all) => all
            .iter()
            .find_map(|one| astray(one, of.or_else(|| each_of(one)))),
        Value::Object(all) => all.values().find_map(|one| astray(one, of)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// What is counted where this element of a list stands.
fn each_of(value: &Value) -> Option<&'static str> {
    let inside_a_list = |value: &Value| matches!(value, Value::Array(_));
    match value {
        Value::String(text) => group_in(text),
        Value::Object(all) => {
            let own = all.values().filter(|one| !inside_a_list(one));
            own.filter_map(each_of).next()
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}
