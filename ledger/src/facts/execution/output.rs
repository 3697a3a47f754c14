//! One output stream as a record or an opening says it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;

/// One output stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Output {
    /// The first `kept` bytes, when they are not text (RFC 4648 §4, padded).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// SHA-256 of the blob that holds the first `kept` bytes, when they are many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Hash>,
    /// All bytes seen.
    pub bytes: U53,
    /// How many of them are kept.
    pub kept: U53,
    /// SHA-256 of all bytes seen.
    pub sha256: Hash,
    /// The first `kept` bytes, when they are UTF-8 without control characters but tab and newline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Output {
    /// What in it contradicts the rest; `None` when its kept bytes, their number and their hash agree. The
    /// content of a blob is not looked at.
    #[must_use]
    pub fn disorder(&self) -> Option<&'static str> {
        if self.kept > self.bytes {
            return Some("more bytes are kept than were seen");
        }
        let decoded;
        let kept = match (&self.text, &self.base64, &self.blob) {
            (Some(text), None, None) => {
                if !is_plain(text) {
                    return Some("text has a control character other than tab and newline");
                }
                text.as_bytes()
            }
            (None, Some(base64), None) => match STANDARD.decode(base64) {
                Ok(bytes) => {
                    decoded = bytes;
                    decoded.as_slice()
                }
                Err(_) => return Some("base64 is not padded standard base64"),
            },
            (None, None, Some(blob)) => {
                let differs = self.kept == self.bytes && *blob != self.sha256;
                return differs.then_some("the blob holds all bytes and has another sha256");
            }
            _ => return Some("not exactly one of text, base64 and blob is there"),
        };
        if kept.len() as u64 != self.kept.value() {
            return Some("text or base64 holds another number of bytes than kept");
        }
        let differs = self.kept == self.bytes && Hash::of(kept) != self.sha256;
        differs.then_some("all bytes are kept and have another sha256")
    }
}

/// Whether text may stand in a record as it is.
fn is_plain(text: &str) -> bool {
    text.chars()
        .all(|c| !c.is_control() || matches!(c, '\t' | '\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kept: &[u8], seen: &[u8]) -> Output {
        Output {
            base64: None,
            blob: None,
            bytes: U53::saturating(seen.len() as u64),
            kept: U53::saturating(kept.len() as u64),
            sha256: Hash::of(seen),
            text: None,
        }
    }

    fn text(kept: &str, seen: &str) -> Output {
        Output {
            text: Some(kept.to_owned()),
            ..of(kept.as_bytes(), seen.as_bytes())
        }
    }

    fn base64(kept: &[u8], seen: &[u8]) -> Output {
        Output {
            base64: Some(STANDARD.encode(kept)),
            ..of(kept, seen)
        }
    }

    fn blob(kept: &[u8], seen: &[u8]) -> Output {
        Output {
            blob: Some(Hash::of(kept)),
            ..of(kept, seen)
        }
    }

    #[test]
    fn what_a_capture_writes_is_in_order() {
        for good in [
            text("", ""),
            text("día\t1\n", "día\t1\n"),
            text("ab", "abcd"),
            text("", "abcd"),
            base64(b"\xff\0", b"\xff\0"),
            base64(b"\xff", b"\xff\0\0"),
            blob(b"many", b"many"),
            blob(b"many", b"many more"),
        ] {
            assert_eq!(good.disorder(), None, "{good:?}");
        }
    }

    #[test]
    fn kept_bytes_their_number_and_their_hash_agree() {
        let bad = [
            of(b"", b""),
            Output {
                base64: Some(String::new()),
                ..text("", "")
            },
            Output {
                blob: Some(Hash::of(b"a")),
                ..text("a", "a")
            },
            Output {
                kept: U53::from(2),
                ..text("ab", "a")
            },
            Output {
                kept: U53::from(1),
                ..text("ab", "ab")
            },
            Output {
                sha256: Hash::of(b"something else"),
                ..text("ab", "ab")
            },
            Output {
                sha256: Hash::of(b"something else"),
                ..base64(b"\xff", b"\xff")
            },
            Output {
                sha256: Hash::of(b"something else"),
                ..blob(b"many", b"many")
            },
            text("a\u{7}", "a\u{7}"),
            text("a\r\n", "a\r\n"),
            text("\u{9b}1m", "\u{9b}1m"),
            // Without padding, with bits behind the last byte, of another alphabet, with a newline.
            Output {
                base64: Some("/w".to_owned()),
                ..base64(b"\xff", b"\xff")
            },
            Output {
                base64: Some("/x==".to_owned()),
                ..base64(b"\xff", b"\xff")
            },
            Output {
                base64: Some("_w==".to_owned()),
                ..base64(b"\xff", b"\xff")
            },
            Output {
                base64: Some("/w==\n".to_owned()),
                ..base64(b"\xff", b"\xff")
            },
        ];
        for bad in bad {
            assert!(bad.disorder().is_some(), "{bad:?}");
        }
    }
}
