use super::*;
use ledger::bytes::hash::Hash;
use ledger::facts::execution::PolicyRef;
use ledger::facts::list::{List, Sealable};
use ledger::facts::matrix::CellReason;

fn host() -> HostFacts {
    let json = serde_json::json!({
        "architecture": "x86_64",
        "bootId": "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f",
        "cgroup": {"delegated": [], "layout": "v2"},
        "container": [],
        "gid": 0,
        "groups": [],
        "kernel": "6.18.0",
        "runner": {"sha256": Hash::ZERO, "version": "0.1.0"},
        "sysctls": {},
        "uid": 0,
    });
    serde_json::from_value(json).unwrap()
}

fn embedded() -> RuntimeUsed {
    RuntimeUsed {
        id: "embedded".to_owned(),
        launch: None,
        sha256: None,
        tier: None,
        version: "0.1.0".to_owned(),
    }
}

fn row(check: &str, declared: bool, verdict: CellVerdict, reason: Option<CellReason>) -> Row {
    Row {
        check: check.to_owned(),
        declared,
        detail: "detail".to_owned(),
        reason,
        runtime: "embedded".to_owned(),
        undeclared: None,
        verdict,
    }
}

fn table(rows: Vec<Row>) -> Table {
    Table {
        host: host(),
        policy: PolicyRef {
            id: "audit".to_owned(),
            sha256: Hash::of(b"policy"),
        },
        rows,
        runtimes: vec![embedded()],
        sequence: Some(7),
        suite: Hash::of(b"suite"),
    }
}

#[test]
fn every_change_of_a_verdict_has_its_place() {
    use CellVerdict as V;
    let all = [
        V::FalseGuarantee,
        V::Escaped,
        V::Inconclusive,
        V::NotApplicable,
        V::Contained,
    ];
    let reason = |verdict| match verdict {
        V::Inconclusive => Some(CellReason::NoOutput),
        V::NotApplicable => Some(CellReason::HostForbids),
        _ => None,
    };
    // From the verdict of the row to that of the column.
    const S: Change = Change::Same;
    const W: Change = Change::Regressed;
    const B: Change = Change::Improved;
    const C: Change = Change::Changed;
    let expected = [
        [S, B, C, B, B],
        [W, S, C, B, B],
        [W, W, S, C, B],
        [W, W, C, S, C],
        [W, W, W, C, S],
    ];
    for (from, row_of) in all.into_iter().zip(expected) {
        for (to, change) in all.into_iter().zip(row_of) {
            let a = [table(vec![row("network/tcp4", true, from, reason(from))])];
            let b = [table(vec![row("network/tcp4", true, to, reason(to))])];
            let compared = compare(&a, &b);
            assert_eq!(compared.cells[0].change, change, "{from} to {to}");
            assert!(compared.fingerprints.is_empty());
        }
    }
}

#[test]
fn another_reason_or_declaration_is_a_change_and_no_regression() {
    let verdict = CellVerdict::Inconclusive;
    let a = [table(vec![
        row("a/a", true, verdict, Some(CellReason::NoOutput)),
        row("b/b", true, CellVerdict::Contained, None),
        row("c/c", true, CellVerdict::Contained, None),
    ])];
    let b = [table(vec![
        row("a/a", true, verdict, Some(CellReason::TwinFailed)),
        row("b/b", false, CellVerdict::Contained, None),
        row("d/d", true, CellVerdict::Contained, None),
    ])];
    let compared = compare(&a, &b);
    let changes: Vec<_> = compared.cells.iter().map(|pair| pair.change).collect();
    let (changed, only_a, only_b) = (Change::Changed, Change::OnlyA, Change::OnlyB);
    assert_eq!(changes, [changed, changed, only_a, only_b]);
    assert_eq!(compared.count(Change::Regressed), 0);
}

