//! Documents that people write: what of their form serde would let pass.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The first place at which a list stands where a document has to have an object, as an offset in the text. A list of the
/// fields' values in their order would be taken for one otherwise.
#[must_use]
pub fn list_for_object(text: &str, objects: &[&[&str]]) -> Option<usize> {
    let whole: &RawValue = serde_json::from_str(text).ok()?;
    let found = objects.iter().find_map(|path| find(whole, path))?;
    Some(found.get().as_ptr().addr() - text.as_ptr().addr())
}

fn find<'a>(piece: &'a RawValue, path: &[&str]) -> Option<&'a RawValue> {
    let Some((key, rest)) = path.split_first() else {
        return piece.get().starts_with('[').then_some(piece);
    };
    if *key == "*" && piece.get().starts_with('[') {
        let all: Vec<&RawValue> = serde_json::from_str(piece.get()).ok()?;
        return all.into_iter().find_map(|one| find(one, rest));
    }
    let all: BTreeMap<String, &RawValue> = serde_json::from_str(piece.get()).ok()?;
    match *key {
        "*" => all.into_values().find_map(|one| find(one, rest)),
        key => find(all.get(key)?, rest),
    }
}
