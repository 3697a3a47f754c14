//! Which system calls fail: a policy's names compiled to a seccomp filter.
//!
//! seccompiler writes the rules that look at arguments; it would kill on a foreign architecture and does not look at
//! x32, so its three opening instructions are replaced by a head of our own: another architecture, or a number of
//! 0x4000_0000 and above (x32), gives EPERM. Numbers are found by a binary search of our own, also before seccompiler's rules,
//! which are a chain: the kernel walks, checks and translates every filter in each run. Denied calls give EPERM and
//! the workload lives to tell.

mod beside;

pub use beside::{Beside, Controls};

use std::collections::{BTreeMap, BTreeSet};

use ledger::facts::policy::syscalls::Syscall;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use crate::sys::filter::Instruction;
use beside::ATTRIBUTE_CALLS;

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
const SECOND_ARGUMENT_OFFSET: u32 = 24; // seccomp_data.args[1], its low word on a little-endian machine
const RETURN_ERRNO: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
const RETURN_ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const RETURN_EPERM: u32 = RETURN_ERRNO | libc::EPERM as u32;
const RETURN_NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
const RETURN_ENOSYS: u32 = RETURN_ERRNO | libc::ENOSYS as u32;
const RETURN_EOPNOTSUPP: u32 = RETURN_ERRNO | libc::EOPNOTSUPP as u32;

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

    /// The system call of a number; `None` when the table has none.
    #[must_use]
    pub fn call(self, number: u32) -> Option<Syscall> {
        let is_it = |call: &&Syscall| match self {
            Self::X86_64 => call.x86_64 == Some(number),
            Self::Aarch64 => call.aarch64 == Some(number),
        };
        ledger::facts::policy::syscalls::all()
            .iter()
            .find(is_it)
            .copied()
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
/// F_SETLEASE and F_SETDELEG (fcntl(2), linux/fcntl.h).
const LEASE_COMMANDS: [u64; 2] = [1024, 1040];
/// Families that a network namespace holds (address_families(7)). AF_VSOCK, for one, belongs to the machine.
const HELD_FAMILIES: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Which families of sockets a workload may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// All.
    All,
    /// All but unix sockets.
    NotUnix,
    /// Those that a network namespace holds.
    Held,
    /// Those that a network namespace holds, without unix sockets.
    HeldNotUnix,
    /// Unix sockets alone.
    Unix,
}

impl Families {
    /// What must hold of a family, all of it, for EPERM; nothing is denied where there is nothing.
    fn denied(self) -> Vec<(SeccompCmpOp, libc::c_int)> {
        let others = |list: &[libc::c_int]| {
            let list = list.iter().map(|family| (SeccompCmpOp::Ne, *family));
            list.collect()
        };
        match self {
            Self::All => Vec::new(),
            Self::NotUnix => vec![(SeccompCmpOp::Eq, libc::AF_UNIX)],
            Self::Held => others(&HELD_FAMILIES),
            Self::HeldNotUnix => {
                let list: Vec<_> = HELD_FAMILIES
                    .into_iter()
                    .filter(|family| *family != libc::AF_UNIX)
                    .collect();
                others(&list)
            }
            Self::Unix => others(&[libc::AF_UNIX]),
        }
    }
}

/// The filters that every sandbox has, whatever its policy says about system calls:
///
/// - no file gets a set-user-id or set-group-id bit: below a writable folder it would act for the folder's owner on
///   the host (calls whose mode cannot be seen here, openat2 and io_uring, are not there or denied);
/// - no socket of another family than `families`;
/// - no resource limit of pid 1 is changed;
/// - no lease is taken on a file, and no delegation: who owns one that may only be read would hold up everybody else who opens it.
///
/// There are two: filters are read back by their number, and a policy's filter is one.
///
/// # Errors
/// seccompiler refuses.
pub fn base(
    architecture: Architecture,
    families: Families,
) -> Result<Vec<Vec<Instruction>>, CompileFilterError> {
    base_with(architecture, families, &Beside::default())
}

