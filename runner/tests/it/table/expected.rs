//! The one table of expected cells: runtime × check. [`CELLS`] is what a plain host shows root. Where a host or a caller is
//! shown something else a row of [`DIFFERENCES`] says what, and names the fields of the host record, as `verify diff` names
//! them, that make the difference: such a row counts where these fields, and nothing but them, have the values that it says.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Came, Contained, Escaped, FORBIDDEN, NOT_CALIBRATED, PATH_PRESENT, SILENCE, TWIN_FAILED,
    UNAVAILABLE,
};
use crate::world::{is_root, program};

/// Sandboxes of the runner's plan.
const SANDBOXES: &str = "embedded bwrap no-proc landlock";
/// Runtimes that start no probe, whatever they print and however they end.
const NOTHING_RUNS: &str = "deny-all silent offline crashing hanging liar-static liar-copying";
/// Runtimes that do.
const PROBES_RUN: &str =
    "embedded bwrap no-proc landlock unshare native no-op fresh-tmpfs-root pasta-like";
const ALL: &str = "*";

/// Runtimes, what it comes to, checks; a later row counts. `*` is all of them, `network/*` all of a control.
const CELLS: &[(&str, Came, &str)] = &[
    (SANDBOXES, Contained, "*"),
    // Weaker tiers of embedded, which stand here as runtimes of their own. Nothing that is absent from /proc is known to be absent
    // where there is none.
    (
        "no-proc",
        TWIN_FAILED,
        "process/visibility process/memory process/pid1",
    ),
    // A process among the others: what has a name can be looked up, and sockets connected to.
    (
        "landlock",
        Escaped,
        "process/visibility user/inside ipc/unix ipc/host-sockets disk/quota",
    ),
    // Their own kind cannot be had either: a look at itself is denied by a filter, its /proc and terminals are out of reach, and
    // nobody makes namespaces.
    (
        "landlock",
        TWIN_FAILED,
        "process/memory process/pid1 terminal/inject privilege/userns",
    ),
    // Bare, or as good as that.
    (
        "unshare native no-op fresh-tmpfs-root pasta-like",
        Escaped,
        "*",
    ),
    // What it declares.
    ("unshare", Contained, "network/* process/*"),
    // What the runner does around every runtime but native, and what the namespaces bring along. It declares none of it.
    (
        "unshare",
        Contained,
        "environment/inherited privilege/capabilities timeout/deadline ipc/abstract",
    ),
    // Refused by the runner itself, and nothing shows that it would get through otherwise.
    (
        "native",
        NOT_CALIBRATED,
        "process/survival environment/inherited timeout/deadline descriptors/inherited terminal/inject",
    ),
    // The runner cuts what it passes on.
    ("native", Contained, "output/cap"),
    // Declares all and does nothing. What the runner does itself holds: it ends the tree of a run, at its deadline too, and
    // cuts what it prints.
    (
        "no-op",
        Contained,
        "process/survival timeout/deadline output/cap",
    ),
    // No answer, not to be confused with an attack that was refused.
    (NOTHING_RUNS, SILENCE, "*"),
    // A root in memory and nothing else. What is looked for by a path is not there, but neither is what may be read, nor
    // /proc and /dev: nothing of that shows anything. What is written lands in its own memory. Its user namespace keeps
    // capabilities and other processes' memory away.
    (
        "fresh-tmpfs-root",
        TWIN_FAILED,
        "filesystem/* process/pid1 devices/nodes terminal/inject",
    ),
    (
        "fresh-tmpfs-root",
        Contained,
        "filesystem/write process/memory process/survival environment/inherited privilege/capabilities privilege/userns
         timeout/deadline ipc/unix ipc/host-sockets",
    ),
    // Without /proc nobody sees as whom it runs.
    ("fresh-tmpfs-root", UNAVAILABLE, "user/host"),
    // A network in which the host is not to be found, and from which a way leads out: no listener hears anything, and that
    // is not contained. Everything else is as bare but for its user namespace and an empty environment.
    ("pasta-like", Contained, "network/*"),
    ("pasta-like", PATH_PRESENT, "network/path"),
    (
        "pasta-like",
        Contained,
        "process/memory process/pid1 process/survival environment/inherited privilege/capabilities timeout/deadline
         ipc/abstract",
    ),
];

/// What runtimes declare; templates say it themselves.
const DECLARES: &[(&str, &str)] = &[
    ("embedded bwrap no-proc", "*"),
    (
        "landlock",
        "network/* filesystem/* environment/* privilege/* memory/* processes/* syscalls/* cpu/* output/* devices/* descriptors/* files/*",
    ),
    ("unshare", "network/* process/*"),
    // It cuts what is printed, whatever runs.
    ("native", "output/*"),
];

