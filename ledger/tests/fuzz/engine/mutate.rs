//! Changes that know nothing of a format but its words.

use super::random::Random;

/// Bytes at which readers part ways: ends, quotes, escapes, white space, signs, UTF-8 that is none.
const EDGES: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"\x0b",
    b"\x1b[2J",
    b"\x7f",
    b"\"",
    b"\\",
    b"/",
    b"\\u0000",
    b"\\ud800",
    b"\\u00e9",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"=",
    b"+",
    b"-",
    b"-0",
    b"0",
    b"00",
    b"1e2",
    b"1.0",
    b"0.5",
    b"9007199254740991",
    b"9007199254740992",
    b"-9007199254740993",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e400",
    b"null",
    b"true",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xf0\x9f\x92\xa9",
    b"\xc3\xa9",
    b"\n\n",
    b"\xe2\x80\x94 ",
];
const LENGTHS: &[usize] = &[
    1, 2, 16, 17, 255, 256, 1_024, 10_000, 65_535, 65_536, 69_000,
];

/// One change.
pub(crate) fn bytes(random: &mut Random, input: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str]) {
    let at = random.below(input.len() + 1);
    match random.below(10) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2 => insert(input, at, &[random.byte()]),
        3 => {
            let end = end(random, input, at);
            input.drain(at..end);
        }
        4 => {
            let end = end(random, input, at);
            let again = input[at..end].to_vec();
            insert(input, at, &again);
        }
        5 => {
            let other = random.pick(pool).map(Vec::as_slice).unwrap_or_default();
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        6 => insert(input, at, random.pick(EDGES).copied().unwrap_or_default()),
        7 => insert(
            input,
            at,
            random.pick(words).copied().unwrap_or_default().as_bytes(),
        ),
        8 => {
            let end = end(random, input, at);
            let by = random.pick(words).copied().unwrap_or_default();
            input.splice(at..end, by.bytes());
        }
        _ if random.below(16) == 0 => {
            let length = random.pick(LENGTHS).copied().unwrap_or_default();
            let filler = random.pick(EDGES).copied().unwrap_or(b"a");
            let long: Vec<u8> = filler.iter().copied().cycle().take(length).collect();
            insert(input, at, &long);
        }
        _ => {
            let (a, b) = (random.below(input.len()), random.below(input.len()));
            if a < input.len() && b < input.len() {
                input.swap(a, b);
            }
        }
    }
}

/// Random bytes, or words of the format in a random order.
pub(crate) fn noise(random: &mut Random, words: &[&str]) -> Vec<u8> {
    let length = random.below(200);
    if random.below(2) == 0 {
        return (0..length).map(|_| random.byte()).collect();
    }
    let mut noise = Vec::new();
    for _ in 0..length / 4 {
        match random.below(3) {
            0 => noise.extend_from_slice(random.pick(EDGES).copied().unwrap_or_default()),
            _ => noise.extend(random.pick(words).copied().unwrap_or_default().bytes()),
        }
    }
    noise
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}

fn end(random: &mut Random, input: &[u8], at: usize) -> usize {
    let most = match random.below(4) {
        0 => input.len(),
        _ => 8,
    };
    (at + 1 + random.below(most)).min(input.len()).max(at)
}
