//! What the base filters deny beside, where nothing else does: what no namespace keeps away, and what Landlock does not look at.

use std::collections::BTreeMap;

use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{Architecture, CompileFilterError, Families};

/// What the filters deny beside, where nothing else does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// New user namespaces, where their number cannot be limited. clone3(2), whose flags cannot be seen here, is not there then, and
    /// programs use clone(2).
    pub user_namespaces: bool,
    /// Looking into, and limits of, other processes, which are not in another pid namespace.
    pub other_processes: bool,
    /// What can be done with a file that may not be opened, at which Landlock does not look: changes of its owner, mode, times and
    /// attributes, reading these, and watching what becomes of it.
    pub metadata: bool,
    /// What can be asked of a descriptor by ioctl(2), at which Landlock looks for devices alone.
    pub controls: Controls,
}

/// Which controls (ioctl(2)) there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controls {
    /// All.
    #[default]
    All,
    /// None of the kinds that file systems have. Some of these numbers are devices', too, and each file system may have others.
    NotOfFiles,
    /// Those alone that descriptors, terminals, sockets and copies of files need. A file that may only be read is changed by none of them.
    Listed,
}

impl Controls {
    /// The numbers that pass, where it is a list; questions about interfaces where there are sockets that could use an answer.
    pub(super) fn listed(self, families: Families) -> Option<Vec<u32>> {
        let interfaces = INTERFACE_CONTROLS
            .iter()
            .filter(|_| families != Families::Unix);
        let all = DESCRIPTOR_CONTROLS
            .iter()
            .chain(&TERMINAL_CONTROLS)
            .chain(&COPY_CONTROLS)
            .chain(interfaces);
        (self == Self::Listed).then(|| all.copied().collect())
    }
}

// The numbers are those of asm-generic/ioctls.h, linux/fs.h and linux/sockios.h, the same on both architectures.

/// What is asked of pipes, sockets and any descriptor: nothing of it reaches what lies behind one.
const DESCRIPTOR_CONTROLS: [u32; 8] = [
    0x5450, // FIONCLEX
    0x5451, // FIOCLEX: as fcntl(F_SETFD)
    0x5421, // FIONBIO: as fcntl(F_SETFL), for non-blocking streams
    0x5452, // FIOASYNC: the same for signals
    0x541b, // FIONREAD: how much there is to read
    0x5411, // TIOCOUTQ, SIOCOUTQ: how much is not sent yet
    0x8905, // SIOCATMARK: where urgent data is
    0x0002, // FIGETBSZ: the size of blocks
];
/// What shells and editors ask of a terminal (ioctl_tty(2)). Not TIOCSTI and TIOCLINUX, which type for others, nor those of consoles,
/// serial lines and the other side of a pseudo-terminal, which nobody has here.
const TERMINAL_CONTROLS: [u32; 23] = [
    0x5401,      // TCGETS: also how isatty(3) finds out
    0x5402,      // TCSETS
    0x5403,      // TCSETSW
    0x5404,      // TCSETSF
    0x802c_542a, // TCGETS2: the same, any speed
    0x402c_542b, // TCSETS2
    0x402c_542c, // TCSETSW2
    0x402c_542d, // TCSETSF2
    0x5405,      // TCGETA: the same, of old programs
    0x5406,      // TCSETA
    0x5407,      // TCSETAW
    0x5408,      // TCSETAF
    0x5409,      // TCSBRK: tcdrain(3)
    0x5425,      // TCSBRKP: tcsendbreak(3)
    0x540a,      // TCXONC: tcflow(3)
    0x540b,      // TCFLSH: tcflush(3)
    0x540e,      // TIOCSCTTY: a session of its own gets its terminal
    0x5422,      // TIOCNOTTY: and gives it up
    0x540f,      // TIOCGPGRP: job control
    0x5410,      // TIOCSPGRP
    0x5429,      // TIOCGSID: tcgetsid(3)
    0x5413,      // TIOCGWINSZ: rows and columns
    0x5414,      // TIOCSWINSZ
];
/// FICLONE and FICLONERANGE, by which programs copy files: they write to a descriptor that was opened for writing, and answer
/// with what makes them copy by themselves where that is not possible.
const COPY_CONTROLS: [u32; 2] = [0x4004_9409, 0x4020_940d];
/// What programs with a network ask of its interfaces (netdevice(7)); all that changes one needs a capability, and is not here.
const INTERFACE_CONTROLS: [u32; 10] = [
    0x8910, // SIOCGIFNAME
    0x8912, // SIOCGIFCONF
    0x8913, // SIOCGIFFLAGS
    0x8915, // SIOCGIFADDR
    0x8917, // SIOCGIFDSTADDR
    0x8919, // SIOCGIFBRDADDR
    0x891b, // SIOCGIFNETMASK
    0x8921, // SIOCGIFMTU
    0x8927, // SIOCGIFHWADDR
    0x8933, // SIOCGIFINDEX
];
/// Kinds of controls (the second byte) that file systems of the kernel have (ioctl-number.rst).
const FILE_KINDS: [u64; 8] = [
    b'f' as u64, // attributes, encryption, verity, ext4
    b'X' as u64, // extended attributes, freezing, xfs
    b'v' as u64, // versions
    b'r' as u64, // vfat
    b'n' as u64, // nilfs2
    b'o' as u64, // ocfs2
    0x94,        // btrfs
    0xf5,        // f2fs
];

