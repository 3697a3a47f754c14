//! JSON (RFC 8259) with the place of every value, for documents that people write and get wrong.
//!
//! serde_json forgets where a value stood and keeps the last of two equal keys; here both are kept, so that
//! an error can point at the text. Strings and numbers are decoded by serde_json itself.

use std::ops::Range;

/// Deepest nesting of objects and arrays in a document.
pub(super) const MAX_DEPTH: usize = 16;

/// A value and the bytes of the text that it takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// The number as written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    /// Fields in the order of the text, duplicates too.
    Object(Vec<Field>),
}

/// One `"name": value`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) name_span: Range<usize>,
    pub(super) node: Node,
}

impl Value {
    /// What it is, for "found …".
    pub(super) fn found(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(digits) => format!("the number {}", shorten(digits)),
            Self::Text(text) => format!("the text {:?}", shorten(text)),
            Self::List(_) => "a list".to_owned(),
            Self::Object(_) => "an object".to_owned(),
        }
    }
}

/// At most 60 characters of `text`.
pub(super) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Where the text stops being JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) span: Range<usize>,
    pub(super) expected: &'static str,
}

/// Reads exactly one value.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut parser = Parser { text, at: 0 };
    let node = parser.value(0)?;
    parser.blank();
    if parser.at < text.len() {
        return Err(parser.error("nothing after the document"));
    }
    Ok(node)
}

struct Parser<'a> {
    text: &'a str,
    /// Always on a character boundary.
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes `byte` (ASCII) if it stands here.
    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    /// Marks the character that stands here, or the last one at the end of the text.
    fn error(&self, expected: &'static str) -> SyntaxError {
        let span = match self.rest().chars().next() {
            Some(c) => self.at..self.at + c.len_utf8(),
            None => {
                let last = self.text.chars().next_back().map_or(0, char::len_utf8);
                self.text.len() - last..self.text.len()
            }
        };
        SyntaxError { span, expected }
    }

    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        self.blank();
        let start = self.at;
        let value = match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => {
                return Err(self.error("at most 16 levels of nesting"));
            }
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Node {
            span: start..self.at,
            value,
        })
    }

    fn word(&mut self) -> Result<Value, SyntaxError> {
        for (word, value) in [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
        ] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error(
            "a value: an object, a list, a text in double quotes, a number, true, false or null",
        ))
    }

    fn number(&mut self) -> Result<Value, SyntaxError> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
        ) {
            self.at += 1;
        }
        let digits = self.text.get(start..self.at).unwrap_or_default();
        match serde_json::from_str::<&serde_json::value::RawValue>(digits) {
            Ok(number) => Ok(Value::Number(number.get().to_owned())),
            Err(_) => Err(SyntaxError {
                span: start..self.at,
                expected: "a number such as 512",
            }),
        }
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    let escaped = self.rest().chars().next().map_or(0, char::len_utf8);
                    self.at += escaped;
                }
                Some(0..=0x1f) => {
                    return Err(
                        self.error("no control character in a text (write \\n, \\t, \\u0000)")
                    );
                }
                Some(_) => self.at += self.rest().chars().next().map_or(1, char::len_utf8),
                None => {
                    return Err(SyntaxError {
                        span: start..self.text.len(),
                        expected: "a closing double quote",
                    });
                }
            }
        }
        self.at += 1;
        let quoted = self.text.get(start..self.at).unwrap_or_default();
        serde_json::from_str(quoted).map_err(|_| SyntaxError {
            span: start..self.at,
            expected: "a text with no escape but \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX",
        })
    }

    fn list(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        self.at += 1;
        let mut items = Vec::new();
        self.blank();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blank();
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            if !self.take(b',') {
                return Err(self.error("a comma or ]"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        self.at += 1;
        let mut fields = Vec::new();
        self.blank();
        if self.take(b'}') {
            return Ok(Value::Object(fields));
        }
        loop {
            self.blank();
            if self.peek() != Some(b'"') {
                return Err(self.error("a field name in double quotes"));
            }
            let start = self.at;
            let name = self.string()?;
            let name_span = start..self.at;
            self.blank();
            if !self.take(b':') {
                return Err(self.error("a colon"));
            }
            fields.push(Field {
                name,
                name_span,
                node: self.value(depth + 1)?,
            });
            self.blank();
            if self.take(b'}') {
                return Ok(Value::Object(fields));
            }
            if !self.take(b',') {
                return Err(self.error("a comma or }"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_know_their_place() {
        let text = r#"{ "a": [1, "x\u00e9"], "a": null }"#;
        let Value::Object(fields) = parse(text).unwrap().value else {
            panic!("no object");
        };
        assert_eq!(fields.len(), 2, "duplicates are kept");
        assert_eq!(&text[fields[1].name_span.clone()], "\"a\"");
        let Value::List(items) = &fields[0].node.value else {
            panic!("no list");
        };
        assert_eq!(items[1].value, Value::Text("xé".to_owned()));
        assert_eq!(&text[items[1].span.clone()], r#""x\u00e9""#);
    }

    #[test]
    fn an_error_marks_what_is_wrong() {
        for (text, marked, expected) in [
            ("{\"a\" 1}", "1", "a colon"),
            ("[1 2]", "2", "a comma or ]"),
            ("{a:1}", "a", "a field name in double quotes"),
            ("{\"a\":1,}", "}", "a field name in double quotes"),
            ("[01]", "01", "a number such as 512"),
            ("\"\\x\"", "\"\\x\"", "a text with no escape"),
            ("\"\\ud800\"", "\"\\ud800\"", "a text with no escape"),
            ("[\"é", "\"é", "a closing double quote"),
            ("{} é", "é", "nothing after the document"),
            ("", "", "a value"),
            ("[1", "1", "a comma or ]"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(&text[error.span.clone()], marked, "{text}");
            assert!(error.expected.starts_with(expected), "{text}: {error:?}");
        }
        assert!(
            parse(&"[".repeat(100_000))
                .unwrap_err()
                .expected
                .contains("nesting")
        );
    }

    proptest! {
        #[test]
        fn accepts_what_serde_json_accepts(text in r#"[\[\]{}":, \\0-9a-cetrulfsn.+\-]{0,24}"#) {
            let ours = parse(&text);
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
        }

        #[test]
        fn any_text_is_judged_without_panic(text in any::<String>()) {
            if let Err(error) = parse(&text) {
                prop_assert!(text.get(error.span).is_some());
            }
        }
    }
}
