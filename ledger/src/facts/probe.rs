//! The line in which a probe says what one check saw (PROBES.md §1 rule 9).
//!
//! ```text
//! probe=network-tcp4 dimension=network check=tcp4 result=contained errno=ENETUNREACH twin=ok nonce=5f0c… detail=10.0.2.2:4711
//! ```
//!
//! One line a check, without its newline; fields in exactly this order, one space between two, no field
//! twice. A probe of the suite writes all eight; a third party may leave out `check`, `errno`, `twin`,
//! `nonce` and `detail`, each for itself ([`ProbeLine::absent`] says what is missing). `detail` is last and
//! takes the rest of the line, spaces and `=` included.
//!
//! | field | value |
//! |---|---|
//! | `probe`, `check` | [`ProbeName`]: 1 to 64 of `a-z 0-9 . _ -`, a letter or digit first |
//! | `dimension` | the name of a [`Control`] |
//! | `result` | `contained escaped error` |
//! | `errno` | `none`, or the name of an error or a signal: `E…`, `SIG…`, 2 to 32 of `A-Z 0-9` |
//! | `twin` | `ok failed none` |
//! | `nonce` | 8 to 64 bytes in lower-case hexadecimal digits |
//! | `detail` | 1 to 1,024 bytes of UTF-8 without control characters |
//!
//! A line is what a hostile program printed. Reading is total and strict: what is accepted is what writing
//! it again gives, byte for byte, and every refusal names the byte, what stands there and what was expected.
//! What a line claims is not judged here: `result=contained` is a claim, the verdict is made from both sides.

mod fields;
mod grammar;

use super::control::Control;

pub use fields::{
    Detail, Errno, ErrnoName, Field, Nonce, ProbeName, ProbeResult, ProbeValueError, Twin,
};
pub use grammar::ParseProbeLineError;

/// Longest line that is read, in bytes, without its newline. No line of valid fields is longer.
pub const MAX_PROBE_LINE_BYTES: usize = 2_048;
/// Longest `probe` or `check`, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Longest name of an error or a signal, in bytes.
pub const MAX_ERRNO_BYTES: usize = 32;
/// Fewest and most bytes of a nonce; it is written with two digits for each.
pub const NONCE_BYTES: std::ops::RangeInclusive<usize> = 8..=64;
/// Longest `detail`, in bytes.
pub const MAX_DETAIL_BYTES: usize = 1_024;

/// What one check of a probe says that it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeLine {
    /// The probe.
    pub probe: ProbeName,
    /// The control that it attacks.
    pub dimension: Control,
    /// Which of the control's checks; with the dimension the check's id ([`ProbeLine::check_id`]).
    pub check: Option<ProbeName>,
    /// What the probe says came of it.
    pub result: ProbeResult,
    /// How the attack failed.
    pub errno: Option<Errno>,
    /// Whether an allowed operation of the same kind succeeded.
    pub twin: Option<Twin>,
    /// The secret of this run.
    pub nonce: Option<Nonce>,
    /// More about it, for people.
    pub detail: Option<Detail>,
}

impl ProbeLine {
    /// `dimension/check`, such as `network/tcp4`; `None` when the line names no check.
    #[must_use]
    pub fn check_id(&self) -> Option<String> {
        let check = self.check.as_ref()?;
        Some(format!("{}/{check}", self.dimension))
    }

    /// The fields that the line leaves out; none in a line of the suite's own probes.
    #[must_use]
    pub fn absent(&self) -> Vec<Field> {
        [
            (Field::Check, self.check.is_none()),
            (Field::Errno, self.errno.is_none()),
            (Field::Twin, self.twin.is_none()),
            (Field::Nonce, self.nonce.is_none()),
            (Field::Detail, self.detail.is_none()),
        ]
        .into_iter()
        .filter_map(|(field, absent)| absent.then_some(field))
        .collect()
    }
}

#[cfg(test)]
mod tests;
