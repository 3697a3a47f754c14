//! Switches of the kernel that decide what a sandbox can do, or what an escape could.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Gaps;

/// Those that are recorded where they exist, sorted.
const DECIDING: &[&str] = &[
    "dev.tty.legacy_tiocsti",
    "fs.protected_fifos",
    "fs.protected_hardlinks",
    "fs.protected_regular",
    "fs.protected_symlinks",
    "fs.suid_dumpable",
    "kernel.apparmor_restrict_unprivileged_unconfined",
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.core_pattern",
    "kernel.dmesg_restrict",
    "kernel.io_uring_disabled",
    "kernel.kptr_restrict",
    "kernel.perf_event_paranoid",
    "kernel.unprivileged_bpf_disabled",
    "kernel.unprivileged_userns_clone",
    "kernel.yama.ptrace_scope",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv6.conf.all.disable_ipv6",
    "user.max_net_namespaces",
    "user.max_pid_namespaces",
    "user.max_user_namespaces",
    "vm.memfd_noexec",
    "vm.overcommit_memory",
    "vm.unprivileged_userfaultfd",
];

pub(super) fn values(gaps: &mut Gaps) -> BTreeMap<String, String> {
    let value = |name: &&str| Some(((*name).to_owned(), read(name, gaps)?));
    DECIDING.iter().filter_map(value).collect()
}

/// One switch; words separated by single spaces.
pub(super) fn read(name: &str, gaps: &mut Gaps) -> Option<String> {
    let path: PathBuf = ["/proc/sys", &name.replace('.', "/")].iter().collect();
    let text = gaps.read(format!("sysctls.{name}"), &path)?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_absent_ones_are_left_out() {
        assert!(DECIDING.is_sorted());
        let mut gaps = Gaps::default();
        assert_eq!(read("kernel.no_such_switch", &mut gaps), None);
        let range = read("net.ipv4.ping_group_range", &mut gaps).unwrap();
        assert_eq!(range.split(' ').count(), 2, "{range}");
        assert!(gaps.into_unmeasured().is_none());
    }
}
