//! What the newest matrices say about what is declared.
//!
//! Only the newest matrix for a user id, tier, runtime and policy id counts; what an older one showed is an
//! observation (DESIGN.md §6.1). So everything is told at the end of the walk.
//!
//! A newer one takes the place of an older one's finding only where it came to a result: what was shown to be false stays
//! so while nobody can tell. And of a policy with the same id and another content it says nothing about runs that rest on
//! the older one: these are told all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledger::bytes::hash::Hash;
use ledger::bytes::text::excerpt;
use ledger::facts::control::Control;
use ledger::facts::execution::RuntimeUsed;
use ledger::facts::host::HostFacts;
use ledger::facts::matrix::table::{Row, Table};
use ledger::facts::matrix::{CellReason, CellVerdict, Matrix};
use ledger::file::walk::{Findings, KEPT_PER_CODE, Shown};
use ledger::finding::{Code, Finding};

use super::Counts;
use super::matrices::{Judged, OfRuntime};
use super::probes::Begun;
use super::runs::Seen;

/// Most keys whose newest matrix is remembered; what a matrix shows of others is told at once.
const KEYS: usize = 10_000;
/// Most that is kept of a key's older matrices.
const OLDER: usize = 1_000;
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

/// What the newest matrix shows of one key, and what of older ones nothing newer has settled.
struct Newest {
    matrix: u64,
    told: Vec<Told>,
    broken: Vec<Broken>,
    part: Option<Part>,
}

/// Something that a matrix shows.
struct Told {
    about: Option<About>,
    finding: Finding,
}

/// What a disagreement is about.
struct About {
    control: Control,
    /// The check that escaped; absent where none came to a result.
    check: Option<String>,
}

/// A control that a matrix shows to be a false guarantee, and the runs that rely on it.
struct Broken {
    matrix: u64,
    policy: Hash,
    control: Control,
    mechanism: String,
    /// The checks that escaped, as far as nothing newer settled them: none where this counts only for runs that name the
    /// matrix itself.
    checks: BTreeSet<String>,
    /// The same, as far as nothing newer of the very same policy did.
    same_policy: BTreeSet<String>,
    seen: Option<Seen>,
}

/// What a newer matrix settles.
struct Settled<'a>(&'a OfRuntime);

impl Settled<'_> {
    /// Some check of the control came to a result, and so did this one where it was made at all.
    fn escape(&self, control: Control, check: &str) -> bool {
        let mut of = self.0.cells.iter().filter(|cell| cell.control == control);
        let mut same = of.clone().filter(|cell| cell.row.check == check);
        of.any(has_result) && same.all(has_result)
    }

    /// That nothing came to a result is settled by a result, and by any newer launch: it tells again what it declares.
    fn unmeasured(&self, control: Control) -> bool {
        let mut of = self.0.cells.iter().filter(|cell| cell.control == control);
        self.0.used.is_some() || of.any(has_result)
    }

    fn settles(&self, about: &About) -> bool {
        match &about.check {
            Some(check) => self.escape(about.control, check),
            None => self.unmeasured(about.control),
        }
    }
}

