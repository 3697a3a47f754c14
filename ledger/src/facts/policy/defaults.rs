//! What holds where a policy says nothing.

use super::{Enforcement, Filesystem, Mode, Network, NetworkMode, Root};

/// Kernel ids that an unmapped id is shown as (`/proc/sys/kernel/overflowuid`, `overflowgid`).
pub const OVERFLOW_ID: u32 = 65_534;

/// What stays read-only below a writable folder unless the policy says otherwise: files that a program
/// outside runs later, or that decide what it runs, so that writing them would be a way out.
pub const DEFAULT_PROTECT: &[&str] = &[
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".git/info",
    ".git/modules",
    ".git/worktrees",
    ".envrc",
    ".vscode",
    ".github",
    ".idea",
    ".husky",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".config/fish",
    ".bash_aliases",
    ".zlogout",
    ".xprofile",
    ".gitconfig",
    ".config/git",
    ".config/autostart",
    ".config/systemd",
    ".ssh",
];

/// Of [`DEFAULT_PROTECT`], what only the programs of a home folder read. What is there is protected everywhere;
/// what is missing, in home folders alone.
pub const PROTECTED_IN_HOMES: &[&str] = &[
    ".bash_aliases",
    ".zlogout",
    ".xprofile",
    ".gitconfig",
    ".config/git",
    ".config/autostart",
    ".config/systemd",
    ".ssh",
];

/// Protected paths that are folders; any other is a file where it is missing.
pub const PROTECTED_FOLDERS: &[&str] = &[
    ".git/hooks",
    ".git/info",
    ".git/modules",
    ".git/worktrees",
    ".vscode",
    ".github",
    ".idea",
    ".husky",
    ".config/fish",
    ".config/git",
    ".config/autostart",
    ".config/systemd",
    ".ssh",
];

/// The calls of profile `default`: what reconfigures the kernel, reaches into other processes, mounts,
/// or has a record of ways out, and what an interpreter, a compiler or a server does without.
pub const DEFAULT_PROFILE: &[&str] = &[
    "_sysctl",
    "acct",
    "add_key",
    "afs_syscall",
    "bpf",
    "chroot",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "get_kernel_syms",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "query_module",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "uselib",
    "userfaultfd",
    "vhangup",
];

impl Default for Enforcement {
    fn default() -> Self {
        Self {
            mode: Mode::Strict,
            required_controls: Vec::new(),
            wanted_controls: Vec::new(),
        }
    }
}

impl Default for Filesystem {
    fn default() -> Self {
        Self {
            follow_symlinks: false,
            max_workspace_mb: None,
            path: None,
            protect: DEFAULT_PROTECT
                .iter()
                .map(|path| (*path).to_owned())
                .collect(),
            read_only: Vec::new(),
            root: Root::Ephemeral,
            writable: Vec::new(),
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            channel: None,
            dns: false,
            hosts: Vec::new(),
            mode: NetworkMode::None,
        }
    }
}
