//! How many threads fit into the memory that this process may have.
//!
//! A thread that the system does not give is done without. But under a limit of the address space (`ulimit -v`,
//! RLIMIT_AS in getrlimit(2)) threads start as long as there is room for their stacks, and leave none for what
//! they then ask for: the first allocation that fails ends the process. So no more are asked for than have room.

use std::fs;
use std::num::NonZeroUsize;

use rustix::process::{Resource, getrlimit};

/// Address space of one thread, in bytes: its stack and, most of it, the arena in which malloc(3) of glibc keeps
/// what that thread allocates (64 MiB are reserved when it is made).
const EACH: u64 = 72 << 20;
/// Address space that is left to everything else, in bytes.
const REST: u64 = 32 << 20;

/// As many as are asked for, or as many as have room. At least one: this one, which is there.
pub(super) fn within_limits(asked: NonZeroUsize) -> NonZeroUsize {
    match getrlimit(Resource::As).current {
        None => asked,
        Some(limit) => asked.min(that_fit(limit, address_space())),
    }
}

/// How many fit below a limit, when so much is taken already; one, where that is not known.
fn that_fit(limit: u64, taken: Option<u64>) -> NonZeroUsize {
    let room = taken.map_or(0, |taken| limit.saturating_sub(taken).saturating_sub(REST));
    let more = usize::try_from(room / EACH).unwrap_or(usize::MAX);
    NonZeroUsize::MIN.saturating_add(more)
}

/// Address space of this process now, in bytes: `VmSize` of proc_pid_status(5).
fn address_space() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let size = text.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kib: u64 = size.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_fit_as_there_is_room_for() {
        let fit = |limit: u64, taken| that_fit(limit, taken).get();
        let taken = 8 << 20;
        assert_eq!(fit(0, Some(taken)), 1);
        assert_eq!(fit(taken, Some(taken)), 1);
        assert_eq!(fit(taken + REST + EACH - 1, Some(taken)), 1);
        assert_eq!(fit(taken + REST + EACH, Some(taken)), 2);
        assert_eq!(fit(taken + REST + 5 * EACH, Some(taken)), 6);
        assert_eq!(fit(u64::MAX, None), 1);
    }

    #[test]
    fn this_process_says_how_much_it_has() {
        let taken = address_space().unwrap();
        assert!(taken > 1 << 20, "{taken}");
    }
}
