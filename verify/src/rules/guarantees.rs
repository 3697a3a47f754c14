//! What the newest matrices say about what is declared.
//!
//! Only the newest matrix for a user id, tier, runtime and policy id counts; what an older one showed is an
//! observation (DESIGN.md §6.1). So everything is told at the end of the walk.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::bytes::text::excerpt;
use ledger::facts::control::Control;
use ledger::facts::execution::RuntimeUsed;
use ledger::facts::host::HostFacts;
use ledger::facts::matrix::table::{Row, Table};
use ledger::facts::matrix::{CellReason, CellVerdict, Matrix};
use ledger::file::walk::{Findings, KEPT_PER_CODE, Shown};
use ledger::finding::{Class, Code, Finding};

use super::Counts;
use super::matrices::{Judged, OfRuntime};
use super::probes::Begun;
use super::runs::Seen;

/// Most keys whose newest matrix is remembered; what a matrix shows of others is told at once.
const KEYS: usize = 10_000;
/// Most checks that one finding names.
const NAMED: usize = 6;

/// For what a matrix is the newest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: u32,
    tier: Option<String>,
    runtime: String,
    policy: String,
}

/// What the newest matrix shows of one key.
struct Newest {
    matrix: u64,
    findings: Vec<Finding>,
    /// Controls that are false guarantees, by mechanism, and the runs that rely on them.
    broken: BTreeMap<(Control, String), Option<Seen>>,
    part: Option<Part>,
}

/// A part of a table that is to be shown.
struct Part {
    /// Which of the matrix's runtimes it is.
    place: usize,
    host: Arc<HostFacts>,
    matrix: Matrix,
    used: Option<RuntimeUsed>,
    rows: Vec<Row>,
}

/// The newest matrix of every key.
pub(super) struct Guarantees {
    newest: BTreeMap<Key, Newest>,
    tables: bool,
}

impl Guarantees {
    /// With `tables` the newest matrices themselves are kept, to be shown.
    pub(super) const fn new(tables: bool) -> Self {
        Self {
            newest: BTreeMap::new(),
            tables,
        }
    }

    /// Takes what a matrix shows of a runtime.
    pub(super) fn take(
        &mut self,
        shown: &Shown<'_>,
        matrix: &Matrix,
        host: &Arc<HostFacts>,
        (runtime, of): (String, OfRuntime),
        counts: &mut Counts,
        findings: &mut Findings,
    ) {
        let key = Key {
            uid: host.uid,
            tier: of.used.as_ref().and_then(|used| used.tier.clone()),
            runtime,
            policy: matrix.policy.id.clone(),
        };
        counts.guarantees += of.declared.len() as u64;
        let told = told(shown, &key.runtime, &of);
        let broken = of.cells.iter().filter(|cell| is_false(cell));
        let broken = broken.filter_map(|cell| Some((cell.control, cell.mechanism.clone()?)));
        let broken = broken.map(|it| (it, None)).collect();
        if self.newest.len() >= KEYS && !self.newest.contains_key(&key) {
            told.into_iter().for_each(|finding| findings.push(finding));
            return;
        }
        let part = self.tables.then(|| Part {
            place: of.place,
            host: Arc::clone(host),
            matrix: Matrix {
                cells: ledger::facts::list::List::Inline(Vec::new()),
                ..matrix.clone()
            },
            used: of.used,
            rows: of.cells.into_iter().map(|cell| cell.row).collect(),
        });
        let newest = Newest {
            matrix: shown.record.sequence.value(),
            findings: told,
            broken,
            part,
        };
        let now = newest.matrix;
        if let Some(before) = self.newest.insert(key, newest) {
            for mut finding in before.findings {
                if finding.code.class() == Class::Disagreement {
                    finding.message = format!(
                        "matrix {now} has taken its place; it showed {}: {}",
                        finding.code, finding.message
                    );
                    finding.code = Code::SupersededFinding;
                    finding.help = None;
                    findings.push(finding);
                }
            }
        }
    }

    /// A run that was no measurement and was executed: does it rest on what its matrix shows to be false?
    pub(super) fn relies(&mut self, start: u64, begun: &Begun, counts: &mut Counts) {
        let (Some(matrix), Some(host)) = (begun.matrix, &begun.host) else {
            return;
        };
        counts.guarantees += 1;
        let key = Key {
            uid: host.uid,
            tier: begun.runtime.tier.clone(),
            runtime: begun.runtime.id.clone(),
            policy: begun.policy.clone(),
        };
        let Some(newest) = self.newest.get_mut(&key).filter(|it| it.matrix == matrix) else {
            return;
        };
        for declared in &begun.declared {
            if let Some(seen) = newest.broken.get_mut(declared) {
                let seen = seen.get_or_insert(Seen {
                    first: start,
                    count: 0,
                });
                seen.count += 1;
            }
        }
    }