/// A reason for another cell.
pub(super) enum Because {
    /// A field of the host record that has such a value; absent is empty.
    Field(&'static str, fn(&str) -> bool),
    /// What no host record has, and was looked at here.
    Seen(&'static str, fn() -> bool),
}

use Because::{Field, Seen};

/// Who may not do what root may: an ordinary user, and root of a user namespace.
const USER: Because = Field("host uid", |uid| uid != "0");
const INNER_ROOT: Because = Field("host container", |signs| signs.contains("user-namespace"));
/// Root of a container that has none of root's capabilities.
const FEW: Because = Field("host container", |signs| signs.contains("few-capabilities"));

pub(super) const NO_IPV6: Because = Field("host sysctls net.ipv6.conf.all.disable_ipv6", |off| {
    off != "0"
});
pub(super) const NO_TIOCSTI: Because = Field("host sysctls dev.tty.legacy_tiocsti", |on| on == "0");
const YAMA: Because = Field("host sysctls kernel.yama.ptrace_scope", |scope| {
    !["", "0"].contains(&scope)
});
const NO_NAMESPACES: Because = Field("host sysctls user.max_user_namespaces", |most| most == "0");
const NO_USERS_NAMESPACES: Because =
    Field("host sysctls kernel.unprivileged_userns_clone", |may| {
        may == "0"
    });
const APPARMOR: Because = Field(
    "host sysctls kernel.apparmor_restrict_unprivileged_userns",
    |restricted| restricted == "1",
);
const NO_X86: Because = Field("host architecture", |name| name != "x86_64");
/// Nobody's to read, or everybody's.
const KERNEL_LOG: Because = Field("host sysctls kernel.dmesg_restrict", |on| on == "0");
/// Groups of version 2 that are the caller's, by the controller that a limit needs.
const NO_MEMORY: Because = Field("host cgroup delegated", |list| !list.contains("\"memory\""));
const NO_PIDS: Because = Field("host cgroup delegated", |list| !list.contains("\"pids\""));
const NO_CPU: Because = Field("host cgroup delegated", |list| !list.contains("\"cpu\""));
/// No groups at all.
const NO_GROUPS: Because = Field("host cgroup layout", |layout| layout == "none");
/// Groups of the caller's that it cannot leave.
const MORE_GROUPS: Because = Field("host groups", |list| list.contains(','));

pub(super) const NO_ADDRESS: Because =
    Seen("no address at which anybody but this host could be", || {
        let own = runner::measure::listen::own_addresses().unwrap();
        own.iter().all(std::net::IpAddr::is_loopback)
    });
const USERS_DEVICE: Because = Seen(
    "a device that ordinary users may open",
    has_device_for_users,
);

const MORE_IDS: Because = Seen("subordinate ids", || {
    let name = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let name = name.unwrap().map(|user| format!("{}:", user.name));
    let table = std::fs::read_to_string("/etc/subgid").unwrap_or_default();
    let has = |name: &String| table.lines().any(|line| line.starts_with(name));
    // Of users that root makes up here there is no name.
    !is_root() && program("newgidmap").is_some() && name.is_some_and(|name| has(&name))
});

/// Who is no root puts a filter on itself only with no_new_privs, which everything has then, bare or not.
const OWN_FILTER: Because = Seen("no_new_privs around the runner", || !is_root());

/// Before ABI 6 Landlock keeps neither signals nor abstract sockets inside.
const NO_SCOPES: Because = Field("host landlockAbi", |abi| {
    abi.parse::<u32>().is_ok_and(|abi| abi < 6)
});

/// What a row changes.
struct Difference {
    runtimes: &'static str,
    /// All of these.
    because: &'static [Because],
    /// `None`: as [`CELLS`] has it.
    came: Option<Came>,
    /// The runtime does not declare it then.
    is_gap: bool,
    checks: &'static str,
}

const fn other(
    runtimes: &'static str,
    because: &'static [Because],
    came: Came,
    checks: &'static str,
) -> Difference {
    Difference {
        runtimes,
        because,
        came: Some(came),
        is_gap: false,
        checks,
    }
}

const fn gap(because: &'static [Because], came: Came, checks: &'static str) -> Difference {
    Difference {
        is_gap: true,
        ..other(SANDBOXES, because, came, checks)
    }
}

const fn back(because: &'static [Because], checks: &'static str) -> Difference {
    Difference {
        came: None,
        ..other(ALL, because, Contained, checks)
    }
}

/// What only root can do bare shows nothing where anybody else tries it.
const ROOTS: &str = "filesystem/knobs privilege/capabilities devices/nodes user/host";

/// A later row counts.
const DIFFERENCES: &[Difference] = &[
    other(ALL, &[NO_IPV6], FORBIDDEN, "network/tcp6 network/udp6"),
    other(PROBES_RUN, &[NO_ADDRESS], UNAVAILABLE, "network/path"),
    other(ALL, &[USER], FORBIDDEN, ROOTS),
    other(ALL, &[INNER_ROOT], FORBIDDEN, ROOTS),
    other(
        ALL,
        &[FEW],
        FORBIDDEN,
        "privilege/capabilities devices/nodes",
    ),
    back(&[USER, USERS_DEVICE], "devices/nodes"),
    back(&[USER, KERNEL_LOG], "devices/nodes"),
    // Root may all the same (`CAP_SYS_PTRACE`).
    other(ALL, &[YAMA, USER], FORBIDDEN, "process/memory"),
    other(ALL, &[YAMA, INNER_ROOT], FORBIDDEN, "process/memory"),
    other(ALL, &[NO_NAMESPACES], FORBIDDEN, "privilege/userns"),
    other(
        ALL,
        &[NO_USERS_NAMESPACES, USER],
        FORBIDDEN,
        "privilege/userns",
    ),
    other(ALL, &[APPARMOR, USER], FORBIDDEN, "privilege/userns"),
    other(ALL, &[NO_X86], FORBIDDEN, "syscalls/alternate"),
    // Root may all the same (`CAP_SYS_ADMIN`), but not in a user namespace of its own.
    other(
        "unshare pasta-like",
        &[NO_TIOCSTI],
        Contained,
        "terminal/inject",
    ),
    other(ALL, &[NO_TIOCSTI, USER], FORBIDDEN, "terminal/inject"),
    other(ALL, &[NO_TIOCSTI, INNER_ROOT], FORBIDDEN, "terminal/inject"),
    // Control groups are not everybody's to make.
    gap(&[USER, NO_MEMORY], Escaped, "memory/*"),
    gap(&[USER, NO_PIDS], Escaped, "processes/*"),
    gap(&[USER, NO_CPU], Escaped, "cpu/*"),
    gap(&[NO_GROUPS], Escaped, LIMITED),
    other("landlock", &[NO_SCOPES], Escaped, "ipc/abstract"),
    other("landlock", &[NO_SCOPES, USER], Escaped, "process/signal"),
    other(
        "landlock",
        &[USER, OWN_FILTER],
        Came::Inconclusive("baseline-contained"),
        "privilege/no-new-privs",
    ),
    // Supplementary groups stay, of ids that are mapped nowhere inside; those of subordinate ids can be dropped.
    gap(&[USER, MORE_GROUPS], Contained, "user/inside"),
    gap(&[USER, MORE_GROUPS], FORBIDDEN, "user/host"),
    other(
        SANDBOXES,
        &[USER, MORE_GROUPS, MORE_IDS],
        Contained,
        "user/inside",
    ),
    other(
        SANDBOXES,
        &[USER, MORE_GROUPS, MORE_IDS],
        FORBIDDEN,
        "user/host",
    ),
];

/// Checks of what control groups limit.
pub(super) const LIMITED: &str = "memory/* processes/* cpu/*";

/// A device among those that are tried that is not root's alone.
fn has_device_for_users() -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let names = [
        "kvm",
        "fuse",
        "net/tun",
        "vhost-net",
        "uinput",
        "dri/renderD128",
    ];
    names.iter().any(|name| {
        let path = std::path::Path::new("/dev").join(name);
        if is_root() {
            path.metadata()
                .is_ok_and(|found| found.permissions().mode() & 0o004 != 0)
        } else {
            std::fs::File::open(path).is_ok()
        }
    })
}

/// A host record.
#[derive(Clone, Debug)]
pub(super) struct Host(pub(super) Value);

impl Host {
    /// The value of a field as `verify diff` names it (`host sysctls a.b`) and writes it; empty where it is not there.
    pub(super) fn field(&self, name: &str) -> String {
        let mut value = &self.0;
        for part in name.split(' ').skip(1) {
            value = &value[part];
        }
        match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }
    }
}

