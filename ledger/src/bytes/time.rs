//! Moments as records write them. This crate has no clock: whoever appends hands a [`Stamp`] in.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDateTime};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use super::canon::U53;

const FORM: &str = "%Y-%m-%dT%H:%M:%S%.6fZ";

/// A UTC moment in microseconds; its only text form is `2026-11-29T21:22:00.123456Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    micros: i64,
}

impl Timestamp {
    /// From microseconds since 1970-01-01T00:00:00Z; `None` outside the years 0 to 9999.
    #[must_use]
    pub fn from_unix_micros(micros: i64) -> Option<Self> {
        let year = DateTime::from_timestamp_micros(micros)?
            .format("%Y")
            .to_string();
        (year.len() == 4).then_some(Self { micros })
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn unix_micros(self) -> i64 {
        self.micros
    }
}

/// A text that is not a moment in the one form that records use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a time such as 2026-11-29T21:22:00.123456Z, found {0:?}")]
pub struct TimestampError(String);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_micros(self.micros) {
            Some(time) => write!(f, "{}", time.format(FORM)),
            None => Err(fmt::Error),
        }
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    // Parse, print again, compare: leap seconds, offsets and missing digits die here.
    fn from_str(text: &str) -> Result<Self, TimestampError> {
        NaiveDateTime::parse_from_str(text, FORM)
            .ok()
            .and_then(|time| Self::from_unix_micros(time.and_utc().timestamp_micros()))
            .filter(|time| time.to_string() == text)
            .ok_or_else(|| TimestampError(text.chars().take(80).collect()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A kernel boot id (`/proc/sys/kernel/random/boot_id`): a lower-case UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootId(String);

/// A text that is not a lower-case UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a lower-case UUID, found {0:?}")]
pub struct BootIdError(String);

impl FromStr for BootId {
    type Err = BootIdError;

    fn from_str(text: &str) -> Result<Self, BootIdError> {
        let fits = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            });
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(BootIdError(text.chars().take(80).collect()))
        }
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for BootId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for BootId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Time that does not step: which boot, and microseconds of CLOCK_BOOTTIME since it began.
#[derive(Clone, Debug, PartialEq, Eq, DeriveSerialize, DeriveDeserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Clock {
    /// The kernel's boot id.
    pub boot_id: BootId,
    /// Microseconds of CLOCK_BOOTTIME.
    pub since_boot_us: U53,
}

/// Both clocks at the moment of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The wall clock.
    pub time: Timestamp,
    /// The boot clock.
    pub clock: Clock,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_form() {
        let text = "2026-11-29T21:22:00.123456Z";
        let time: Timestamp = text.parse().unwrap();
        assert_eq!(time.to_string(), text);
        for other in [
            "2026-11-29T21:22:00.12345Z",
            "2026-11-29T21:22:00Z",
            "2026-11-29T21:22:00.123456+00:00",
            "2026-11-29 21:22:00.123456Z",
            "2026-11-29T21:22:60.123456Z",
            "+12026-11-29T21:22:00.123456Z",
            "2026-02-30T21:22:00.123456Z",
            "",
        ] {
            assert!(other.parse::<Timestamp>().is_err(), "{other}");
        }
    }
}
