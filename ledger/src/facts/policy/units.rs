//! Limits as a command line writes them: `512M`, `0.5`, `30s`.

use crate::bytes::canon::U53;

/// A text that is no such limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found {found:?}, expected {expected}")]
pub struct UnitError {
    found: String,
    expected: &'static str,
}

fn error(text: &str, expected: &'static str) -> UnitError {
    UnitError {
        found: super::json::shorten(text),
        expected,
    }
}

/// Digits only, at least one, and their value; then what follows them.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

/// MiB from `512M`, `2G` or `1T`; a number alone is MiB.
///
/// # Errors
/// Another form, zero, or more than 2^53-1 MiB.
pub fn memory_mb(text: &str) -> Result<U53, UnitError> {
    let bad = || error(text, "an amount of memory such as 512M or 2G (at least 1M)");
    let (number, unit) = leading_number(text).ok_or_else(bad)?;
    let factor = match unit {
        "" | "M" | "m" | "Mi" | "MiB" => 1,
        "G" | "g" | "Gi" | "GiB" => 1 << 10,
        "T" | "t" | "Ti" | "TiB" => 1 << 20,
        _ => return Err(bad()),
    };
    let value = number.checked_mul(factor).and_then(U53::new);
    value.filter(|value| *value > U53::ZERO).ok_or_else(bad)
}

/// Thousandths of a CPU from `0.5`, `2` or `1.25`; exact, at most three decimals.
///
/// # Errors
/// Another form, zero, or more than 2^53-1 thousandths.
pub fn cpu_millis(text: &str) -> Result<U53, UnitError> {
    let bad = || error(text, "a number of CPUs such as 0.5 or 2 (at least 0.001)");
    let (whole, rest) = leading_number(text).ok_or_else(bad)?;
    let thousandths = match rest.strip_prefix('.') {
        None if rest.is_empty() => 0,
        Some(decimals) if (1..=3).contains(&decimals.len()) => {
            match leading_number(&format!("{decimals:0<3}")) {
                Some((value, "")) => value,
                _ => return Err(bad()),
            }
        }
        _ => return Err(bad()),
    };
    let value = whole
        .checked_mul(1000)
        .and_then(|whole| whole.checked_add(thousandths));
    let value = value.and_then(U53::new);
    value.filter(|value| *value > U53::ZERO).ok_or_else(bad)
}

/// Milliseconds from `30s`, `500ms`, `5m` or `2h`.
///
/// # Errors
/// Another form, zero, or more than 2^53-1 milliseconds.
pub fn timeout_ms(text: &str) -> Result<U53, UnitError> {
    let bad = || {
        error(
            text,
            "a duration such as 500ms, 30s, 5m or 2h (at least 1ms)",
        )
    };
    let (number, unit) = leading_number(text).ok_or_else(bad)?;
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(bad()),
    };
    let value = number.checked_mul(factor).and_then(U53::new);
    value.filter(|value| *value > U53::ZERO).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_exactly() {
        for (text, value) in [("512M", 512), ("2G", 2048), ("1T", 1 << 20), ("64", 64)] {
            assert_eq!(memory_mb(text).map(U53::value), Ok(value), "{text}");
        }
        for (text, value) in [("0.5", 500), ("2", 2000), ("1.25", 1250), ("0.001", 1)] {
            assert_eq!(cpu_millis(text).map(U53::value), Ok(value), "{text}");
        }
        for (text, value) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(timeout_ms(text).map(U53::value), Ok(value), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "M",
            "0",
            "0M",
            "-1M",
            "1.5G",
            "512K",
            "512 M",
            "é",
            "99999999999999999999",
            "9007199254740991T",
        ] {
            assert!(memory_mb(text).is_err(), "{text}");
        }
        for text in [
            "",
            "0",
            "0.0",
            ".5",
            "1.",
            "1.2345",
            "1e3",
            "+1",
            "0.-5",
            "9007199254740991",
        ] {
            assert!(cpu_millis(text).is_err(), "{text}");
        }
        for text in ["", "30", "0s", "1.5s", "1d", "s", "-1s"] {
            assert!(timeout_ms(text).is_err(), "{text}");
        }
    }
}