impl Because {
    pub(super) fn holds(&self, host: &Host) -> bool {
        match self {
            Field(name, is) => is(&host.field(name)),
            Seen(_, is) => is(),
        }
    }

    /// In words: the field, or what was seen.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Field(name, _) | Seen(name, _) => name,
        }
    }

    /// The field that it names.
    pub(super) const fn field(&self) -> Option<&'static str> {
        match self {
            Field(name, _) => Some(*name),
            Seen(..) => None,
        }
    }
}

/// Who is no root, or as good as that.
pub(super) fn is_no_root(host: &Host) -> bool {
    USER.holds(host) || INNER_ROOT.holds(host)
}

/// What is expected of a cell.
pub(super) struct Expected {
    pub(super) came: Came,
    pub(super) is_declared: bool,
    /// Why it is not what [`CELLS`] says.
    pub(super) because: &'static [Because],
}

fn is_among(runtimes: &str, runtime: &str) -> bool {
    runtimes == ALL || runtimes.split(' ').any(|one| one == runtime)
}

/// Whether a check is one of a list.
pub(super) fn is_of(checks: &str, check: &str) -> bool {
    checks
        .split_whitespace()
        .any(|one| match one.strip_suffix('*') {
            Some(start) => check.starts_with(start),
            None => one == check,
        })
}

