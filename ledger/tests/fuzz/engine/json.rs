//! JSON as it may stand in a text, not as it should: fields keep their order and may stand twice.

use super::random::Random;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    /// null, true, false or a number, as written.
    Word(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Up to how many bytes something is repeated: beyond what any input is cut to.
const LONGEST: usize = 2 * super::MAX_INPUT_BYTES;

/// Words that stand where a number, true, false or null does; not all of them are JSON.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "255",
    "256",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9007199254740992",
    "-9007199254740991",
    "18446744073709551615",
    "18446744073709551616",
    "1.0",
    "1e2",
    "0.5",
    "-0",
    "1e400",
    "null",
    "true",
    "false",
    "01",
    "+1",
    "NaN",
    "",
];
const TEXTS: &[&str] = &[
    "",
    "a",
    "none",
    "\0",
    "\u{1b}[2J",
    "\u{7f}",
    "\u{85}",
    "\u{202e}",
    "\u{2028}",
    "\"",
    "\\",
    "/",
    "\n",
    "é",
    "e\u{301}",
    "\u{feff}",
    "\u{10ffff}",
    "💩",
    "__proto__",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "2026-11-29T21:22:00.123456Z",
    "2026-11-29T23:59:60.000000Z",
    "AAAA",
    "A===",
    "1",
    "..",
    "/",
    "a:b:c",
    "*",
];

impl Json {
    /// Reads a JSON text; `None` where it is none.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(text).ok()?;
        Some(Self::from(value))
    }

    /// Writes it: compact, or as a person, or another program, might.
    pub(crate) fn write(&self, random: &mut Random) -> Vec<u8> {
        let style = match random.below(8) {
            0 => Style {
                blank: true,
                escape: false,
            },
            1 => Style {
                blank: false,
                escape: true,
            },
            _ => Style {
                blank: false,
                escape: false,
            },
        };
        let mut out = String::new();
        self.put(&mut out, style);
        out.into_bytes()
    }

    /// Changes it in one place.
    pub(crate) fn change(&mut self, random: &mut Random, words: &[&str]) {
        let count = self.count();
        let mut at = random.below(count);
        if let Some(place) = self.nth(&mut at) {
            place.change_here(random, words);
        }
    }

    /// The field of that name in the object.
    pub(crate) fn field(&mut self, name: &str) -> Option<&mut Self> {
        let Self::Object(fields) = self else {
            return None;
        };
        fields
            .iter_mut()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value)
    }

    fn change_here(&mut self, random: &mut Random, words: &[&str]) {
        match self {
            Self::Object(fields) if !fields.is_empty() && random.below(4) > 0 => {
                let at = random.below(fields.len());
                match random.below(6) {
                    0 => drop(fields.remove(at)),
                    1 => {
                        let to = random.below(fields.len());
                        fields.swap(at, to);
                    }
                    2 => {
                        let again = fields[at].clone();
                        fields.insert(random.below(fields.len() + 1), again);
                    }
                    3 => fields[at].0 = text(random, words),
                    4 => fields.insert(at, (text(random, words), value(random, words))),
                    _ => fields[at].1 = value(random, words),
                }
            }
            Self::List(items) if !items.is_empty() && random.below(4) > 0 => {
                let at = random.below(items.len());
                match random.below(4) {
                    0 => drop(items.remove(at)),
                    1 => {
                        let again = items[at].clone();
                        let times = if random.below(8) == 0 { 300 } else { 1 };
                        let most = 1 + LONGEST / (1 + again.size());
                        items.extend(std::iter::repeat_n(again, times.min(most)));
                    }
                    2 => {
                        let to = random.below(items.len());
                        items.swap(at, to);
                    }
                    _ => items.insert(at, value(random, words)),
                }
            }
            Self::Text(old) if random.below(2) == 0 => {
                let mut at = random.below(old.len() + 1);
                while !old.is_char_boundary(at) {
                    at -= 1;
                }
                match random.below(4) {
                    0 => old.truncate(at),
                    1 => old.insert_str(at, &text(random, words)),
                    2 => {
                        let most = 1 + LONGEST / (1 + old.len());
                        *old = old.repeat((1 + random.below(40)).min(most));
                    }
                    _ => {
                        let removed = old
                            .char_indices()
                            .nth(random.below(old.len()))
                            .map(|(at, _)| at);
                        if let Some(at) = removed {
                            old.remove(at);
                        }
                    }
                }
            }
            Self::Word(_) if random.below(2) == 0 => {
                *self = Self::Word(random.pick(WORDS).copied().unwrap_or("0").to_owned());
            }
            other => *other = value(random, words),
        }
    }

    fn count(&self) -> usize {
        1 + match self {
            Self::Word(_) | Self::Text(_) => 0,
            Self::List(items) => items.iter().map(Self::count).sum(),
            Self::Object(fields) => fields.iter().map(|(_, value)| value.count()).sum(),
        }
    }

    /// About how many bytes it is when written.
    fn size(&self) -> usize {
        match self {
            Self::Word(text) | Self::Text(text) => text.len(),
            Self::List(items) => items.iter().map(|item| 1 + item.size()).sum(),
            Self::Object(fields) => {
                let sizes = fields
                    .iter()
                    .map(|(name, value)| 2 + name.len() + value.size());
                sizes.sum()
            }
        }
    }

    fn nth(&mut self, at: &mut usize) -> Option<&mut Self> {
        if *at == 0 {
            return Some(self);
        }
        *at -= 1;
        match self {
            Self::Word(_) | Self::Text(_) => None,
            Self::List(items) => items.iter_mut().find_map(|item| item.nth(at)),
            Self::Object(fields) => fields.iter_mut().find_map(|(_, value)| value.nth(at)),
        }
    }

    fn put(&self, out: &mut String, style: Style) {
        match self {
            Self::Word(word) => out.push_str(word),
            Self::Text(text) => put_text(text, out, style),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push_str(style.comma());
                    }
                    item.put(out, style);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push_str(style.comma());
                    }
                    put_text(name, out, style);
                    out.push(':');
                    value.put(out, style);
                }
                out.push('}');
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Style {
    blank: bool,
    escape: bool,
}

impl Style {
    fn comma(self) -> &'static str {
        if self.blank { ", " } else { "," }
    }
}

fn put_text(text: &str, out: &mut String, style: Style) {
    if style.escape {
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        out.push('"');
        out.extend(units);
        out.push('"');
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}

fn text(random: &mut Random, words: &[&str]) -> String {
    let from = if random.below(2) == 0 { words } else { TEXTS };
    random.pick(from).copied().unwrap_or("a").to_owned()
}

fn value(random: &mut Random, words: &[&str]) -> Json {
    match random.below(8) {
        0 => Json::List(vec![]),
        1 => Json::Object(vec![]),
        2 => {
            let depth = 1 + random.below(20);
            (0..depth).fold(Json::Word("1".to_owned()), |inner, _| {
                Json::List(vec![inner])
            })
        }
        3 => Json::Object(vec![(text(random, words), Json::Text(text(random, words)))]),
        4 => Json::Text("x".repeat([0, 255, 4_096, 20_000, 66_000][random.below(5)])),
        5 => Json::Text(text(random, words)),
        _ => Json::Word(random.pick(WORDS).copied().unwrap_or("0").to_owned()),
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Word(value.to_string()),
            Value::String(text) => Self::Text(text),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(fields) => {
                let fields = fields
                    .into_iter()
                    .map(|(name, value)| (name, Self::from(value)));
                Self::Object(fields.collect())
            }
        }
    }
}
