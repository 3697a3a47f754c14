//! Reads the parts of a JSON document and remembers what was wrong with them and where.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use miette::NamedSource;

use super::check::Contradiction;
use super::json::{self, Field, Node, Value};
use super::nearest::nearest;
use super::problem::{Problem, ProblemCode, ReadPolicyError, line_and_column};
use crate::bytes::canon::U53;
use crate::bytes::text::excerpt;
use crate::facts::control::Control;

/// How many mistakes of one document are kept.
const MAX_PROBLEMS: usize = 100;

/// Longest message of a mistake, in characters.
const MAX_MESSAGE: usize = 400;

/// Longest list of a document.
pub(super) const MAX_ITEMS: usize = 1_024;

pub(super) struct Found {
    code: ProblemCode,
    span: Range<usize>,
    message: String,
    help: Option<String>,
}

pub(super) struct Reader {
    pub(super) problems: Vec<Found>,
    /// Where each field stands, by path (`network.hosts[0]`).
    pub(super) places: BTreeMap<String, Range<usize>>,
    /// Fields whose value was not understood: what depends on them is not judged.
    pub(super) broken: BTreeSet<String>,
}

/// The fields of one object, by name.
pub(super) struct Object<'a> {
    pub(super) path: String,
    pub(super) fields: BTreeMap<&'a str, &'a Node>,
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            problems: Vec::new(),
            places: BTreeMap::new(),
            broken: BTreeSet::new(),
        }
    }

    pub(super) fn problem(
        &mut self,
        code: ProblemCode,
        span: Range<usize>,
        message: String,
        help: Option<String>,
    ) {
        self.problems.push(Found {
            code,
            span,
            // Names in it are the document's.
            message: excerpt(&message, MAX_MESSAGE),
            help,
        });
    }

    pub(super) fn finish(mut self, name: &str, text: &str) -> ReadPolicyError {
        self.problems
            .sort_by_key(|found| (found.span.start, found.span.end));
        self.problems.truncate(MAX_PROBLEMS);
        let source = Arc::new(NamedSource::new(name, text.to_owned()).with_language("JSON"));
        let problems = self.problems.into_iter().map(|found| {
            let (line, column) = line_and_column(text, found.span.start);
            let label = match found.message.split_once(", expected ") {
                Some((_, expected)) if expected.len() <= 60 => format!("expected {expected}"),
                _ => "here".to_owned(),
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

    pub(super) fn wrong_type(&mut self, path: &str, node: &Node, expected: &str) {
        let of = if path.is_empty() {
            String::new()
        } else {
            format!(" for {path}")
        };
        let message = format!("found {}{of}, expected {expected}", node.value.found());
        self.problem(ProblemCode::WrongType, node.span.clone(), message, None);
        self.broken.insert(path.to_owned());
    }

    pub(super) fn object<'a>(
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
        if items.len() > MAX_ITEMS {
            self.too_many(&path, node, items.len());
            return None;
        }
        Some((path, items))
    }

    pub(super) fn too_many(&mut self, path: &str, node: &Node, count: usize) {
        let message = format!("found {count} entries, expected at most {MAX_ITEMS}");
        let opening = node.span.start..node.span.start + 1;
        self.problem(ProblemCode::BadValue, opening, message, None);
        self.broken.insert(path.to_owned());
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

    pub(super) fn texts(
        &mut self,
        object: &Object<'_>,
        name: &str,
        of: &str,
    ) -> Option<Vec<String>> {
        self.list(object, name, of, |_, text, _| Some(text.to_owned()))
    }

    pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(
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

    pub(super) fn controls(&mut self, object: &Object<'_>, name: &str) -> Option<Vec<Control>> {
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

    pub(super) fn text(&mut self, object: &Object<'_>, name: &str) -> Option<String> {
        let node = object.fields.get(name)?;
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => {
                self.wrong_type(&join(&object.path, name), node, "a text");
                None
            }
        }
    }

    pub(super) fn word<T: FromStr<Err: std::fmt::Display>>(
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

    pub(super) fn flag(&mut self, object: &Object<'_>, name: &str) -> Option<bool> {
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

    pub(super) fn limit(&mut self, object: &Object<'_>, name: &str) -> Option<U53> {
        self.number(object, name, U53::MAX.value())
    }

    pub(super) fn unix_id(&mut self, object: &Object<'_>, name: &str) -> Option<u32> {
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

    pub(super) fn section<'a>(
        &mut self,
        object: &Object<'a>,
        name: &str,
        known: &[&'static str],
    ) -> Option<Object<'a>> {
        let node = object.fields.get(name)?;
        self.object(&join(&object.path, name), node, known)
    }

    /// A contradiction is reported unless one of its sides was not understood in the first place.
    pub(super) fn contradiction(&mut self, found: Contradiction, document: &Node) {
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
}
