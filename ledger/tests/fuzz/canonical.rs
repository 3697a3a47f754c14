//! The canonical JSON reader, against serde_json and serde_jcs.

use ledger::bytes::canon::{FormError, MAX_DEPTH, MAX_INTEGER, canonical_form};
use serde_json::Value;

use crate::engine::{Checked, Outcome, Target, hold};
use crate::record::{WORDS, reshape};

#[test]
fn canonical_json() {
    let valid = crate::lines("opening_valid");
    crate::run(Target {
        name: "canonical_json",
        valid,
        words: WORDS,
        shape: reshape,
        check,
    });
}

fn check(bytes: &[u8]) -> Checked {
    let theirs: Result<Value, _> = serde_json::from_slice(bytes);
    let canonical = match canonical_form(bytes) {
        Ok(canonical) => canonical,
        Err(error) => {
            if let Ok(value) = &theirs {
                let reason = matches!(error, FormError::Depth | FormError::Number(_));
                hold!(reason, "JSON for serde_json, refused as {error}");
                // Of two equal fields serde_json keeps one: what it keeps, alone, is judged by its own limits.
                let alone = serde_json::to_vec(value).map_err(|e| e.to_string())?;
                let judged = canonical_form(&alone);
                hold!(
                    judged.is_ok() == is_within_limits(value, 0),
                    "its value alone: {judged:?}"
                );
            }
            return Outcome::refused(&error.to_string());
        }
    };
    let value = theirs.map_err(|e| format!("accepted, and serde_json says {e}"))?;
    hold!(is_within_limits(&value, 0), "accepted beyond its limits");
    let jcs = serde_jcs::to_vec(&value).map_err(|e| format!("accepted, and serde_jcs says {e}"))?;
    let at = crate::parting(&canonical, &jcs);
    hold!(jcs == canonical, "JCS differs at byte {at}");
    let again = canonical_form(&canonical);
    hold!(
        again.as_ref() == Ok(&canonical),
        "its canonical form has another: {again:?}"
    );
    let read: Value = serde_json::from_slice(&canonical).map_err(|e| e.to_string())?;
    hold!(
        serde_jcs::to_vec(&read).ok() == Some(canonical.clone()),
        "its canonical form means something else"
    );
    Ok(Outcome::accepted(if canonical == bytes {
        "canonical"
    } else {
        "another form"
    }))
}

fn is_within_limits(value: &Value, depth: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(it), _, _) => it <= MAX_INTEGER,
            (_, Some(it), _) => it.unsigned_abs() <= MAX_INTEGER,
            (_, _, Some(it)) => it.fract() == 0.0 && it.abs() <= MAX_INTEGER as f64,
            _ => false,
        },
        Value::Array(items) => {
            depth < MAX_DEPTH && items.iter().all(|item| is_within_limits(item, depth + 1))
        }
        Value::Object(fields) => {
            depth < MAX_DEPTH
                && fields
                    .values()
                    .all(|item| is_within_limits(item, depth + 1))
        }
    }
}
