//! Which system calls fail: a policy's names compiled to a seccomp filter.
//!
//! seccompiler writes the rules that look at arguments; it would kill on a foreign architecture and does not look at
//! x32, so its three opening instructions are replaced by a head of our own: another architecture, or a number of
//! 0x4000_0000 and above (x32), gives EPERM. A list of names is matched by one comparison each, where seccompiler takes
//! five instructions: the kernel checks and translates every one of them in each run. Denied calls give EPERM and the
//! workload lives to tell.

use std::collections::{BTreeMap, BTreeSet};

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use crate::sys::filter::Instruction;

/// First number of the x32 system calls.
const X32_BIT: u32 = 0x4000_0000;
/// `AUDIT_ARCH_*` (linux/audit.h).
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const AUDIT_ARCH_AARCH64: u32 = 0xc000_00b7;

const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const NUMBER_OFFSET: u32 = 0; // seccomp_data.nr
const ARCH_OFFSET: u32 = 4; // seccomp_data.arch
const RETURN_ERRNO: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
const RETURN_ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const RETURN_EPERM: u32 = RETURN_ERRNO | libc::EPERM as u32;

/// An architecture that filters are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Architecture {
    /// The one that this program was built for; `None` where no filter can be made.
    #[must_use]
    pub const fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => AUDIT_ARCH_X86_64,
            Self::Aarch64 => AUDIT_ARCH_AARCH64,
        }
    }

    const fn target(self) -> TargetArch {
        match self {
            Self::X86_64 => TargetArch::x86_64,
            Self::Aarch64 => TargetArch::aarch64,
        }
    }

    /// The number of a system call; `None` when this architecture has no call of that name.
    #[must_use]
    pub fn number(self, name: &str) -> Option<i64> {
        // The table that the policy's names were checked against, so that no name is known there and not here.
        let call = ledger::facts::policy::syscalls::lookup(name)?;
        let number = match self {
            Self::X86_64 => call.x86_64,
            Self::Aarch64 => call.aarch64,
        };
        number.map(i64::from)
    }
}

/// What a policy says about system calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calls<'a> {
    /// Everything but these fails.
    Allow(&'a [String]),
    /// These fail.
    Deny(&'a [String]),
}

/// Why no filter could be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileFilterError {
    /// A name that no architecture knows; the policy parser refuses those first.
    #[error("no system call is named {0:?}")]
    UnknownCall(String),
    /// An empty list would be no filter at all, or one that lets nothing run.
    #[error("the list of system calls is empty on this architecture")]
    Empty,
    /// seccompiler refused.
    #[error("the filter does not compile")]
    Backend(#[from] seccompiler::BackendError),
}

/// Bits that make a program run as its owner or group.
const SET_ID_BITS: [u64; 2] = [0o4000, 0o2000];
/// Flags with which opening makes a file: O_CREAT, and the bit that only O_TMPFILE has.
const CREATING: [u64; 2] = [libc::O_CREAT as u64, 0o20_000_000];
/// Families that a network namespace holds (address_families(7)). AF_VSOCK, for one, belongs to the machine.
const HELD_FAMILIES: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// The filters that every sandbox has, whatever its policy says about system calls:
///
/// - no file gets a set-user-id or set-group-id bit: below a writable folder it would act for the folder's owner on
///   the host (calls whose mode cannot be seen here, openat2 and io_uring, are not there or denied);
/// - no socket of a family that network namespaces do not hold, where the network is restricted;
/// - no resource limit of pid 1 is changed.
///
/// # Errors
/// seccompiler refuses.
pub fn base(
    architecture: Architecture,
    network_is_own: bool,
) -> Result<Vec<Vec<Instruction>>, CompileFilterError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let has_bit = |argument: u8, bit: u64| {
        SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(bit),
            bit,
        )
    };
    for (name, mode) in [
        ("chmod", 1),
        ("fchmod", 1),
        ("fchmodat", 2),
        ("fchmodat2", 2),
        ("creat", 1),
        ("mknod", 1),
        ("mknodat", 2),
    ] {
        let Some(number) = architecture.number(name) else {
            continue;
        };
        for bit in SET_ID_BITS {
            rules
                .entry(number)
                .or_default()
                .push(SeccompRule::new(vec![has_bit(mode, bit)?])?);
        }
    }
    for (name, flags, mode) in [("open", 1, 2), ("openat", 2, 3)] {
        let Some(number) = architecture.number(name) else {
            continue;
        };
        for bit in SET_ID_BITS {
            for creating in CREATING {
                let rule = SeccompRule::new(vec![has_bit(flags, creating)?, has_bit(mode, bit)?])?;
                rules.entry(number).or_default().push(rule);
            }
        }
    }
    if let Some(number) = architecture.number("prlimit64") {
        let is_first = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 1)?;
        rules
            .entry(number)
            .or_default()
            .push(SeccompRule::new(vec![is_first])?);
    }
    if network_is_own && let Some(number) = architecture.number("socket") {
        let other: Result<Vec<_>, _> = HELD_FAMILIES
            .iter()
            .map(|family| {
                SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *family as u64)
            })
            .collect();
        rules
            .entry(number)
            .or_default()
            .push(SeccompRule::new(other?)?);
    }
    for name in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        rules.extend(architecture.number(name).map(|number| (number, Vec::new())));
    }
    let denied = assemble(rules, libc::EPERM, architecture)?;
    // A program that meets ENOSYS uses openat, which can be judged.
    let absent = architecture
        .number("openat2")
        .map(|number| (number, Vec::new()));
    let absent = assemble(absent.into_iter().collect(), libc::ENOSYS, architecture)?;
    Ok(vec![denied, absent])
}

