//! The clocks of records (clock_gettime(2)).

use std::io;
use std::num::TryFromIntError;

use ledger::bytes::canon::U53;
use ledger::bytes::time::{BootId, BootIdError, Clock, Stamp, Timestamp};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why the time could not be told.
#[derive(Debug, thiserror::Error)]
pub enum ReadClockError {
    /// The file of the boot id could not be read.
    #[error("cannot read {BOOT_ID}")]
    ReadBootId(#[source] io::Error),
    /// It holds something else.
    #[error("{BOOT_ID} does not hold a boot id")]
    BootId(#[from] BootIdError),
    /// The kernel has no such clock.
    #[error("cannot read the clock {clock}")]
    Read {
        /// Which.
        clock: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The clock shows what no record can hold.
    #[error("the clock {clock} shows {seconds} s, expected a time in the years 0 to 9999")]
    OutOfRange {
        /// Which.
        clock: &'static str,
        /// What it shows.
        seconds: i64,
    },
}

/// Which boot this is.
///
/// # Errors
/// /proc does not tell.
pub fn boot_id() -> Result<BootId, ReadClockError> {
    let text = crate::sys::pseudo::read_text(BOOT_ID).map_err(ReadClockError::ReadBootId)?;
    Ok(text.trim_end().parse()?)
}

/// Both clocks now.
///
/// # Errors
/// A clock cannot be read, or shows what no record can hold.
pub fn now(boot_id: &BootId) -> Result<Stamp, ReadClockError> {
    const WALL: &str = "CLOCK_REALTIME";
    const BOOT: &str = "CLOCK_BOOTTIME";
    let wall = read(ClockId::CLOCK_REALTIME, WALL)?;
    let boot = read(ClockId::CLOCK_BOOTTIME, BOOT)?;
    let out_of_range = |clock, time: TimeSpec| ReadClockError::OutOfRange {
        clock,
        seconds: time.tv_sec(),
    };
    let time = micros(wall)
        .and_then(Timestamp::from_unix_micros)
        .ok_or(out_of_range(WALL, wall))?;
    let since_boot = micros(boot)
        .map(u64::try_from)
        .and_then(Result::<_, TryFromIntError>::ok);
    let since_boot_us = since_boot
        .and_then(U53::new)
        .ok_or(out_of_range(BOOT, boot))?;
    Ok(Stamp {
        time,
        clock: Clock {
            boot_id: boot_id.clone(),
            since_boot_us,
        },
    })
}

fn read(clock: ClockId, name: &'static str) -> Result<TimeSpec, ReadClockError> {
    clock_gettime(clock).map_err(|errno| ReadClockError::Read {
        clock: name,
        source: errno.into(),
    })
}

fn micros(time: TimeSpec) -> Option<i64> {
    time.tv_sec()
        .checked_mul(1_000_000)?
        .checked_add(time.tv_nsec() / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_never_goes_back_and_both_are_of_this_boot() {
        let boot = boot_id().unwrap();
        let (first, second) = (now(&boot).unwrap(), now(&boot).unwrap());
        assert!(second.clock.since_boot_us >= first.clock.since_boot_us);
        assert_eq!(first.clock.boot_id, boot);
        assert_eq!(micros(TimeSpec::new(i64::MAX, 0)), None);
        assert_eq!(micros(TimeSpec::new(2, 3_999)), Some(2_000_003));
    }
}
