//! How a key hands over to another (TRUST.md §4).

use super::{Chain, bad_key, is_signed};
use crate::bytes::key::{Message, PublicKey};
use crate::finding::{Code, Finding};
use crate::record::{Body, Content, Custody, KeyChange, ParsedLine, Record};

impl Chain {
    pub(super) fn signed_by_standby(&self, parsed: &ParsedLine) -> bool {
        let by_standby =
            self.standby.is_some() && parsed.frame.as_ref().map(|frame| frame.key) == self.standby;
        by_standby
            && matches!(&parsed.content, Ok(Content::Record(record)) if matches!(record.body, Body::Key(_)))
    }

    /// The new key, when the record shows that it may take over.
    pub(super) fn check_rotation(
        &self,
        change: &KeyChange,
        record: &Record,
        parsed: &ParsedLine,
        bytes: &[u8],
        standby_signs: bool,
        say: &mut dyn FnMut(Finding),
    ) -> Option<(PublicKey, Custody)> {
        let mut invalid = |message: &str| say(Finding::new(Code::RotationInvalid, message));
        let key = match PublicKey::from_bytes(&change.public_key.0) {
            Ok(key) => key,
            Err(error) => {
                say(bad_key(error));
                return None;
            }
        };
        if self.keys.iter().any(|earlier| earlier.key.id() == key.id()) {
            invalid("the new key was active before");
        }
        if standby_signs {
            if Some(key.id()) != self.standby {
                invalid("a record signed by the standby key must name that key as the new one");
                return None;
            }
            if change.possession.is_some() {
                invalid("a record signed by the standby key holds no possession");
            }
            let frame = parsed.frame.as_ref();
            if !frame.is_some_and(|frame| is_signed(&key, frame, bytes)) {
                say(Finding::new(
                    Code::SignatureInvalid,
                    "the signature is not the standby key's over this record",
                ));
            }
        } else {
            let sequence = record.sequence.value();
            let (ledger, previous, id) = (&record.ledger, &record.previous, key.id());
            let message = Message::Possession {
                ledger,
                sequence,
                previous,
                key: &id,
            };
            match &change.possession {
                None => invalid("no possession shows that the new key is held"),
                Some(possession) if !key.verifies(message, possession) => {
                    invalid("the possession is not the new key's for this place");
                }
                Some(_) => {}
            }
            if change.standby.is_some() {
                invalid("only a record signed by the standby key may name another");
            }
        }
        Some((key, change.custody))
    }
}