/// Every check of the runner's suite.
fn every_check() -> Vec<String> {
    let text = include_str!("../../../../probes/suite.json");
    let suite: Value = serde_json::from_str(text).unwrap();
    let rows = suite["probes"].as_array().unwrap().iter();
    rows.flat_map(|row| {
        let control = row["control"].as_str().unwrap();
        let checks = row["checks"].as_array().unwrap().iter();
        checks.map(move |check| format!("{control}/{}", check["check"].as_str().unwrap()))
    })
    .collect()
}

/// What a runtime is expected to show on a host, check by check. `declares` says it for a template.
pub(super) fn cells(
    runtime: &str,
    host: &Host,
    declares: Option<&dyn Fn(&str) -> bool>,
) -> BTreeMap<String, Expected> {
    let mut cells = BTreeMap::new();
    for check in every_check() {
        let rows = CELLS.iter().rev();
        let mut rows = rows.filter(|row| is_among(row.0, runtime) && is_of(row.2, &check));
        let base = rows.next().unwrap_or_else(|| panic!("{runtime} {check}")).1;
        let mut applies = DIFFERENCES.iter().rev().filter(|row| {
            is_among(row.runtimes, runtime)
                && is_of(row.checks, &check)
                && row.because.iter().all(|one| one.holds(host))
        });
        let other = applies.next();
        let is_declared = match declares {
            Some(declares) => declares(check.split('/').next().unwrap()),
            None => DECLARES
                .iter()
                .any(|row| is_among(row.0, runtime) && is_of(row.1, &check)),
        };
        let expected = Expected {
            came: other.and_then(|row| row.came).unwrap_or(base),
            is_declared: is_declared && !other.is_some_and(|row| row.is_gap),
            because: other.map_or(&[], |row| row.because),
        };
        cells.insert(check, expected);
    }
    cells
}

/// The host that [`CELLS`] describes, in the fields that the table names.
fn plain_host() -> Host {
    Host(serde_json::json!({
        "architecture": "x86_64",
        "cgroup": { "delegated": ["cpu", "memory", "pids"], "layout": "v2" },
        "container": [],
        "groups": [],
        "landlockAbi": 7,
        "sysctls": {
            "dev.tty.legacy_tiocsti": "1",
            "kernel.apparmor_restrict_unprivileged_userns": "0",
            "kernel.dmesg_restrict": "1",
            "kernel.unprivileged_userns_clone": "1",
            "kernel.yama.ptrace_scope": "0",
            "net.ipv6.conf.all.disable_ipv6": "0",
            "user.max_user_namespaces": "10000",
        },
        "uid": 0,
    }))
}

#[test]
fn no_difference_counts_on_a_plain_host_and_each_names_a_field() {
    let host = plain_host();
    for row in DIFFERENCES {
        let fields = || row.because.iter().filter(|one| one.field().is_some());
        for name in fields().filter_map(Because::field) {
            assert_ne!(host.field(name), "", "{name} is no field");
        }
        // What no record has can only be a reason by itself where it is a measurement's own: no address.
        let is_named = fields().any(|one| !one.holds(&host)) || row.checks == "network/path";
        assert!(is_named, "{}: {}", row.runtimes, row.checks);
    }
}

#[test]
fn every_row_is_about_checks_that_there_are() {
    let all = every_check();
    let rows = CELLS.iter().map(|row| row.2);
    let rows = rows.chain(DIFFERENCES.iter().map(|row| row.checks));
    for pattern in rows.flat_map(str::split_whitespace) {
        assert!(all.iter().any(|check| is_of(pattern, check)), "{pattern}");
    }
}