fn assemble(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: libc::c_int,
    architecture: Architecture,
) -> Result<Vec<Instruction>, CompileFilterError> {
    let action = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture.target())?;
    let body: seccompiler::BpfProgram = filter.try_into()?;
    Ok(with_own_head(body, architecture))
}

fn with_own_head(body: seccompiler::BpfProgram, architecture: Architecture) -> Vec<Instruction> {
    let body = body.into_iter().skip(3).map(|i| Instruction {
        code: i.code,
        jt: i.jt,
        jf: i.jf,
        k: i.k,
    });
    head(architecture).into_iter().chain(body).collect()
}

/// Compiles a filter. A name that another architecture has and this one has not is left out: there is no such
/// call to deny or allow.
///
/// # Errors
/// A name that no architecture knows, or nothing to filter.
pub fn compile(
    calls: &Calls<'_>,
    architecture: Architecture,
) -> Result<Vec<Instruction>, CompileFilterError> {
    let (names, on_match, otherwise) = match calls {
        Calls::Allow(names) => (names, RETURN_ALLOW, RETURN_EPERM),
        Calls::Deny(names) => (names, RETURN_EPERM, RETURN_ALLOW),
    };
    let mut numbers = BTreeSet::new();
    for name in *names {
        match architecture.number(name) {
            Some(number) => {
                numbers.extend(u32::try_from(number));
            }
            None if [Architecture::X86_64, Architecture::Aarch64]
                .iter()
                .any(|other| other.number(name).is_some()) => {}
            None => return Err(CompileFilterError::UnknownCall(name.clone())),
        }
    }
    if numbers.is_empty() {
        return Err(CompileFilterError::Empty);
    }
    let mut program = head(architecture);
    program.extend(by_number(&numbers, on_match, otherwise));
    Ok(program)
}

/// Compares the number, which is loaded, with each of these. A jump goes 255 instructions far at most.
fn by_number(numbers: &BTreeSet<u32>, on_match: u32, otherwise: u32) -> Vec<Instruction> {
    let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let numbers: Vec<u32> = numbers.iter().copied().collect();
    let mut body = Vec::new();
    for chunk in numbers.chunks(usize::from(u8::MAX)) {
        // To the return, which stands behind the jump over it.
        for (number, distance) in chunk.iter().zip((1..=chunk.len()).rev()) {
            let distance = u8::try_from(distance).unwrap_or(u8::MAX);
            body.push(op(JUMP_EQUAL, distance, 0, *number));
        }
        body.push(op(JUMP, 0, 0, 1));
        body.push(op(RETURN, 0, 0, on_match));
    }
    body.push(op(RETURN, 0, 0, otherwise));
    body
}

