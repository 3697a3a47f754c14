//! A list that stands in a blob: read item by item, and written again, in memory for one item.

use std::cell::Cell;
use std::io::{self, BufReader, Read};

use ledger::bytes::hash::{Hash, Hasher};
use serde::Serialize;
use serde::de::{DeserializeOwned, Deserializer as _, Error as _, SeqAccess, Visitor};

/// Longest item that is read, in bytes: an argument or a path of the system is far shorter, also with every
/// byte escaped.
const ITEM_BYTES: u64 = 1024 * 1024;

/// Number of items, and SHA-256 of their JCS array; or why the bytes are no array of such items. Each item is handed
/// to `take`.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read<T: Serialize + DeserializeOwned>(
    file: impl Read,
    take: &mut dyn FnMut(T),
) -> io::Result<Result<(u64, Hash), String>> {
    let left = Cell::new(ITEM_BYTES);
    let reader = BufReader::new(Bounded { file, left: &left });
    let mut json = serde_json::Deserializer::from_reader(reader);
    let read = json
        .deserialize_seq(Items::<T> { left: &left, take })
        .and_then(|items| json.end().map(|()| items));
    match read {
        Ok(items) => Ok(Ok(items)),
        Err(error) if error.is_io() && left.get() == 0 => {
            Ok(Err(format!("an item is longer than {ITEM_BYTES} bytes")))
        }
        Err(error) if error.is_io() => Err(error.into()),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Gives no more than what is left for one item.
struct Bounded<'a, R> {
    file: R,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        let left = self.left.get().saturating_sub(count as u64);
        self.left.set(left);
        if left == 0 {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(count)
    }
}

struct Items<'a, T> {
    left: &'a Cell<u64>,
    take: &'a mut dyn FnMut(T),
}

impl<'de, T: Serialize + DeserializeOwned> Visitor<'de> for Items<'_, T> {
    type Value = (u64, Hash);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut hasher = Hasher::plain();
        let mut count = 0;
        while let Some(item) = items.next_element::<T>()? {
            self.left.set(ITEM_BYTES);
            hasher.update(if count == 0 { b"[" } else { b"," });
            hasher.update(&serde_json::to_vec(&item).map_err(A::Error::custom)?);
            count += 1;
            (self.take)(item);
        }
        hasher.update(if count == 0 { b"[]" } else { b"]" });
        Ok((count, hasher.finish()))
    }
}
