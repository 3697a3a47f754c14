//! **Table**: what every check of the whole suite must come to: in runtimes that lie, in the sandbox with one control gone, and
//! on hosts that are odd. What depends on a fact of the host is expected by that fact, as the matrix itself records it.

mod callers;
mod dropped;
mod expected;
mod fakes;
mod odd_hosts;
mod templates;
mod tiers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use self::expected::Host;
use crate::world::{Ran, World};

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
const NOT_CALIBRATED: Came = Came::Inconclusive("not-calibrated");
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
    host: Host,
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
            host: Host(document["host"].clone()),
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

/// Compares every cell with the table of what is expected, of checks that are not left out. `declares` says of a template what
/// it declares.
#[track_caller]
fn compare(runtime: &str, table: &Table, declares: Option<&dyn Fn(&str) -> bool>, left_out: &str) {
    let mut expected = expected::cells(runtime, &table.host, declares);
    let mut wrong = Vec::new();
    for (id, cell) in &table.cells {
        let Some(expected) = expected.remove(id) else {
            wrong.push(format!("{id} stands in no row"));
            continue;
        };
        if expected::is_of(left_out, id) {
            continue;
        }
        let (verdict, reason) = told(expected.came, expected.is_declared);
        let wanted = (expected.is_declared, verdict, reason);
        let (found, detail) = (cell.facts(), &cell.detail);
        if found != wanted {
            let because = expected.because.iter().map(expected::Because::name);
            let because: Vec<_> = because.collect();
            wrong.push(format!(
                "{id}\n  expected {wanted:?} because of {because:?}\n  found    {found:?}: {detail}"
            ));
        } else if expected.came == FORBIDDEN {
            // The cell itself names one of these fields: `uid = 1000`.
            let mut fields = expected.because.iter().filter_map(expected::Because::field);
            let is_named = fields.any(|field| {
                let name = field.rsplit(' ').next();
                name.is_some_and(|name| detail.starts_with(name))
            });
            let is_inner = detail.starts_with("uid = ");
            if !is_named && !is_inner {
                wrong.push(format!("{id} does not say why: {detail}"));
            }
        }
    }
    let host = &table.host.0;
    assert!(wrong.is_empty(), "{runtime}:\n{}\n{host}", wrong.join("\n"));
    assert!(
        expected.is_empty(),
        "{runtime}: not measured: {:?}",
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