fn has_result(cell: &Judged) -> bool {
    matches!(
        cell.row.verdict,
        CellVerdict::Contained | CellVerdict::Escaped | CellVerdict::FalseGuarantee
    ) || cell.row.reason == Some(CellReason::HostForbids)
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
        let now = shown.record.sequence.value();
        let mut told = told(shown, &key.runtime, &of);
        let mut broken = broken(now, matrix.policy.sha256, &of);
        if self.newest.len() >= KEYS && !self.newest.contains_key(&key) {
            told.into_iter().for_each(|it| findings.push(it.finding));
            return;
        }
        if let Some(before) = self.newest.remove(&key) {
            let settled = Settled(&of);
            for mut older in before.told {
                let Some(about) = &older.about else { continue };
                if settled.settles(about) {
                    findings.push(superseded(now, older.finding));
                    continue;
                }
                let help = format!(
                    "matrix {now}, which is newer, came to no result on it: mend it, and measure again"
                );
                older.finding.help = Some(help);
                match told.len() {
                    ..OLDER => told.push(older),
                    _ => findings.push(older.finding),
                }
            }
            for mut older in before.broken {
                let control = older.control;
                let stands = |check: &String| !settled.escape(control, check);
                older.checks.retain(stands);
                if older.policy == matrix.policy.sha256 {
                    older.same_policy.retain(stands);
                }
                if older.same_policy.is_empty() {
                    continue;
                }
                if broken.len() < OLDER {
                    broken.push(older);
                } else if let Some(finding) = relied_on(&key.runtime, &older) {
                    findings.push(finding);
                }
            }
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
            matrix: now,
            told,
            broken,
            part,
        };
        self.newest.insert(key, newest);
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
        let Some(newest) = self.newest.get_mut(&key) else {
            return;
        };
        for (control, mechanism) in &begun.declared {
            let of = newest.broken.iter_mut().filter(|broken| {
                let stands = !broken.checks.is_empty() && broken.matrix < matrix;
                broken.control == *control
                    && broken.mechanism == *mechanism
                    && (broken.matrix == matrix || stands)
            });
            // A run relies once on a control.
            if let Some(broken) = of.max_by_key(|broken| broken.matrix) {
                let seen = broken.seen.get_or_insert(Seen {
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
            let told = newest.told.into_iter().map(|it| it.finding);
            told.for_each(|finding| findings.push(finding));
            let relied = newest.broken.iter();
            let relied = relied.filter_map(|broken| relied_on(&key.runtime, broken));
            relied.for_each(|finding| findings.push(finding));
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

/// What a matrix shows to be false, a control and mechanism each.
fn broken(matrix: u64, policy: Hash, of: &OfRuntime) -> Vec<Broken> {
    let mut broken = BTreeMap::<_, BTreeSet<String>>::new();
    for cell in of.cells.iter().filter(|cell| is_false(cell)) {
        if let Some(mechanism) = &cell.mechanism {
            let checks = broken.entry((cell.control, mechanism.clone()));
            checks.or_default().insert(cell.row.check.clone());
        }
    }
    let broken = broken.into_iter();
    let broken = broken.map(|((control, mechanism), checks)| Broken {
        matrix,
        policy,
        control,
        mechanism,
        same_policy: checks.clone(),
        checks,
        seen: None,
    });
    broken.collect()
}

fn superseded(now: u64, mut finding: Finding) -> Finding {
    finding.message = format!(
        "matrix {now} has taken its place; it showed {}: {}",
        finding.code, finding.message
    );
    finding.code = Code::SupersededFinding;
    finding.help = None;
    finding
}

fn relied_on(runtime: &str, broken: &Broken) -> Option<Finding> {
    let Broken {
        matrix,
        control,
        mechanism,
        ..
    } = broken;
    let seen = broken.seen.as_ref()?;
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
    Some(finding)
}

/// What a matrix shows of a runtime.
fn told(shown: &Shown<'_>, runtime: &str, of: &OfRuntime) -> Vec<Told> {
    let mut told = Vec::new();
    for cell in of.cells.iter().filter(|cell| is_false(cell)) {
        let (check, detail) = (&cell.row.check, &cell.row.detail);
        let by = cell.mechanism.as_deref().unwrap_or("no mechanism named");
        let message = format!(
            "{runtime} declares {} ({by}), and {check} escaped: {}",
            cell.control,
            excerpt(detail, 200)
        );
        told.push(Told {
            about: Some(About {
                control: cell.control,
                check: Some(check.clone()),
            }),
            finding: shown
                .finding(Code::FalseGuarantee, message)
                .help("do not rely on this control here until it is mended and measured again"),
        });
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
            told.push(Told {
                about: Some(About {
                    control: *control,
                    check: None,
                }),
                finding: shown.finding(Code::DeclaredUnmeasured, message).help(
                    "`verify matrix` says for each check why; a declaration alone shows nothing",
                ),
            });
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
        told.push(Told {
            about: None,
            finding,
        });
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
