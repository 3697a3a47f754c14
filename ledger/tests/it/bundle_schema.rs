//! `schema/bundle.schema.json` says of each line what the reader does: both take the good ones, and no changed one.

use std::fs;
use std::path::Path;

use ledger::finding::Class;
use serde_json::{Map, Value, json};

use crate::bundle::{joined, lines};
use crate::support::{vectors, walked_stream};

/// Whether the reader finds nothing wrong.
fn is_good(lines: &[Vec<u8>]) -> bool {
    let list = walked_stream(joined(lines)).findings.into_list();
    list.iter().all(|it| it.code.class() == Class::Observation)
}

/// The schema, and a judge of as much of JSON Schema as stands in it.
struct Schema(Value);

impl Schema {
    fn read() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/bundle.schema.json");
        Self(serde_json::from_slice(&fs::read(file).unwrap()).unwrap())
    }

    /// The kinds that a line fits.
    fn kinds(&self, line: &Value) -> Vec<String> {
        let kinds = self.0["oneOf"].as_array().unwrap().iter();
        let names = kinds.map(|kind| kind["$ref"].as_str().unwrap().replace("#/$defs/", ""));
        names
            .filter(|name| self.fits(&self.0["$defs"][name], line))
            .collect()
    }

    fn fits(&self, schema: &Value, value: &Value) -> bool {
        let rules = schema.as_object().expect("a schema is an object");
        assert!(!rules.is_empty(), "a schema that says nothing");
        rules
            .iter()
            .all(|(rule, to)| self.holds(rules, rule, to, value))
    }

    fn holds(&self, rules: &Map<String, Value>, rule: &str, to: &Value, value: &Value) -> bool {
        let number = |it: &Value| it.as_u64().unwrap();
        match rule {
            "description" => true,
            "$ref" => {
                let name = to.as_str().unwrap().replace("#/$defs/", "");
                self.fits(&self.0["$defs"][&name], value)
            }
            "const" => value == to,
            "type" => match to.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_i64() || value.is_u64(),
                other => panic!("type {other}"),
            },
            "required" => {
                let mut names = to.as_array().unwrap().iter();
                names.all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "additionalProperties" => {
                assert_eq!(to, false);
                let known = rules["properties"].as_object().unwrap();
                let mut names = value.as_object().into_iter().flat_map(Map::keys);
                names.all(|name| known.contains_key(name))
            }
            "properties" => {
                to.as_object().unwrap().iter().all(|(name, schema)| {
                    value.get(name).is_none_or(|value| self.fits(schema, value))
                })
            }
            "items" => {
                let mut items = value.as_array().into_iter().flatten();
                items.all(|item| self.fits(to, item))
            }
            "pattern" => value
                .as_str()
                .is_some_and(|text| matches(to.as_str().unwrap(), text)),
            "minimum" => value.as_u64().is_some_and(|it| it >= number(to)),
            "maximum" => value.as_u64().is_some_and(|it| it <= number(to)),
            "minItems" => value
                .as_array()
                .is_some_and(|it| it.len() as u64 >= number(to)),
            "maxItems" => value
                .as_array()
                .is_some_and(|it| it.len() as u64 <= number(to)),
            "minProperties" => value
                .as_object()
                .is_some_and(|it| it.len() as u64 >= number(to)),
            other => panic!("{other}: this test does not know what that says"),
        }
    }
}

/// The patterns of the schema; another one says so.
fn matches(pattern: &str, text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let letters = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+/".contains(&b))
    };
    let padded = |length: usize, ends: &str| {
        text.len() == length + ends.len() && text.strip_suffix(ends).is_some_and(letters)
    };
    let shape = |shape: &str| {
        text.len() == shape.len()
            && text.bytes().zip(shape.bytes()).all(|(b, of)| match of {
                b'9' => b.is_ascii_digit(),
                b'f' => hex(std::str::from_utf8(&[b]).unwrap_or("-")),
                of => b == of,
            })
    };
    match pattern {
        "^[0-9a-f]{64}$" => text.len() == 64 && hex(text),
        "^[A-Za-z0-9+/]{43}=$" => padded(43, "="),
        "^[A-Za-z0-9+/]{86}==$" => padded(86, "=="),
        "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$" => {
            let rest = text.strip_suffix("==").or_else(|| text.strip_suffix('='));
            text.len() % 4 == 0
                && rest
                    .unwrap_or(text)
                    .bytes()
                    .all(|b| letters(&char::from(b).to_string()))
        }
        "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$" => {
            shape("ffffffff-ffff-ffff-ffff-ffffffffffff")
        }
        "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z$" => {
            shape("9999-99-99T99:99:99.999999Z")
        }
        other => panic!("{other}: this test does not know this pattern"),
    }
}

fn vector(name: &str) -> Vec<Vec<u8>> {
    let path = vectors().join("../bundle").join(name).join("bundle");
    lines(&fs::read(path).unwrap())
}

fn value(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap()
}

#[test]
fn each_line_of_a_good_bundle_is_of_one_kind() {
    let schema = Schema::read();
    let mut seen = std::collections::BTreeSet::new();
    for name in ["valid_part", "valid_whole", "opening_withheld"] {
        for line in vector(name) {
            let kinds = schema.kinds(&value(&line));
            assert_eq!(
                kinds.len(),
                1,
                "{name}: {kinds:?}: {}",
                String::from_utf8_lossy(&line)
            );
            seen.extend(kinds);
        }
    }
    let all = [
        "Checkpoint",
        "Header",
        "Opening",
        "Piece",
        "Proof",
        "Record",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

/// A line with one field changed: left out, of another type, added.
fn changed(line: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (name, old) in line.as_object().unwrap() {
        let mut without = line.clone();
        without.as_object_mut().unwrap().remove(name);
        all.push((format!("without {name}"), without));
        let others = if old.is_number() {
            vec![json!(-1), json!("1"), json!(9_007_199_254_740_992_u64)]
        } else {
            vec![json!(null), json!(7), json!([])]
        };
        for other in others.into_iter().filter(|other| other != old) {
            let mut with = line.clone();
            with[name] = other.clone();
            all.push((format!("{name} is {other}"), with));
        }
        if let Some(text) = old.as_str() {
            let mut with = line.clone();
            with[name] = format!("{text}!").into();
            all.push((format!("{name} with a letter more"), with));
        }
    }
    let mut more = line.clone();
    more["zzz"] = json!(1);
    all.push(("with a field more".to_owned(), more));
    all
}

#[test]
fn what_the_schema_refuses_the_reader_refuses_too() {
    let schema = Schema::read();
    let whole = vector("valid_part");
    assert!(is_good(&whole));
    let mut kinds = std::collections::BTreeSet::new();
    for (at, line) in whole.iter().enumerate() {
        let line = value(line);
        let kind = schema.kinds(&line).remove(0);
        // One of each kind: they are long.
        if !kinds.insert(kind.clone()) {
            continue;
        }
        for (what, changed) in changed(&line) {
            let fits = !schema.kinds(&changed).is_empty();
            // What a note says, and how long a proof is to be, no form tells.
            let by_content = match kind.as_str() {
                "Checkpoint" => what.contains("letter"),
                "Proof" => what == "proof is []",
                _ => false,
            };
            assert_eq!(fits, by_content, "{kind} {what}");
            let mut lines = whole.clone();
            lines[at] = serde_json::to_vec(&changed).unwrap();
            assert!(!is_good(&lines), "{kind} {what}");
        }
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}
