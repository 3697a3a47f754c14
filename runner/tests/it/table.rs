//! **Table**: what every check of the whole suite must come to: in runtimes that lie, in the sandbox with one control gone, and
//! on hosts that are odd. What depends on a fact of the host is expected by that fact, as the matrix itself records it.

mod callers;
mod dropped;
mod fakes;
mod odd_hosts;
mod templates;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::world::{Ran, World, no_groups};

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// Refused, seen to be, and possible without.
    Contained,
    /// It succeeded: a false guarantee where the control is declared.
    Escaped,
    Inconclusive(&'static str),
    NotApplicable(&'static str),
}

use Came::{Contained, Escaped};

const SILENCE: Came = Came::Inconclusive("no-output");
const TWIN_FAILED: Came = Came::Inconclusive("twin-failed");
const UNAVAILABLE: Came = Came::Inconclusive("oracle-unavailable");
const MISSING: Came = Came::Inconclusive("instrument-missing");
const PATH_PRESENT: Came = Came::Inconclusive("path-present");
const FORBIDDEN: Came = Came::NotApplicable("host-forbids");

/// A cell: declared or not, verdict, reason, and the detail, which no table expects word by word.
#[derive(Clone, Debug)]
struct Cell {
    declared: bool,
    verdict: String,
    reason: String,
    detail: String,
}

impl Cell {
    fn lacked_time(&self) -> bool {
        let says = ["no answer within", "too busy to say", "; Timeout)"];
        self.verdict == "inconclusive" && says.iter().any(|text| self.detail.contains(text))
    }

    /// What is compared.
    fn facts(&self) -> (bool, &str, &str) {
        (self.declared, &self.verdict, &self.reason)
    }
}

/// A matrix as a document.
struct Table {
    cells: BTreeMap<String, Cell>,
    facts: Facts,
}

impl Table {
    #[track_caller]
    fn of(ran: &Ran) -> Self {
        let document = ran.json();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let cells = document["cells"].as_array().unwrap().iter().map(|cell| {
            let found = Cell {
                declared: cell["declared"].as_bool().unwrap(),
                verdict: text(&cell["verdict"]),
                reason: text(&cell["reason"]),
                detail: text(&cell["detail"]),
            };
            (text(&cell["check"]), found)
        });
        let (cells, all): (BTreeMap<_, _>, _) = (cells.collect(), &document["cells"]);
        assert_eq!(cells.len(), all.as_array().unwrap().len(), "one runtime");
        Self {
            cells,
            facts: Facts::of(&document["host"]),
        }
    }

    /// What a machine that many others use too leaves room for: a measurement that says that it had no time is made again.
    fn calm(measure: impl Fn() -> Self) -> Self {
        let mut table = measure();
        for _ in 0..3 {
            if !table.cells.values().any(Cell::lacked_time) {
                break;
            }
            table = measure();
        }
        table
    }

    #[track_caller]
    fn cell(&self, check: &str) -> &Cell {
        let none = || panic!("{check} is not among {:?}", self.cells.keys());
        self.cells.get(check).unwrap_or_else(none)
    }

    #[track_caller]
    fn is(&self, check: &str, came: Came) {
        let cell = self.cell(check);
        let expected = told(came, cell.declared);
        let found = (cell.verdict.as_str(), cell.reason.as_str());
        assert_eq!(found, expected, "{check}: {}", cell.detail);
    }
}

/// Verdict and reason as they stand in a cell.
const fn told(came: Came, declared: bool) -> (&'static str, &'static str) {
    match came {
        Contained => ("contained", ""),
        Escaped if declared => ("false-guarantee", ""),
        Escaped => ("escaped", ""),
        Came::Inconclusive(reason) => ("inconclusive", reason),
        Came::NotApplicable(reason) => ("not-applicable", reason),
    }
}

/// What a host is, as far as cells depend on it.
#[derive(Debug)]
struct Facts {
    uid: u64,
    sysctls: BTreeMap<String, String>,
    architecture: String,
    is_container: bool,
    /// Where the sandbox itself is measured: whether this caller can have control groups.
    has_groups: bool,
}

impl Facts {
    fn of(host: &serde_json::Value) -> Self {
        Self {
            uid: host["uid"].as_u64().unwrap(),
            sysctls: serde_json::from_value(host["sysctls"].clone()).unwrap(),
            architecture: host["architecture"].as_str().unwrap().to_owned(),
            is_container: host["container"]
                .as_array()
                .unwrap()
                .iter()
                .any(|sign| sign == "user-namespace"),
            has_groups: false,
        }
    }

    fn sysctl(&self, name: &str) -> &str {
        self.sysctls.get(name).map_or("", String::as_str)
    }

    /// Who may do here what root may.
    fn no_root(&self) -> bool {
        self.uid != 0 || self.is_container
    }

    fn no_ipv6(&self) -> bool {
        self.sysctl("net.ipv6.conf.all.disable_ipv6") != "0"
    }

    /// Root may all the same (`CAP_SYS_ADMIN`).
    fn no_tiocsti(&self) -> bool {
        self.sysctl("dev.tty.legacy_tiocsti") == "0" && self.no_root()
    }

    /// Root may all the same (`CAP_SYS_PTRACE`).
    fn yama(&self) -> bool {
        !["", "0"].contains(&self.sysctl("kernel.yama.ptrace_scope")) && self.no_root()
    }

    fn no_namespaces(&self) -> bool {
        self.sysctl("user.max_user_namespaces") == "0"
            || self.sysctl("kernel.unprivileged_userns_clone") == "0" && self.no_root()
            || self.sysctl("kernel.apparmor_restrict_unprivileged_userns") == "1" && self.no_root()
    }

    fn no_x86(&self) -> bool {
        self.architecture != "x86_64"
    }

    fn no_groups(&self) -> bool {
        !self.has_groups
    }

    /// No address at which anybody but this host could be.
    fn no_address(&self) -> bool {
        let own = runner::measure::listen::own_addresses().unwrap();
        own.iter().all(std::net::IpAddr::is_loopback)
    }
}

/// Checks of one control that come to the same.
struct Row {
    control: &'static str,
    checks: &'static str,
    came: Came,
    unless: fn(&Facts) -> bool,
    instead: Came,
}

const fn row(control: &'static str, checks: &'static str, came: Came) -> Row {
    Row {
        control,
        checks,
        came,
        unless: |_| false,
        instead: came,
    }
}

impl Row {
    /// Where the fact holds they come to something else.
    const fn unless(mut self, holds: fn(&Facts) -> bool, came: Came) -> Self {
        self.unless = holds;
        self.instead = came;
        self
    }
}

/// Compares every cell with a table: each check stands in it once, and no other.
#[track_caller]
fn compare(what: &str, table: &Table, declares: &dyn Fn(&str) -> bool, rows: &[Row]) {
    let mut expected = BTreeMap::new();
    for row in rows {
        let came = if (row.unless)(&table.facts) {
            row.instead
        } else {
            row.came
        };
        for check in row.checks.split(' ') {
            let id = format!("{}/{check}", row.control);
            let declared = declares(row.control);
            let (verdict, reason) = told(came, declared);
            let before = expected.insert(id.clone(), (declared, verdict, reason));
            assert!(before.is_none(), "{what}: {id} stands twice");
        }
    }
    let mut wrong = Vec::new();
    for (id, cell) in &table.cells {
        let expected = expected.remove(id);
        if expected != Some(cell.facts()) {
            let (found, detail) = (cell.facts(), &cell.detail);
            wrong.push(format!(
                "{id}\n  expected {expected:?}\n  found    {found:?}: {detail}"
            ));
        }
    }
    let facts = &table.facts;
    assert!(wrong.is_empty(), "{what}:\n{}\n{facts:?}", wrong.join("\n"));
    assert!(
        expected.is_empty(),
        "{what}: not measured: {:?}",
        expected.keys()
    );
}

/// The measured policy with small limits, so that whatever passes one passes it soon; `timeoutMs` as said.
fn policy(world: &World, timeout_ms: u64, change: impl FnOnce(&mut serde_json::Value)) -> PathBuf {
    let text = include_str!("../../../policies/containment-audit.json");
    let mut policy: serde_json::Value = serde_json::from_str(text).unwrap();
    policy["id"] = "table".into();
    for (name, value) in [
        // Not even a busy machine leaves less than this.
        ("cpuMillis", 20),
        ("memoryMb", 16),
        ("processes", 32),
        ("openFiles", 64),
        ("outputBytes", 65_536),
        ("timeoutMs", timeout_ms),
    ] {
        policy["resources"][name] = value.into();
    }
    policy["filesystem"]["maxWorkspaceMb"] = 4.into();
    // Ids that no caller has.
    policy["process"]["user"] = 4_321.into();
    policy["process"]["group"] = 4_321.into();
    change(&mut policy);
    world.file("table-policy.json", &policy.to_string())
}

/// The own suite, changed; a folder for `--suite`.
fn suite(world: &World, change: impl Fn(&mut serde_json::Value) -> bool) -> PathBuf {
    let text = include_str!("../../../probes/suite.json");
    let mut suite: serde_json::Value = serde_json::from_str(text).unwrap();
    let rows = suite["probes"].as_array_mut().unwrap();
    rows.retain_mut(change);
    assert!(!rows.is_empty());
    let folder = world.folder("changed-suite");
    std::fs::write(folder.join("suite.json"), suite.to_string()).unwrap();
    folder
}

/// Rows of these controls alone.
fn rows_of(world: &World, controls: &[&str]) -> PathBuf {
    suite(world, |row| {
        controls.contains(&row["control"].as_str().unwrap())
    })
}

/// The embedded sandbox or none, by every row: `cpu` under the policy's small limit, the others with more CPU time than they use, or
/// that limit would decide them.
fn whole(
    world: &World,
    row: impl Fn(&mut serde_json::Value),
    run: impl Fn(&Path, &Path) -> Ran,
) -> Table {
    let part = |is_cpu: bool| {
        let policy = policy(world, 30_000, |policy| {
            if !is_cpu {
                policy["resources"]["cpuMillis"] = 64_000.into();
            }
        });
        let suite = suite(world, |one| {
            row(one);
            (one["control"] == "cpu") == is_cpu
        });
        Table::of(&run(&policy, &suite).ended(0))
    };
    let mut table = part(false);
    table.cells.extend(part(true).cells);
    table.facts.has_groups = no_groups(world).is_none();
    table
}

/// A fake where every caller can read it.
fn fake(world: &World, name: &str) -> PathBuf {
    let text = std::fs::read_to_string(crate::fakes::fake(name)).unwrap();
    world.file(&format!("{name}.json"), &text)
}

/// Measures a template.
fn measure(world: &World, template: &Path, policy: &Path, more: &str) -> Ran {
    let (template, policy) = (template.display(), policy.display());
    world.run(&format!(
        "matrix --json --allow-native --runtime {template} -P {policy} {more}"
    ))
}
