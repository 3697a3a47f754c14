//! As much of a resolver as a listener needs (RFC 1035 §4): it answers one name and all below it.

/// Bytes of a header.
const HEADER: usize = 12;
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;

/// Who asks for what.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// The name, in lower case, without the final dot.
    pub(super) name: String,
    kind: u16,
    /// Where the question ends.
    end: usize,
}

/// A query of one question; `None` for anything else.
pub(super) fn read(message: &[u8]) -> Option<Query> {
    let number = |at: usize| {
        Some(u16::from_be_bytes([
            *message.get(at)?,
            *message.get(at + 1)?,
        ]))
    };
    // QR and OPCODE: a standard query.
    if message.get(2)? & 0b1111_1000 != 0 || number(4)? != 1 {
        return None;
    }
    let (mut at, mut labels) = (HEADER, Vec::new());
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        match length {
            0 => break,
            1..=63 => {
                let label = message.get(at..at + length)?;
                labels.push(std::str::from_utf8(label).ok()?.to_ascii_lowercase());
                at += length;
            }
            // A pointer: there is nothing in a question to point at.
            _ => return None,
        }
    }
    let (kind, class) = (number(at)?, number(at + 2)?);
    (class == CLASS_IN).then(|| Query {
        name: labels.join("."),
        kind,
        end: at + 4,
    })
}

/// The answer: 127.0.0.1 for an address of IPv4, nothing for any other kind.
pub(super) fn answer(message: &[u8], query: &Query) -> Option<Vec<u8>> {
    let question = message.get(HEADER..query.end)?;
    let mut answer = message.get(..2)?.to_vec();
    let found = u8::from(query.kind == TYPE_A);
    // QR, AA, the query's RD; RA; one question, the answers, nothing else.
    answer.extend([0x84 | message.get(2)? & 1, 0x80, 0, 1, 0, found, 0, 0, 0, 0]);
    answer.extend(question);
    if found == 1 {
        // The name of the question, A, IN, no caching, four bytes.
        answer.extend([
            0xc0,
            HEADER as u8,
            0,
            1,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            4,
            127,
            0,
            0,
            1,
        ]);
    }
    Some(answer)
}

/// A query for the address of `name`.
pub(super) fn ask(name: &str, id: u16) -> Vec<u8> {
    let mut query = id.to_be_bytes().to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_answered() {
        let query = ask("Ab12.localhost", 0x1234);
        let read_back = read(&query).unwrap();
        assert_eq!(read_back.name, "ab12.localhost");
        let answer = answer(&query, &read_back).unwrap();
        assert_eq!(answer[..4], [0x12, 0x34, 0x85, 0x80]);
        assert_eq!(answer[4..12], [0, 1, 0, 1, 0, 0, 0, 0]);
        assert!(answer.ends_with(&[0, 4, 127, 0, 0, 1]));
        assert_eq!(answer[12..query.len()], query[12..]);
    }

    #[test]
    fn another_kind_is_answered_with_nothing_and_garbage_not_at_all() {
        let mut query = ask("x.localhost", 7);
        let kind = query.len() - 3;
        query[kind] = 28; // AAAA
        let answer = answer(&query, &read(&query).unwrap()).unwrap();
        assert_eq!((answer.len(), answer[7]), (query.len(), 0));
        for cut in 0..query.len() {
            assert_eq!(read(&query[..cut]), None, "{cut}");
        }
        query[12] = 0xc0;
        assert_eq!(read(&query), None);
        query[2] |= 0x80;
        assert_eq!(read(&query), None);
    }
}