fn head(architecture: Architecture) -> Vec<Instruction> {
    let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
    vec![
        op(LOAD_WORD, 0, 0, ARCH_OFFSET),
        op(JUMP_EQUAL, 1, 0, architecture.audit()),
        op(RETURN, 0, 0, RETURN_EPERM),
        op(LOAD_WORD, 0, 0, NUMBER_OFFSET),
        op(JUMP_AT_LEAST, 0, 1, X32_BIT),
        op(RETURN, 0, 0, RETURN_EPERM),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = RETURN_ALLOW;
    const ARCH_I386: u32 = 0x4000_0003;

    /// A classic BPF interpreter of the instructions that filters are made of.
    fn run(program: &[Instruction], arch: u32, number: u32) -> u32 {
        run_with(program, arch, number, [0; 6])
    }

    fn run_with(program: &[Instruction], arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let (mut at, mut accumulator) = (0usize, 0u32);
        for _ in 0..10_000 {
            let i = program[at];
            at += 1;
            let jump = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
            match i.code {
                LOAD_WORD => {
                    accumulator = match i.k {
                        NUMBER_OFFSET => number,
                        ARCH_OFFSET => arch,
                        // seccomp_data.args, little-endian: low word first.
                        k if (16..64).contains(&k) => {
                            let argument = arguments[(k as usize - 16) / 8];
                            (if k % 8 == 0 { argument } else { argument >> 32 }) as u32
                        }
                        k => panic!("load {k}"),
                    }
                }
                0x54 => accumulator &= i.k,
                JUMP_EQUAL => at += jump(accumulator == i.k),
                JUMP_AT_LEAST => at += jump(accumulator >= i.k),
                JUMP => at += i.k as usize,
                RETURN => return i.k,
                code => panic!("instruction {code:#x}"),
            }
        }
        panic!("no return")
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn denied_calls_fail_and_others_pass_on_both_architectures() {
        let denied = names(&["getcpu", "ptrace", "mount", "open"]);
        for architecture in [Architecture::X86_64, Architecture::Aarch64] {
            let program = compile(&Calls::Deny(&denied), architecture).unwrap();
            let judge = |name: &str| {
                run(
                    &program,
                    architecture.audit(),
                    architecture.number(name).unwrap() as u32,
                )
            };
            assert_eq!(judge("getcpu"), RETURN_EPERM);
            assert_eq!(judge("ptrace"), RETURN_EPERM);
            assert_eq!(judge("read"), ALLOW);
            assert_eq!(judge("execve"), ALLOW);
        }
        assert_eq!(Architecture::Aarch64.number("open"), None);
    }

    #[test]
    fn lists_of_any_length_say_what_seccompiler_says() {
        let all: Vec<u32> = (0..900).filter(|number| number % 7 != 3).collect();
        for length in [1, 2, 254, 255, 256, 511, all.len()] {
            let numbers: BTreeSet<u32> = all.iter().copied().take(length).collect();
            let program = by_number(&numbers, RETURN_EPERM, RETURN_ALLOW);
            let program = [head(Architecture::X86_64), program].concat();
            let rules = numbers
                .iter()
                .map(|number| (i64::from(*number), Vec::new()));
            let theirs = assemble(rules.collect(), libc::EPERM, Architecture::X86_64).unwrap();
            for number in 0..1000 {
                let ours = run(&program, AUDIT_ARCH_X86_64, number);
                assert_eq!(ours, run(&theirs, AUDIT_ARCH_X86_64, number), "{number}");
            }
            assert_eq!(run(&program, ARCH_I386, 1), RETURN_EPERM);
            assert!(program.len() < theirs.len());
        }
    }

    #[test]
    fn allowed_calls_pass_and_others_fail() {
        let allowed = names(&["read", "write", "exit_group"]);
        let program = compile(&Calls::Allow(&allowed), Architecture::X86_64).unwrap();
        let judge = |name: &str| {
            run(
                &program,
                AUDIT_ARCH_X86_64,
                Architecture::X86_64.number(name).unwrap() as u32,
            )
        };
        assert_eq!(judge("read"), ALLOW);
        assert_eq!(judge("socket"), RETURN_EPERM);
    }

    #[test]
    fn x32_and_i386_calls_fail_whatever_their_number() {
        let denied = names(&["getcpu"]);
        let program = compile(&Calls::Deny(&denied), Architecture::X86_64).unwrap();
        assert_eq!(run(&program, AUDIT_ARCH_X86_64, X32_BIT), RETURN_EPERM);
        assert_eq!(
            run(&program, AUDIT_ARCH_X86_64, X32_BIT | 309),
            RETURN_EPERM
        );
        assert_eq!(run(&program, AUDIT_ARCH_X86_64, u32::MAX), RETURN_EPERM);
        for number in [0, 3, 20, 318] {
            assert_eq!(run(&program, ARCH_I386, number), RETURN_EPERM);
        }
        let program = compile(&Calls::Deny(&denied), Architecture::Aarch64).unwrap();
        assert_eq!(run(&program, 0x4000_0028, 3), RETURN_EPERM, "32-bit ARM");
    }

    #[test]
    fn no_file_gets_a_bit_that_acts_for_its_owner() {
        for architecture in [Architecture::X86_64, Architecture::Aarch64] {
            let filters = base(architecture, true).unwrap();
            let judge = |name: &str, arguments: &[u64]| {
                let mut all = [0; 6];
                all[..arguments.len()].copy_from_slice(arguments);
                let number = architecture.number(name).unwrap() as u32;
                let answers = filters
                    .iter()
                    .map(|filter| run_with(filter, architecture.audit(), number, all));
                answers.min().unwrap()
            };
            for mode in [0o4755, 0o2755, 0o6000, 0o104_755] {
                assert_eq!(judge("fchmod", &[3, mode]), RETURN_EPERM, "{mode:o}");
                assert_eq!(judge("fchmodat", &[3, 0, mode]), RETURN_EPERM, "{mode:o}");
                assert_eq!(judge("fchmodat2", &[3, 0, mode]), RETURN_EPERM, "{mode:o}");
                assert_eq!(judge("mknodat", &[3, 0, mode]), RETURN_EPERM, "{mode:o}");
                assert_eq!(
                    judge("openat", &[3, 0, libc::O_CREAT as u64, mode]),
                    RETURN_EPERM,
                    "{mode:o}"
                );
                assert_eq!(
                    judge("openat", &[3, 0, libc::O_TMPFILE as u64, mode]),
                    RETURN_EPERM,
                    "{mode:o}"
                );
                // Without a file being made the mode is whatever stood in the register.
                assert_eq!(
                    judge("openat", &[3, 0, libc::O_DIRECTORY as u64, mode]),
                    ALLOW,
                    "{mode:o}"
                );
            }
            for mode in [0o755, 0o1777, 0o100_644] {
                assert_eq!(judge("fchmod", &[3, mode]), ALLOW, "{mode:o}");
                assert_eq!(
                    judge("openat", &[3, 0, libc::O_CREAT as u64, mode]),
                    ALLOW,
                    "{mode:o}"
                );
            }
            assert_eq!(judge("openat2", &[]), RETURN_ERRNO | libc::ENOSYS as u32);
            assert_eq!(judge("io_uring_setup", &[]), RETURN_EPERM);
            assert_eq!(judge("prlimit64", &[1]), RETURN_EPERM);
            assert_eq!(judge("prlimit64", &[0]), ALLOW);
        }
        let filters = base(Architecture::X86_64, true).unwrap();
        let chmod = Architecture::X86_64.number("chmod").unwrap() as u32;
        assert_eq!(
            run_with(
                &filters[0],
                AUDIT_ARCH_X86_64,
                chmod,
                [0, 0o4755, 0, 0, 0, 0]
            ),
            RETURN_EPERM
        );
    }

    #[test]
    fn sockets_are_of_families_that_a_network_namespace_holds() {
        let socket = Architecture::X86_64.number("socket").unwrap() as u32;
        let judge = |own: bool, family: i32| {
            let filters = base(Architecture::X86_64, own).unwrap();
            run_with(
                &filters[0],
                AUDIT_ARCH_X86_64,
                socket,
                [family as u64, 0, 0, 0, 0, 0],
            )
        };
        for family in HELD_FAMILIES {
            assert_eq!(judge(true, family), ALLOW);
        }
        for family in [
            libc::AF_VSOCK,
            libc::AF_PACKET,
            libc::AF_ALG,
            libc::AF_BLUETOOTH,
        ] {
            assert_eq!(judge(true, family), RETURN_EPERM);
            assert_eq!(judge(false, family), ALLOW);
        }
    }

    #[test]
    fn no_name_is_dropped_in_silence() {
        assert!(matches!(
            compile(&Calls::Deny(&names(&["getcpu", "no_such_call"])), Architecture::X86_64),
            Err(CompileFilterError::UnknownCall(name)) if name == "no_such_call"
        ));
        assert!(matches!(
            compile(&Calls::Deny(&[]), Architecture::X86_64),
            Err(CompileFilterError::Empty)
        ));
    }
}