/// Calls that read attributes of a file by its path.
pub(super) const ATTRIBUTE_CALLS: [&str; 7] = [
    "getxattr",
    "lgetxattr",
    "getxattrat",
    "listxattr",
    "llistxattr",
    "listxattrat",
    "file_getattr",
];
/// Calls that change what is known of a file, by its path or by a descriptor, or tell what becomes of it.
const METADATA_CALLS: [&str; 23] = [
    "inotify_add_watch",
    "fanotify_mark",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "lchown",
    "fchown",
    "fchownat",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "setxattrat",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "removexattrat",
    "file_setattr",
];
/// The same by fcntl(2): F_NOTIFY, which watches a folder, F_SET_RW_HINT and F_SET_FILE_RW_HINT, which say how long a file is to live.
const METADATA_COMMANDS: [u64; 3] = [1026, 1036, 1038];
/// Calls that look into another process, or take something of it.
const LOOKING_CALLS: [&str; 6] = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "pidfd_getfd",
    "kcmp",
];

impl Beside {
    pub(super) fn add_to(
        self,
        rules: &mut BTreeMap<i64, Vec<SeccompRule>>,
        architecture: Architecture,
    ) -> Result<(), CompileFilterError> {
        let mut when = |name: &str, argument: u8, compare: SeccompCmpOp, value: u64| {
            let length = SeccompCmpArgLen::Dword;
            let condition = SeccompCondition::new(argument, length, compare, value)?;
            let rule = SeccompRule::new(vec![condition])?;
            if let Some(number) = architecture.number(name) {
                rules.entry(number).or_default().push(rule);
            }
            Ok::<(), CompileFilterError>(())
        };
        if self.user_namespaces {
            let flag = libc::CLONE_NEWUSER as u64;
            for name in ["clone", "unshare"] {
                when(name, 0, SeccompCmpOp::MaskedEq(flag), flag)?;
            }
        }
        if self.other_processes {
            when("prlimit64", 0, SeccompCmpOp::Ne, 0)?;
        }
        if self.metadata {
            for command in METADATA_COMMANDS {
                when("fcntl", 1, SeccompCmpOp::Eq, command)?;
            }
        }
        if self.controls == Controls::NotOfFiles {
            for kind in FILE_KINDS {
                when("ioctl", 1, SeccompCmpOp::MaskedEq(0xff00), kind << 8)?;
            }
        }
        let looking = LOOKING_CALLS.iter().filter(|_| self.other_processes);
        let metadata = METADATA_CALLS.iter().filter(|_| self.metadata);
        for name in looking.chain(metadata) {
            // Whatever its arguments, which takes the place of what is denied by these.
            rules.extend(architecture.number(name).map(|number| (number, Vec::new())));
        }
        Ok(())
    }
}