#[test]
fn of_each_runtime_the_newest_matrix_counts() {
    let cell = |verdict| row("network/tcp4", true, verdict, None);
    let old = table(vec![cell(CellVerdict::FalseGuarantee)]);
    let new = table(vec![cell(CellVerdict::Contained)]);
    let a = [old.clone(), new.clone()];
    let b = [new, old];
    assert_eq!(compare(&a, &b).cells[0].change, Change::Regressed);
    assert_eq!(compare(&b, &a).cells[0].change, Change::Improved);
}

#[test]
fn fingerprints_name_what_differs_and_know_no_boot() {
    let a = [table(vec![row("a/a", true, CellVerdict::Contained, None)])];
    let mut b = a.clone();
    b[0].host.boot_id = "00000000-5f0b-4a3e-9a44-0f2b1d2c3e4f".parse().unwrap();
    b[0].host.runner.file = Some("1 2 3 4".to_owned());
    b[0].sequence = Some(9);
    assert_eq!(compare(&a, &b).fingerprints, []);
    b[0].host.uid = 1_000;
    b[0].host.sysctls.insert("x.y".to_owned(), "1".to_owned());
    b[0].policy.id = "other".to_owned();
    b[0].suite = Hash::ZERO;
    b[0].runtimes[0].version = "9".to_owned();
    b[0].runtimes[0].launch = Some(Sealable::Clear(List::Inline(vec!["l".to_owned()])));
    let compared = compare(&a, &b);
    let what: Vec<_> = compared.fingerprints.iter().map(|it| &it.what).collect();
    let expected = [
        "embedded launch",
        "embedded version",
        "host sysctls x.y",
        "host uid",
        "policy",
        "suite",
    ];
    assert_eq!(what, expected);
    assert_eq!(compared.fingerprints[0].a, None);
    assert_eq!(compared.fingerprints[0].b.as_deref(), Some("1 words"));
}

#[test]
fn policies_are_compared_by_their_content() {
    let a = [table(vec![row("a/a", true, CellVerdict::Contained, None)])];
    let mut b = a.clone();
    b[0].policy.sha256 = Hash::of(b"another");
    let compared = compare(&a, &b);
    let found = Difference {
        what: "policy sha256".to_owned(),
        a: Some(Hash::of(b"policy").to_string()),
        b: Some(Hash::of(b"another").to_string()),
    };
    assert_eq!(compared.fingerprints, [found]);
}

#[test]
fn a_runtime_of_one_side_is_named_first() {
    let of = |runtime: &str| {
        let mut row = row("a/a", true, CellVerdict::Contained, None);
        runtime.clone_into(&mut row.runtime);
        row
    };
    let a = [table(vec![of("embedded"), of("bwrap")])];
    let b = [table(vec![of("embedded")])];
    let bwrap = |a: Option<&str>, b: Option<&str>| Difference {
        what: "runtime bwrap".to_owned(),
        a: a.map(str::to_owned),
        b: b.map(str::to_owned),
    };
    let compared = compare(&a, &b);
    assert_eq!(compared.fingerprints, [bwrap(Some("measured"), None)]);
    assert_eq!(compared.count(Change::OnlyA), 1);
    assert_eq!(compared.count(Change::Improved), 0);
    let compared = compare(&b, &a);
    assert_eq!(compared.fingerprints, [bwrap(None, Some("measured"))]);
    // None in common: host, policy and suite are compared all the same.
    let mut b = [table(vec![of("bwrap")])];
    b[0].host.kernel = "6.1.0".to_owned();
    b[0].policy.id = "other".to_owned();
    let a = [table(vec![of("embedded")])];
    let compared = compare(&a, &b);
    let what: Vec<_> = compared.fingerprints.iter().map(|it| &it.what).collect();
    assert_eq!(
        what,
        ["host kernel", "policy", "runtime bwrap", "runtime embedded"]
    );
    assert_eq!(compared.fingerprints[3].a.as_deref(), Some("version 0.1.0"));
}
