//! Names and numbers of Linux system calls, as the kernel's own tables give them for x86_64
//! (arch/x86/entry/syscalls/syscall_64.tbl, `common` and `64`) and aarch64 (scripts/syscall.tbl).
//!
//! A name is known when one of the two architectures has it, so that one policy serves both: a call that an
//! architecture lacks can neither be made nor needs to be denied there. How many arguments each takes is what its
//! `SYSCALL_DEFINE` says, or 0 where no kernel ever had more of it than the number.

use std::sync::LazyLock;

/// One system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syscall {
    /// Its number on aarch64, where it exists there.
    pub aarch64: Option<u32>,
    /// How many arguments it takes, 6 at most; what stands in the other registers is none of it.
    pub arguments: u8,
    /// Its name.
    pub name: &'static str,
    /// Its number on x86_64, where it exists there.
    pub x86_64: Option<u32>,
}

/// Sorted by name: `name <tab> x86_64 <tab> aarch64 <tab> arguments`, `-` where it does not exist.
const TABLE: &str = include_str!("syscalls.tsv");

static CALLS: LazyLock<Vec<Syscall>> = LazyLock::new(|| TABLE.lines().filter_map(row).collect());

fn row(line: &'static str) -> Option<Syscall> {
    let mut fields = line.split('\t');
    let name = fields.next()?;
    let mut number = || fields.next().and_then(|field| field.parse().ok());
    let x86_64 = number();
    let aarch64 = number();
    let arguments = fields.next()?.parse().ok()?;
    Some(Syscall {
        aarch64,
        arguments,
        name,
        x86_64,
    })
}

/// Every known system call, sorted by name.
#[must_use]
pub fn all() -> &'static [Syscall] {
    &CALLS
}

/// The system call of this name.
#[must_use]
pub fn lookup(name: &str) -> Option<Syscall> {
    let at = CALLS.binary_search_by(|call| call.name.cmp(name)).ok()?;
    CALLS.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_sorted_and_has_a_number() {
        assert_eq!(all().len(), TABLE.lines().count());
        assert!(all().is_sorted_by(|a, b| a.name < b.name));
        assert!(all().iter().all(|call| call.arguments <= 6));
        assert!(
            all()
                .iter()
                .all(|call| call.x86_64.is_some() || call.aarch64.is_some())
        );
        for number in [|call: &Syscall| call.x86_64, |call: &Syscall| call.aarch64] {
            let mut numbers: Vec<_> = all().iter().filter_map(number).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), count, "one number, one call");
            assert!(count > 300);
        }
    }

    #[test]
    fn known_numbers() {
        let of = |name| lookup(name).map(|call| (call.x86_64, call.aarch64));
        assert_eq!(of("read"), Some((Some(0), Some(63))));
        assert_eq!(of("open"), Some((Some(2), None)));
        assert_eq!(of("getcpu"), Some((Some(309), Some(168))));
        assert_eq!(of("io_uring_setup"), Some((Some(425), Some(425))));
        assert_eq!(of("opne"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn known_arguments() {
        let of = |name| lookup(name).map(|call| call.arguments);
        assert_eq!(of("getpid"), Some(0));
        assert_eq!(of("getcpu"), Some(3));
        assert_eq!(of("ptrace"), Some(4));
        assert_eq!(of("mount"), Some(5));
        assert_eq!(of("mmap"), Some(6));
    }
}