    /// Tells what the matrices that nothing replaced show, and gives them to be shown.
    pub(super) fn finish(self, findings: &mut Findings) -> Vec<Table> {
        let mut parts = BTreeMap::new();
        for (key, newest) in self.newest {
            newest
                .findings
                .into_iter()
                .for_each(|finding| findings.push(finding));
            for ((control, mechanism), seen) in newest.broken {
                if let Some(seen) = seen {
                    findings.push(relied(
                        &key.runtime,
                        newest.matrix,
                        control,
                        &mechanism,
                        seen,
                    ));
                }
            }
            if let Some(part) = newest.part {
                parts.insert((newest.matrix, part.place), part);
            }
        }
        // As whoever measured showed them.
        let mut tables = BTreeMap::<u64, Table>::new();
        for ((matrix, _), part) in parts {
            let table = tables.entry(matrix).or_insert_with(|| Table {
                host: part.host.as_ref().clone(),
                policy: part.matrix.policy,
                rows: Vec::new(),
                runtimes: Vec::new(),
                sequence: Some(matrix),
                suite: part.matrix.suite,
            });
            table.rows.extend(part.rows);
            table.runtimes.extend(part.used);
        }
        tables.into_values().collect()
    }
}

fn is_false(cell: &Judged) -> bool {
    cell.row.verdict == CellVerdict::FalseGuarantee
}

fn relied(runtime: &str, matrix: u64, control: Control, mechanism: &str, seen: Seen) -> Finding {
    let runs = match seen.count {
        1 => format!("the run of start {} relies", seen.first),
        count => format!("{count} runs rely, the first of start {},", seen.first),
    };
    let message = format!(
        "{runs} on {control} ({mechanism}) in {runtime}, which matrix {matrix} shows to be a false guarantee"
    );
    let mut finding = Finding::new(Code::ReliesOnFalseGuarantee, message)
        .at(seen.first)
        .help("treat these runs as if the control had not been there; mend it, and measure again");
    finding.count = seen.count;
    finding
}

/// What a matrix shows of a runtime.
fn told(shown: &Shown<'_>, runtime: &str, of: &OfRuntime) -> Vec<Finding> {
    let mut told = Vec::new();
    for cell in of.cells.iter().filter(|cell| is_false(cell)) {
        let (check, detail) = (&cell.row.check, &cell.row.detail);
        let by = cell.mechanism.as_deref().unwrap_or("no mechanism named");
        let message = format!(
            "{runtime} declares {} ({by}), and {check} escaped: {}",
            cell.control,
            excerpt(detail, 200)
        );
        told.push(
            shown
                .finding(Code::FalseGuarantee, message)
                .help("do not rely on this control here until it is mended and measured again"),
        );
        // No more of a code are kept in full anyway, and each runtime is told of all the same.
        if told.len() as u64 >= KEPT_PER_CODE {
            break;
        }
    }
    for (control, mechanism) in &of.declared {
        if is_unmeasured(*control, of) {
            let message = format!(
                "{runtime} declares {control} ({mechanism}), and no check of it came to a result"
            );
            told.push(shown.finding(Code::DeclaredUnmeasured, message).help(
                "`verify matrix` says for each check why; a declaration alone shows nothing",
            ));
        }
    }
    let gaps: Vec<_> = of
        .cells
        .iter()
        .filter(|cell| cell.row.verdict == CellVerdict::Escaped)
        .map(|cell| cell.row.check.as_str())
        .collect();
    if !gaps.is_empty() {
        let mut names = gaps
            .iter()
            .take(NAMED)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        if gaps.len() > NAMED {
            names.push_str(&format!(" and {} more", gaps.len() - NAMED));
        }
        let message =
            format!("{runtime} lets attacks through that it promises nothing about: {names}");
        let mut finding = shown.finding(Code::UndeclaredEscape, message);
        finding.count = gaps.len() as u64;
        told.push(finding);
    }
    told
}

/// Whether nothing that was judged again shows if the control holds. A control of which the host lets nobody try
/// anything is none of these.
fn is_unmeasured(control: Control, of: &OfRuntime) -> bool {
    let cells = || of.cells.iter().filter(|cell| cell.control == control);
    let known = cells().all(|cell| cell.again);
    let reached = cells().any(|cell| {
        matches!(
            cell.row.verdict,
            CellVerdict::Contained | CellVerdict::Escaped | CellVerdict::FalseGuarantee
        )
    });
    let forbidden = cells().next().is_some()
        && cells().all(|cell| cell.row.reason == Some(CellReason::HostForbids));
    known && !reached && !forbidden
}
