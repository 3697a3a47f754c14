//! Moments as records write them. This crate has no clock: whoever appends hands a [`Stamp`] in.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike as _, NaiveDate, Timelike as _};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use super::canon::U53;

/// The text form, a `0` for each digit.
const FORM: &[u8; 27] = b"0000-00-00T00:00:00.000000Z";

/// A UTC moment in microseconds; its only text form is `2026-11-29T21:22:00.123456Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    micros: i64,
}

impl Timestamp {
    /// From microseconds since 1970-01-01T00:00:00Z; `None` outside the years 0 to 9999.
    #[must_use]
    pub fn from_unix_micros(micros: i64) -> Option<Self> {
        let year = DateTime::from_timestamp_micros(micros)?.year();
        (0..=9999).contains(&year).then_some(Self { micros })
    }

    /// The text form; `None` outside the years 0 to 9999.
    fn text(self) -> Option<[u8; FORM.len()]> {
        let time = DateTime::from_timestamp_micros(self.micros)?;
        let mut text = *FORM;
        let mut put = |at: std::ops::Range<usize>, mut value: u32| {
            for place in text.get_mut(at)?.iter_mut().rev() {
                *place = b'0' + u8::try_from(value % 10).ok()?;
                value /= 10;
            }
            (value == 0).then_some(())
        };
        put(0..4, u32::try_from(time.year()).ok()?)?;
        put(5..7, time.month())?;
        put(8..10, time.day())?;
        put(11..13, time.hour())?;
        put(14..16, time.minute())?;
        put(17..19, time.second())?;
        put(20..26, time.timestamp_subsec_micros())?;
        Some(text)
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes: &[u8; FORM.len()] = text.as_bytes().try_into().ok()?;
        let fits = bytes.iter().zip(FORM).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            _ => byte == form,
        });
        if !fits {
            return None;
        }
        let number = |at: std::ops::Range<usize>| -> Option<u32> { text.get(at)?.parse().ok() };
        let year = i32::try_from(number(0..4)?).ok()?;
        let date = NaiveDate::from_ymd_opt(year, number(5..7)?, number(8..10)?)?;
        let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
        // No leap seconds: 60 is refused here.
        let time = date.and_hms_micro_opt(hour, minute, second, number(20..26)?)?;
        Self::from_unix_micros(time.and_utc().timestamp_micros())
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
        let text = self.text().ok_or(fmt::Error)?;
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        Self::parse(text).ok_or_else(|| TimestampError(text.chars().take(80).collect()))
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
            "2026-11-29T24:22:00.123456Z",
            "2026-11-29T21:60:00.123456Z",
            "2026-13-29T21:22:00.123456Z",
            "2026-00-29T21:22:00.123456Z",
            "2026-11-29T21:22:00.123456z",
            "2026-11-29t21:22:00.123456Z",
            "2026-11-29T21:22:00,123456Z",
            "+026-11-29T21:22:00.123456Z",
            "2026-11-29T21:22:+0.123456Z",
            "2026-11-29T21:22:00.12345\u{e9}",
            "+12026-11-29T21:22:00.123456Z",
            "2026-02-30T21:22:00.123456Z",
            "",
        ] {
            assert!(other.parse::<Timestamp>().is_err(), "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn texts_are_what_chrono_writes_and_read_back(
            micros in -62_167_219_200_000_000i64..253_402_300_800_000_000,
        ) {
            let time = Timestamp::from_unix_micros(micros).unwrap();
            let text = time.to_string();
            let other = DateTime::from_timestamp_micros(micros).unwrap();
            proptest::prop_assert_eq!(&text, &other.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string());
            proptest::prop_assert_eq!(text.parse::<Timestamp>(), Ok(time));
        }
    }

    #[test]
    fn years_have_four_digits() {
        for (micros, inside) in [
            (-62_167_219_200_000_001, false),
            (-62_167_219_200_000_000, true),
            (253_402_300_799_999_999, true),
            (253_402_300_800_000_000, false),
            (i64::MAX, false),
            (i64::MIN, false),
        ] {
            assert_eq!(Timestamp::from_unix_micros(micros).is_some(), inside);
        }
    }
}