/// The same filters, denying more.
///
/// # Errors
/// seccompiler refuses.
pub fn base_with(
    architecture: Architecture,
    families: Families,
    beside: &Beside,
) -> Result<Vec<Vec<Instruction>>, CompileFilterError> {
    let mut rules = base_rules(architecture, families)?;
    beside.add_to(&mut rules, architecture)?;
    let mut leaves: BTreeMap<u32, Leaf> = BTreeMap::new();
    for number in rules.keys() {
        leaves.extend(u32::try_from(*number).map(|number| (number, Leaf::On)));
    }
    let mut program = head(architecture);
    program.extend(by_number(&leaves, Leaf::Return(RETURN_ALLOW)));
    program.extend(seccompiler_body(rules, architecture)?);
    // A program that meets ENOSYS uses openat, which can be judged.
    let absent = ["openat2"].into_iter();
    let absent = absent.chain(beside.user_namespaces.then_some("clone3"));
    let absent = absent.map(|name| (name, RETURN_ENOSYS));
    // As of a file system that has no attributes.
    let unsupported = ATTRIBUTE_CALLS.iter().filter(|_| beside.metadata);
    let unsupported = unsupported.map(|name| (*name, RETURN_EOPNOTSUPP));
    let numbered = |name: &str, leaf: Leaf| {
        let number = u32::try_from(architecture.number(name)?).ok()?;
        Some((number, leaf))
    };
    let answers = absent.chain(unsupported);
    let answers = answers.filter_map(|(name, answer)| numbered(name, Leaf::Return(answer)));
    let mut answers: BTreeMap<u32, Leaf> = answers.collect();
    let listed = beside.controls.listed(families);
    answers.extend(listed.iter().filter_map(|_| numbered("ioctl", Leaf::On)));
    let mut second = head(architecture);
    second.extend(by_number(&answers, Leaf::Return(RETURN_ALLOW)));
    if let Some(listed) = listed {
        // The kernel looks at as much of it as this (ioctl(2), fs/ioctl.c).
        second.push(load(SECOND_ARGUMENT_OFFSET));
        let listed = listed.into_iter();
        let listed = listed.map(|control| (control, Leaf::Return(RETURN_ALLOW)));
        second.extend(by_number(&listed.collect(), Leaf::Return(RETURN_EPERM)));
    }
    Ok(vec![program, second])
}

/// seccompiler's instructions for these rules, without its three opening ones: the number is loaded.
fn seccompiler_body(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    architecture: Architecture,
) -> Result<Vec<Instruction>, CompileFilterError> {
    let action = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture.target())?;
    let body: seccompiler::BpfProgram = filter.try_into()?;
    let body = body.into_iter().skip(3).map(|i| Instruction {
        code: i.code,
        jt: i.jt,
        jf: i.jf,
        k: i.k,
    });
    Ok(body.collect())
}

/// Calls that [`base`] denies by their arguments, or altogether where there are no conditions.
fn base_rules(
    architecture: Architecture,
    families: Families,
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, CompileFilterError> {
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
    if let Some(number) = architecture.number("fcntl") {
        for command in LEASE_COMMANDS {
            let is_it =
                SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, command)?;
            let rule = SeccompRule::new(vec![is_it])?;
            rules.entry(number).or_default().push(rule);
        }
    }
    let denied = families.denied();
    if !denied.is_empty()
        && let Some(number) = architecture.number("socket")
    {
        let conditions: Result<Vec<_>, _> = denied
            .into_iter()
            .map(|(compare, family)| {
                SeccompCondition::new(0, SeccompCmpArgLen::Dword, compare, family as u64)
            })
            .collect();
        rules
            .entry(number)
            .or_default()
            .push(SeccompRule::new(conditions?)?);
    }
    for name in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        rules.extend(architecture.number(name).map(|number| (number, Vec::new())));
    }
    Ok(rules)
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
    let leaves = numbers
        .into_iter()
        .map(|number| (number, Leaf::Return(on_match)));
    let mut program = head(architecture);
    program.extend(by_number(&leaves.collect(), Leaf::Return(otherwise)));
    Ok(program)
}

