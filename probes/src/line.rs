//! The line that says what one check saw, and the proof that binds it to the run (PROBES.md §1 rule 9).

use crate::cause::Cause;
use crate::sha256::sha256;

/// What came of an attack, as the program inside sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It was refused.
    Contained,
    /// It succeeded.
    Escaped,
    /// It could not be tried.
    Error,
}

impl Claim {
    pub(crate) const ALL: [Self; 3] = [Self::Contained, Self::Escaped, Self::Error];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Contained => "contained",
            Self::Escaped => "escaped",
            Self::Error => "error",
        }
    }
}

/// What became of an allowed operation of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twin {
    /// It succeeded.
    Ok,
    /// It failed as well.
    Failed,
    /// There is none.
    None,
}

impl Twin {
    pub(crate) const ALL: [Self; 3] = [Self::Ok, Self::Failed, Self::None];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::None => "none",
        }
    }

    pub(crate) const fn of(succeeded: bool) -> Self {
        if succeeded { Self::Ok } else { Self::Failed }
    }
}

/// All that one check says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) claim: Claim,
    pub(crate) cause: Cause,
    pub(crate) twin: Twin,
    pub(crate) detail: String,
}

impl Seen {
    /// An attack that could not be tried, and why.
    pub(crate) fn error(cause: Cause, detail: impl Into<String>) -> Self {
        Self {
            claim: Claim::Error,
            cause,
            twin: Twin::None,
            detail: detail.into(),
        }
    }

    /// Something that the check needs is not there.
    pub(crate) fn missing(what: impl std::fmt::Display) -> Self {
        Self::error(Cause::None, format!("instrument-missing: {what}"))
    }
}

/// First line of what a proof hashes.
const PROOF_PREFIX: &str = "containment-ledger/probe/v1";
/// Stands where there is no secret to prove anything with; it proves nothing.
const NO_PROOF: &str = "0000000000000000";
/// Longest detail, in bytes.
const MAX_DETAIL_BYTES: usize = 1_024;

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The line of a check, with its newline.
pub(crate) fn line(control: &str, check: &str, secret: Option<&[u8]>, seen: &Seen) -> String {
    let (result, twin, cause) = (seen.claim.as_str(), seen.twin.as_str(), &seen.cause);
    let detail = printable(&seen.detail);
    let proof = secret.map_or_else(
        || NO_PROOF.to_owned(),
        |secret| {
            let secret = hex(secret);
            let text = format!(
                "{PROOF_PREFIX}\n{secret}\n{control}/{check}\n{result}\n{cause}\n{twin}\n{detail}\n"
            );
            hex(&sha256(text.as_bytes())[..16])
        },
    );
    format!(
        "probe={control} dimension={control} check={check} result={result} errno={cause} twin={twin} nonce={proof} detail={detail}\n"
    )
}

/// 1 to 1,024 bytes of printable ASCII: everything else as `\xhh`.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        let one = match byte {
            b' '..=b'~' => char::from(byte).to_string(),
            other => format!("\\x{other:02x}"),
        };
        if out.len() + one.len() > MAX_DETAIL_BYTES {
            break;
        }
        out.push_str(&one);
    }
    if out.is_empty() { "-".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::facts::measurement::proof;
    use ledger::facts::probe::{Errno, Nonce, ProbeLine, ProbeResult, Twin as TheirTwin};
    use proptest::prelude::*;

    #[test]
    fn every_proof_is_what_the_ledger_expects() {
        let secret = [0x5a; 16];
        for claim in Claim::ALL {
            for twin in Twin::ALL {
                for cause in [Cause::None, Cause::Errno(1), Cause::Signal(31)] {
                    let seen = Seen {
                        claim,
                        cause,
                        twin,
                        detail: "x".to_owned(),
                    };
                    let text = line("network", "tcp4", Some(&secret), &seen);
                    let read = ProbeLine::parse(text.trim_end().as_bytes()).unwrap();
                    let theirs = proof(
                        &Nonce::new(&secret).unwrap(),
                        "network/tcp4",
                        claim.as_str().parse::<ProbeResult>().unwrap(),
                        &cause.to_string().parse::<Errno>().unwrap(),
                        twin.as_str().parse::<TheirTwin>().unwrap(),
                        read.detail.as_ref().unwrap(),
                    );
                    assert_eq!(read.nonce.unwrap().to_string(), theirs, "{text}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_a_detail_holds_the_line_is_one(detail in ".{0,2000}", known in any::<bool>()) {
            let seen = Seen::error(Cause::None, detail);
            let secret = known.then_some(&[7_u8; 16][..]);
            let text = line("network", "tcp4", secret, &seen);
            let read = ProbeLine::parse(text.strip_suffix('\n').unwrap().as_bytes());
            prop_assert!(read.is_ok_and(|read| read.absent().is_empty()), "{}", text);
        }
    }
}
