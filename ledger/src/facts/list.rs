//! Values that stand in a record in one of two shapes.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess};
use serde::ser::{Serialize, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;

/// A value that is either in the record or committed to by a salted hash (DESIGN.md §4.1, openings).
#[derive(Clone, Debug, PartialEq, Eq, DeriveSerialize, DeriveDeserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sealable<T> {
    /// `{"clear":value}`
    Clear(T),
    /// `{"sealed":"<64 hex>"}`
    Sealed(Hash),
}

/// A list in the record, or, where it would not fit a line, the blob that holds its JCS array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List<T> {
    /// `[…]`
    Inline(Vec<T>),
    /// `{"blob":"<64 hex>","count":n}`
    Blob(BlobList),
}

/// Where a long list went.
#[derive(Clone, Debug, PartialEq, Eq, DeriveSerialize, DeriveDeserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobList {
    /// SHA-256 of the JCS array.
    pub blob: Hash,
    /// How many items it has.
    pub count: U53,
}

impl<T> List<T> {
    /// How many items the list has, wherever they are.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Inline(items) => items.len() as u64,
            Self::Blob(list) => list.count.value(),
        }
    }
}

impl<T: Serialize> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(items) => items.serialize(serializer),
            Self::Blob(list) => list.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Either<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list, or an object with blob and count")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(items)).map(List::Inline)
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
                BlobList::deserialize(de::value::MapAccessDeserializer::new(fields)).map(List::Blob)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_read_back() {
        for text in [
            r#"["a","b"]"#.to_owned(),
            format!(r#"{{"blob":"{}","count":2}}"#, Hash::of(b"x")),
        ] {
            let list: List<String> = serde_json::from_str(&text).unwrap();
            assert_eq!(list.count(), 2);
            assert_eq!(serde_json::to_string(&list).unwrap(), text);
        }
        assert!(serde_json::from_str::<List<String>>(r#"{"blob":"x","count":2}"#).is_err());
        let sealed: Sealable<String> = serde_json::from_str(r#"{"clear":"v"}"#).unwrap();
        assert_eq!(sealed, Sealable::Clear("v".into()));
        assert!(serde_json::from_str::<Sealable<String>>(r#"{"clear":"v","sealed":"w"}"#).is_err());
    }
}