/// The same filter for where somebody listens: a call that it would deny by its number is handed over. What is denied by what
/// stands before the number is looked at (another architecture, x32) has no name here and is denied as ever, and so is
/// all that another filter denies: of several answers the kernel takes the stricter one, and to hand over is less than
/// to deny (seccomp(2)).
#[must_use]
pub fn reporting(program: &[Instruction]) -> Vec<Instruction> {
    let mut program = program.to_vec();
    for instruction in program.iter_mut().skip(HEAD) {
        if (instruction.code, instruction.k) == (RETURN, RETURN_EPERM) {
            instruction.k = RETURN_NOTIFY;
        }
    }
    program
}

/// Where a search by number ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    /// With this answer.
    Return(u32),
    /// At what stands behind the search.
    On,
}

/// A binary search for the number, which is loaded, among these; all others come to `otherwise`. A chain of comparisons
/// would be longer to run, and much longer to install: the kernel walks the filter once for each system call there is
/// (seccomp_cache_prepare, kernel/seccomp.c).
fn by_number(leaves: &BTreeMap<u32, Leaf>, otherwise: Leaf) -> Vec<Instruction> {
    // Where a stretch of numbers with the same end begins.
    let mut stretches = vec![(0, otherwise)];
    let mut next = 0;
    let mut begin = |from: u32, leaf: Leaf| match stretches.last_mut() {
        Some((_, last)) if *last == leaf => {}
        Some((at, last)) if *at == from => *last = leaf,
        _ => stretches.push((from, leaf)),
    };
    for (number, leaf) in leaves {
        if *number > next {
            begin(next, otherwise);
        }
        begin(*number, *leaf);
        next = number.saturating_add(1);
    }
    begin(next, otherwise);
    let mut program = Vec::new();
    search(&stretches, &mut program);
    let length = program.len();
    let on = |(at, step): (usize, Step)| match step {
        Step::Do(instruction) => instruction,
        Step::On => jump(length - at - 1),
    };
    program.into_iter().enumerate().map(on).collect()
}

/// An instruction, or a jump to the end of the search, which is not known yet.
enum Step {
    Do(Instruction),
    On,
}

fn search(stretches: &[(u32, Leaf)], into: &mut Vec<Step>) {
    let (below, from) = stretches.split_at(stretches.len() / 2);
    match (below, from) {
        (_, []) => {}
        ([], [(_, leaf), ..]) => into.push(match leaf {
            Leaf::Return(value) => Step::Do(give(*value)),
            Leaf::On => Step::On,
        }),
        (_, [(number, _), ..]) => {
            let mut left = Vec::new();
            search(below, &mut left);
            let over = |jt, jf| Instruction {
                code: JUMP_AT_LEAST,
                jt,
                jf,
                k: *number,
            };
            match u8::try_from(left.len()) {
                Ok(distance) => into.push(Step::Do(over(distance, 0))),
                // A conditional jump goes 255 instructions far at most.
                Err(_) => {
                    into.push(Step::Do(over(0, 1)));
                    into.push(Step::Do(jump(left.len())));
                }
            }
            into.extend(left);
            search(from, into);
        }
    }
}

fn jump(distance: usize) -> Instruction {
    Instruction {
        code: JUMP,
        jt: 0,
        jf: 0,
        k: u32::try_from(distance).unwrap_or(u32::MAX),
    }
}

const fn give(value: u32) -> Instruction {
    Instruction {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: value,
    }
}

/// How many instructions a [`head`] has.
const HEAD: usize = 6;

const fn load(offset: u32) -> Instruction {
    Instruction {
        code: LOAD_WORD,
        jt: 0,
        jf: 0,
        k: offset,
    }
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
mod tests;
