//! Documents that people write: what of their form serde would let pass.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The first place at which a list stands where a document has to have an object, as an offset in the text. A list of the
/// fields' values in their order would be taken for one otherwise. In the paths of `objects`, `*` is each element of a list and
/// `{}` each member of an object, whatever its name.
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
    if *key == "*" {
        let all: Vec<&RawValue> = serde_json::from_str(piece.get()).ok()?;
        return all.into_iter().find_map(|one| find(one, rest));
    }
    let all: BTreeMap<String, &RawValue> = serde_json::from_str(piece.get()).ok()?;
    match *key {
        "{}" => all.into_values().find_map(|one| find(one, rest)),
        key => find(all.get(key)?, rest),
    }
}

/// Any document in which no object has two members of one name, at any depth: which of them counts is every reader's own.
#[derive(Debug)]
pub(super) struct Unrepeated;

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unrepeated {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON document")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = object.next_key::<String>()? {
            if names.contains(&name) {
                let what = format!("found the member {name:?} twice, expected it once");
                return Err(A::Error::custom(what));
            }
            names.insert(name);
            object.next_value::<Self>()?;
        }
        Ok(self)
    }
}
