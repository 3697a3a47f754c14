//! What the runner says on standard input: lines `key=value`, the first `nonce=<hex>`, the last `end`.
//!
//! Whoever writes there is not known to be the runner: reading is total, bounded, and every fault has a name.

use std::fmt;

/// Most bytes that are read.
pub(crate) const MAX_BYTES: usize = 65_536;

/// What the checks are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    secret: Vec<u8>,
    values: Vec<(String, String)>,
}

/// What is wrong with a text of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Empty,
    TooLong,
    NotText,
    NoNonce,
    NotALine(usize),
    NonceTwice,
    Cut,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no parameters on standard input"),
            Self::TooLong => write!(f, "parameters of more than {MAX_BYTES} bytes"),
            Self::NotText => f.write_str("parameters that are not UTF-8"),
            Self::NoNonce => f.write_str("the first parameter is not nonce= of 8 to 64 bytes"),
            Self::NotALine(number) => write!(f, "line {number} of the parameters is not key=value"),
            Self::NonceTwice => f.write_str("nonce= stands twice"),
            Self::Cut => f.write_str("the parameters were cut before their end"),
        }
    }
}

/// A fault, and the secret as far as it could be read, so that even the error is bound to the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) problem: Problem,
    pub(crate) secret: Option<Vec<u8>>,
}

impl Parameters {
    /// Reads them.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Unusable> {
        let mut found = Self {
            secret: Vec::new(),
            values: Vec::new(),
        };
        let stopped = read(bytes, &mut found).err();
        match stopped {
            None => Ok(found),
            Some(problem) => Err(Unusable {
                problem,
                secret: Some(found.secret).filter(|secret| !secret.is_empty()),
            }),
        }
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// What is sent to whoever is reached.
    pub(crate) fn greeting(&self, check: &str) -> Vec<u8> {
        format!("{} {check}\n", crate::line::hex(&self.secret)).into_bytes()
    }

    /// Every value of a key.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.values
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn first<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        self.all(key).next()
    }

    /// A number; `None` when the key is missing or holds none.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.first(key)?.parse().ok()
    }
}

fn read(bytes: &[u8], found: &mut Parameters) -> Result<(), Problem> {
    if bytes.is_empty() {
        return Err(Problem::Empty);
    }
    if bytes.len() > MAX_BYTES {
        return Err(Problem::TooLong);
    }
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    let mut next = |what: Problem| -> Result<(usize, &str), Problem> {
        let (index, line) = lines.next().ok_or_else(|| what.clone())?;
        let whole = line.strip_suffix(b"\n").ok_or(what)?;
        let text = std::str::from_utf8(whole).map_err(|_| Problem::NotText)?;
        Ok((index + 1, text))
    };
    let (_, first) = next(Problem::NoNonce)?;
    let nonce = first.strip_prefix("nonce=").ok_or(Problem::NoNonce)?;
    found.secret = unhex(nonce)
        .filter(|secret| (8..=64).contains(&secret.len()))
        .ok_or(Problem::NoNonce)?;
    loop {
        let (number, line) = next(Problem::Cut)?;
        if line == "end" {
            return Ok(());
        }
        let (key, value) = line.split_once('=').ok_or(Problem::NotALine(number))?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if key.is_empty() || !key.bytes().all(plain) || value.is_empty() {
            return Err(Problem::NotALine(number));
        }
        if key == "nonce" {
            return Err(Problem::NonceTwice);
        }
        found.values.push((key.to_owned(), value.to_owned()));
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    bytes.collect::<Option<_>>().filter(|_| odd.is_empty())
}

#[cfg(test)]
pub(crate) fn of(values: &[(&str, &str)]) -> Parameters {
    let mut text = String::from("nonce=5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\n");
    for (key, value) in values {
        text.push_str(&format!("{key}={value}\n"));
    }
    text.push_str("end\n");
    Parameters::parse(text.as_bytes()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONCE: &str = "nonce=00112233445566778899aabbccddeeff\n";

    #[test]
    fn keys_repeat_and_keep_their_order() {
        let text =
            format!("{NONCE}tcp4=127.0.0.1:1\nread=/a=b c\ntcp4=127.0.0.1:2\nlimit=7\nend\n");
        let read = Parameters::parse(text.as_bytes()).unwrap();
        let all: Vec<_> = read.all("tcp4").collect();
        assert_eq!(all, ["127.0.0.1:1", "127.0.0.1:2"]);
        assert_eq!(read.first("read"), Some("/a=b c"));
        assert_eq!(read.number("limit"), Some(7));
        assert_eq!(read.number("read"), None);
        assert_eq!(read.secret().len(), 16);
        assert_eq!(
            read.greeting("network/tcp4"),
            b"00112233445566778899aabbccddeeff network/tcp4\n"
        );
    }

    #[test]
    fn every_fault_has_its_name() {
        let long = format!("{NONCE}{}", "a=b\n".repeat(MAX_BYTES / 4));
        for (text, problem, bound) in [
            ("", Problem::Empty, false),
            ("\n", Problem::NoNonce, false),
            ("nonce=00\nend\n", Problem::NoNonce, false),
            ("nonce=0011223344556677", Problem::NoNonce, false),
            ("end\n", Problem::NoNonce, false),
            (NONCE, Problem::Cut, true),
            (&format!("{NONCE}end"), Problem::Cut, true),
            (&format!("{NONCE}a=b\n"), Problem::Cut, true),
            (&format!("{NONCE}ab\nend\n"), Problem::NotALine(2), true),
            (&format!("{NONCE}a=\nend\n"), Problem::NotALine(2), true),
            (&format!("{NONCE}A=b\nend\n"), Problem::NotALine(2), true),
            (
                &format!("{NONCE}a=b\n{NONCE}end\n"),
                Problem::NonceTwice,
                true,
            ),
            (&long, Problem::TooLong, false),
        ] {
            let unusable = Parameters::parse(text.as_bytes()).unwrap_err();
            assert_eq!(unusable.problem, problem, "{text:.80}");
            assert_eq!(unusable.secret.is_some(), bound, "{text:.80}");
        }
        let unusable = Parameters::parse(b"\xff\xfe\n").unwrap_err();
        assert_eq!(unusable.problem, Problem::NotText);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Parameters::parse(&bytes);
        }

        #[test]
        fn a_text_that_is_cut_anywhere_is_refused(at in 0_usize..90) {
            let text = format!("{NONCE}tcp4=127.0.0.1:4711\nread=/etc/shadow\nend\n");
            prop_assert!(Parameters::parse(&text.as_bytes()[..at.min(text.len() - 1)]).is_err());
        }
    }
}
