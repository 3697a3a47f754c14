//! Denied calls: who can list them, and what the lists come to.

use ledger::bytes::canon::to_canonical;
use ledger::facts::execution::{Unmeasured, Violation, Word};

use super::super::{Denials, Denied};
use super::*;

fn denied(call: &str, count: u32) -> Violation {
    let takes = ledger::facts::policy::syscalls::lookup(call)
        .unwrap()
        .arguments;
    Violation {
        arguments: vec![Word(0); takes.into()],
        call: call.to_owned(),
        count: U53::from(count),
        first_us: U53::from(1_000),
        number: None,
    }
}

fn run(maker: &mut Maker, runtime: &str, change: impl FnOnce(&Maker, &mut Execution)) -> u64 {
    let mut start = maker.plain_start();
    start.runtime.id = runtime.to_owned();
    let start = maker.start(start);
    let mut end = execution(start, Verdict::AsRequested);
    end.unmeasured = None;
    change(maker, &mut end);
    maker.end(end);
    u64::from(start)
}

fn listed(maker: &mut Maker, runtime: &str, list: Vec<Violation>) -> u64 {
    run(maker, runtime, |_, end| {
        end.violations = Some(List::Inline(list))
    })
}

#[test]
fn who_cannot_listen_lists_nothing() {
    for runtime in ["native", "bwrap", "unshare", "wasi", "firejail"] {
        // An empty list says that somebody listened, too.
        for list in [vec![], vec![denied("ptrace", 1)]] {
            let mut maker = Maker::new();
            listed(&mut maker, runtime, list);
            assert_eq!(
                maker.told(),
                (vec![Code::ReferenceInvalid], 10),
                "{runtime}"
            );
        }
        let mut maker = Maker::new();
        run(&mut maker, runtime, |_, _| {});
        assert!(!maker.observes(Code::ViolationsUnsaid), "{runtime}");
    }
    let mut maker = Maker::new();
    listed(&mut maker, "embedded", vec![denied("ptrace", 1)]);
    assert_eq!(maker.told(), (vec![], 0));
}

#[test]
fn who_listens_says_what_was_denied_or_why_that_is_not_known() {
    let mut maker = Maker::new();
    run(&mut maker, "embedded", |_, _| {});
    assert!(maker.observes(Code::ViolationsUnsaid));
    let reason = |_: &Maker, end: &mut Execution| {
        end.unmeasured = Some(vec![Unmeasured {
            field: "violations".to_owned(),
            reason: "no-filter".to_owned(),
        }]);
    };
    let interrupted = |_: &Maker, end: &mut Execution| {
        end.result.outcome = Outcome::Interrupted;
        end.result.exit_code = None;
        end.verdict = Verdict::Interrupted;
    };
    let mut maker = Maker::new();
    listed(&mut maker, "embedded", vec![]);
    run(&mut maker, "embedded", reason);
    run(&mut maker, "embedded", interrupted);
    assert!(!maker.observes(Code::ViolationsUnsaid));
    let denials = maker.verify().denials;
    assert_eq!((denials.heard, denials.unheard), (1, 1));
}

#[test]
fn a_list_of_a_run_below_an_outer_filter_is_said_not_to_be_all() {
    let outer = |end: &mut Execution| {
        end.unmeasured = Some(vec![Unmeasured {
            field: "violations".to_owned(),
            reason: "outer-filter".to_owned(),
        }]);
    };
    let mut maker = Maker::new();
    run(&mut maker, "embedded", |_, end| {
        end.violations = Some(List::Inline(vec![denied("ptrace", 1)]));
        outer(end);
    });
    listed(&mut maker, "embedded", vec![]);
    assert_eq!(maker.told(), (vec![], 0));
    let denials = maker.verify().denials;
    assert_eq!((denials.heard, denials.partly, denials.unheard), (2, 1, 0));
    let mut maker = Maker::new();
    run(&mut maker, "embedded", |_, end| outer(end));
    // Its start has no end then.
    let codes = vec![Code::RecordMalformed, Code::RunUnfinished];
    assert_eq!(maker.told(), (codes, 10));
}

#[test]
fn a_list_in_a_blob_is_held_against_its_run_as_any_other() {
    let in_blob = |list: &[Violation]| {
        let mut maker = Maker::new();
        run(&mut maker, "embedded", |maker, end| {
            let blob = maker.blob(&to_canonical(list).unwrap());
            let count = U53::saturating(list.len() as u64);
            end.violations = Some(List::Blob(BlobList { blob, count }));
        });
        maker
    };
    let good = in_blob(&[denied("bpf", 2), denied("ptrace", 3)]);
    assert_eq!(good.told(), (vec![], 0));
    assert_eq!(good.verify().denials.calls.len(), 2);
    let mut late = denied("ptrace", 3);
    late.first_us = U53::from(1_001);
    let mut long = denied("ptrace", 3);
    long.arguments = vec![Word(0); 7];
    let mut foreign = denied("ptrace", 3);
    foreign.call = "open_sesame".to_owned();
    for bad in [late, long, foreign] {
        let maker = in_blob(&[denied("bpf", 2), bad]);
        assert_eq!(maker.told(), (vec![Code::BlobMismatch], 10));
        // Of such a list nothing is counted.
        let denials = maker.verify().denials;
        assert_eq!((denials.heard, denials.unheard), (0, 1));
        assert_eq!(denials.calls, []);
    }
}

#[test]
fn what_was_denied_is_added_up_and_the_most_frequent_comes_first() {
    let mut maker = Maker::new();
    let first = listed(
        &mut maker,
        "embedded",
        vec![denied("bpf", 2), denied("ptrace", 3)],
    );
    let second = listed(
        &mut maker,
        "embedded",
        vec![denied("keyctl", 9), denied("mount", 3), denied("ptrace", 4)],
    );
    run(&mut maker, "native", |_, _| {});
    let calls = [
        ("keyctl", 9, 1, second),
        ("ptrace", 7, 2, first),
        ("mount", 3, 1, second),
        ("bpf", 2, 1, first),
    ];
    let calls = calls.map(|(call, count, runs, first)| Denied {
        call: call.to_owned(),
        count,
        runs,
        first,
    });
    let expected = Denials {
        heard: 2,
        partly: 0,
        unheard: 1,
        calls: calls.to_vec(),
    };
    assert_eq!(maker.verify().denials, expected);
}
