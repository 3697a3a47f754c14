//! Denied system calls, counted: SANDBOX.md §4. They fail with EPERM whether anybody hears of them or not.

use std::collections::BTreeMap;

use ledger::facts::execution::{Execution, Outcome, Violation, Word};
use ledger::facts::list::List;
use ledger::record::Body;
use runner::sys::filter::{self, Instruction};

use crate::evidence::Run;
use crate::matrix::some_rows;
use crate::probe::{answers, command_inside, inside, run_inside};
use crate::verifier::{NO_VERIFIER, verdict, verifier};
use crate::world::{Ran, World, is_root, program, ready, skip};

/// What a run's record lists, wherever the list stands.
#[track_caller]
fn listed(world: &World, execution: &Execution) -> Vec<Violation> {
    let unmeasured = &execution.unmeasured;
    match execution.violations.clone() {
        Some(List::Inline(list)) => list,
        Some(List::Blob(list)) => {
            let name = list.blob.to_string();
            let (two, rest) = name.split_at(2);
            let text = std::fs::read(world.ledger().join("blobs").join(two).join(rest)).unwrap();
            let items: Vec<Violation> = serde_json::from_slice(&text).unwrap();
            assert_eq!(items.len() as u64, list.count.value());
            items
        }
        None => panic!("nobody listened: {unmeasured:?}"),
    }
}

fn counts(list: &[Violation]) -> BTreeMap<&str, u64> {
    list.iter()
        .map(|it| (it.call.as_str(), it.count.value()))
        .collect()
}

/// Why a run does not say what was denied.
#[track_caller]
fn reason(run: &Run) -> &str {
    assert_eq!(run.execution.violations, None);
    let unmeasured = run.execution.unmeasured.as_deref().unwrap_or_default();
    let mut about = unmeasured.iter().filter(|it| it.field == "violations");
    let reason = &about.next().expect("it does not say why").reason;
    assert!(about.next().is_none());
    reason
}

/// Whether this kernel, and whoever put this test under a filter, let calls be handed over at all.
fn heard(test: &str, run: &Run) -> bool {
    let unmeasured = run.execution.unmeasured.as_deref().unwrap_or_default();
    let mut why = unmeasured.iter().filter(|it| it.field == "violations");
    let why = why.find(|it| it.reason != Execution::OUTER_FILTER);
    if let Some(why) = why {
        skip(test, &why.reason);
    }
    why.is_none()
}

/// The same as [`run_inside`], under the embedded runtime, which listens.
fn embedded(world: &World, flags: &str, attempts: &[&str]) -> Ran {
    run_inside(world, &format!("--runtime embedded {flags}"), attempts)
}

#[test]
fn what_is_denied_is_listed_by_name_with_its_first_arguments() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let flags = format!("-P {}", policy.display());
    let attempts = [
        "ptrace", "ptrace", "ptrace", "mount", "getpid", "getcpu", "args:bpf",
    ];
    let ran = embedded(&world, &flags, &attempts);
    for (name, answer) in answers(&ran) {
        let expected = if name == "getpid" { "ok" } else { "EPERM" };
        assert_eq!(answer, expected, "{name}");
    }
    let run = world.last();
    if !heard("what_is_denied_is_listed", &run) {
        return;
    }
    let list = listed(&world, &run.execution);
    let expected = [("bpf", 1), ("getcpu", 1), ("mount", 1), ("ptrace", 3)];
    assert_eq!(counts(&list), expected.into_iter().collect());
    let named: Vec<_> = list.iter().map(|it| it.call.as_str()).collect();
    assert!(named.is_sorted(), "{named:?}");
    // As many as each call takes; numbers of 64 bits are whole.
    let arguments: Vec<_> = list.iter().map(|it| it.arguments.as_slice()).collect();
    assert_eq!(arguments[0], [u64::MAX, 1 << 53, 3].map(Word));
    assert_eq!(arguments[1], [Word(0); 3]);
    assert_eq!(arguments[2], [Word(0); 5]);
    assert_eq!(arguments[3], [Word(0); 4]);
    let duration = run.execution.result.duration_us.unwrap();
    assert!(list.iter().all(|it| it.first_us <= duration), "{list:?}");
    // Nothing that the workload had in its memory, and no verdict rests on it.
    assert_eq!(run.execution.result.outcome, Outcome::Exited);
    assert!(run.declares("syscalls"));
    let said = "denied system calls: ptrace 3, bpf 1, getcpu 1, mount 1\n";
    assert!(ran.err.contains(said), "{}", ran.err);
}

#[test]
fn a_run_that_calls_nothing_denied_says_so_and_nothing_on_stderr() {
    let world = ready!();
    let ran = world.exec("--runtime embedded", &["true"]).ended(0);
    assert!(!ran.err.contains("denied system calls"), "{}", ran.err);
    let run = world.last();
    if heard("a_run_that_calls_nothing_denied", &run) {
        assert_eq!(run.execution.violations, Some(List::Inline(Vec::new())));
    }
}

#[test]
fn denied_calls_are_an_event_and_no_line_for_who_asked_for_quiet() {
    let world = ready!();
    let events = world.path("events");
    let flags = format!("-q --runtime embedded --events {}", events.display());
    let mut command = command_inside(&world, &flags, &["ptrace", "ptrace", "mount"]);
    let ran = Ran::of(command.output().unwrap()).ended(0);
    assert!(!ran.err.contains("denied system calls"), "{}", ran.err);
    if !heard("denied_calls_are_an_event", &world.last()) {
        return;
    }
    let text = std::fs::read_to_string(&events).unwrap();
    let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
    let lines: Vec<_> = lines.map(Result::unwrap).collect();
    let of = |name: &str| lines.iter().position(|line| line["event"] == name);
    let at = of("denied-calls").expect("no event about them");
    let calls = serde_json::json!({ "mount": 1, "ptrace": 2 });
    assert_eq!(lines[at]["calls"], calls);
    assert!(of("started").unwrap() < at && at < of("ended").unwrap());
}

#[test]
fn a_hundred_thousand_denied_calls_of_eight_threads_are_all_counted() {
    let world = ready!();
    let policy = world.policy(|policy| policy["resources"]["timeoutMs"] = 1_200_000.into());
    let flags = format!("-P {}", policy.display());
    let ran = embedded(&world, &flags, &["flood:2500"]);
    // All of them got EPERM, and the program lives.
    assert_eq!(answers(&ran)["flood:2500"], "ok");
    let run = world.last();
    if !heard("a_hundred_thousand_denied_calls", &run) {
        return;
    }
    let list = listed(&world, &run.execution);
    let calls = ["bpf", "keyctl", "mount", "perf_event_open", "ptrace"];
    assert_eq!(counts(&list), calls.map(|call| (call, 20_000)).into());
}

#[test]
fn a_flood_without_end_holds_up_neither_output_nor_deadline() {
    let world = ready!();
    let policy = world.policy(|policy| policy["resources"]["timeoutMs"] = 3_000.into());
    let flags = format!("-P {}", policy.display());
    let ran = embedded(&world, &flags, &["say-and-flood"]).ended(124);
    assert!(ran.out.contains("said before"), "{}", ran.out);
    let run = world.last();
    assert_eq!(run.execution.result.outcome, Outcome::Timeout);
    if heard("a_flood_without_end", &run) {
        let list = listed(&world, &run.execution);
        assert!(counts(&list)["ptrace"] > 0, "{list:?}");
    }
}

#[test]
fn who_is_killed_in_the_middle_of_a_denied_call_stalls_nobody() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let flags = format!("-P {}", policy.display());
    let ran = embedded(&world, &flags, &["killed-while-denied", "getcpu"]);
    let answers = answers(&ran);
    assert_eq!(answers["killed-while-denied"], "ok");
    assert_eq!(answers["getcpu"], "EPERM");
    let run = world.last();
    if heard("who_is_killed_in_the_middle", &run) {
        let list = listed(&world, &run.execution);
        assert_eq!(counts(&list)["getcpu"], 1, "{list:?}");
        // One of each child's at least, which it was told about.
        assert!(counts(&list)["ptrace"] >= 100, "{list:?}");
    }
}

#[test]
fn a_call_that_a_signal_interrupts_is_counted_once() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let flags = format!("-P {}", policy.display());
    let ran = embedded(&world, &flags, &["among-signals:2000"]);
    assert_eq!(answers(&ran)["among-signals:2000"], "ok");
    let run = world.last();
    if heard("a_call_that_a_signal_interrupts", &run) {
        let list = listed(&world, &run.execution);
        assert_eq!(counts(&list), [("getcpu", 2_000)].into());
    }
}

#[test]
fn a_call_that_a_signal_cuts_short_was_not_denied_and_is_not_counted() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let flags = format!("-P {}", policy.display());
    let ran = embedded(&world, &flags, &["cut-by-signals:2000"]);
    // Nothing but EPERM and EINTR, and 2,000 times EPERM.
    assert_eq!(answers(&ran)["cut-by-signals:2000"], "ok");
    let run = world.last();
    if heard("a_call_that_a_signal_cuts_short", &run) {
        let list = listed(&world, &run.execution);
        assert_eq!(counts(&list), [("getcpu", 2_000)].into());
    }
}

/// Calls that no program of these tests makes by itself.
const RARE: [&str; 24] = [
    "epoll_ctl_old",
    "epoll_wait_old",
    "fsetxattr",
    "fremovexattr",
    "get_mempolicy",
    "getpmsg",
    "io_cancel",
    "io_destroy",
    "io_setup",
    "io_submit",
    "migrate_pages",
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "putpmsg",
    "semctl",
    "semget",
];

#[cfg(target_arch = "x86_64")]
#[test]
fn a_list_too_long_for_its_record_is_a_blob_that_verify_reads() {
    let world = ready!();
    let policy = world.policy(|policy| {
        let more = RARE.into_iter().chain(["getcpu"]);
        policy["syscalls"]["deny"] = more.collect::<Vec<_>>().into();
    });
    let mut attempts: Vec<&str> = ledger::facts::policy::DEFAULT_PROFILE.to_vec();
    attempts.extend(RARE);
    let flags = format!("--runtime embedded -P {}", policy.display());
    let answers = inside(&world, &flags, &attempts);
    assert!(
        answers.values().all(|answer| answer == "EPERM"),
        "{answers:?}"
    );
    let run = world.last();
    if !heard("a_list_too_long_for_its_record", &run) {
        return;
    }
    assert!(matches!(run.execution.violations, Some(List::Blob(_))));
    let list = listed(&world, &run.execution);
    // What a filter of every sandbox denies itself is never handed over.
    let expected = attempts
        .into_iter()
        .filter(|call| !call.starts_with("io_uring"));
    assert_eq!(counts(&list), expected.map(|call| (call, 1)).collect());
    let Some(verify) = verifier() else {
        return skip("a_list_too_long_for_its_record", NO_VERIFIER);
    };
    assert_eq!(verdict(verify, &world.ledger(), None).code, 0);
    let Some(List::Blob(blob)) = run.execution.violations else {
        panic!("no blob");
    };
    let name = blob.blob.to_string();
    let (two, rest) = name.split_at(2);
    std::fs::write(world.ledger().join("blobs").join(two).join(rest), "[]").unwrap();
    assert_eq!(verdict(verify, &world.ledger(), None).code, 10);
}

#[test]
fn numbers_without_a_name_stand_together_under_an_allow_list() {
    let world = ready!();
    let all = ledger::facts::policy::syscalls::all().iter();
    let names = all.map(|call| call.name).filter(|name| *name != "getcpu");
    let names: Vec<_> = names.collect();
    let policy = world.policy(|policy| policy["syscalls"] = serde_json::json!({ "allow": names }));
    let flags = format!("-P {}", policy.display());
    let attempts = ["number:1000", "number:1001", "getcpu"];
    let ran = embedded(&world, &flags, &attempts);
    assert!(answers(&ran).values().all(|answer| answer == "EPERM"));
    let run = world.last();
    if heard("numbers_without_a_name", &run) {
        let list = listed(&world, &run.execution);
        assert_eq!(counts(&list), [("getcpu", 1), ("unnamed", 2)].into());
        assert_eq!(list[1].number.map(|number| number.value()), Some(1_000));
        assert_eq!(list[1].arguments, []);
    }
}

#[test]
fn other_runtimes_do_not_listen_and_say_so() {
    let world = ready!();
    let mut runtimes = vec!["native"];
    runtimes.extend(program("bwrap").map(|_| "bwrap"));
    runtimes.extend(program("unshare").map(|_| "unshare"));
    for runtime in runtimes {
        let flags = format!("--runtime {runtime} --allow-native --best-effort");
        world.exec(&flags, &["true"]).ended(0);
        assert_eq!(
            reason(&world.last()),
            "runtime-does-not-report",
            "{runtime}"
        );
    }
}

#[test]
fn without_a_filter_of_the_policys_there_is_nothing_to_hear() {
    let world = ready!();
    let policy = world.policy(|policy| {
        policy["syscalls"] = serde_json::json!({});
        let required = policy["enforcement"]["requiredControls"].as_array_mut();
        required.unwrap().retain(|control| control != "syscalls");
    });
    let flags = format!("--runtime embedded --best-effort -P {}", policy.display());
    world.exec(&flags, &["true"]).ended(0);
    let run = world.last();
    assert!(!run.declares("syscalls"));
    assert_eq!(reason(&run), "no-filter");
}

#[test]
fn where_the_descriptor_cannot_be_had_the_filter_denies_by_itself() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let flags = format!("--runtime embedded -P {}", policy.display());
    let mut command = command_inside(&world, &flags, &["getcpu", "ptrace", "getpid"]);
    command.env("RUNNER_FAULT", "listener=fail");
    let ran = Ran::of(command.output().unwrap());
    let answers = answers(&ran);
    assert_eq!(answers["getcpu"], "EPERM");
    assert_eq!(answers["ptrace"], "EPERM");
    assert_eq!(answers["getpid"], "ok");
    assert!(!ran.err.contains("denied system calls"), "{}", ran.err);
    let run = world.last();
    assert_eq!(reason(&run), "listener-not-passed: EPERM");
    assert_eq!(run.execution.verdict.as_str(), "as-requested");
    // With a terminal of its own, which is handed over once.
    let mut command = world.exec_command(
        &format!("{flags} -t"),
        &["sh", "-c", "test -t 0 && test -t 1 && echo terminal"],
    );
    command.env("RUNNER_FAULT", "listener=fail");
    let ran = Ran::of(command.output().unwrap()).ended(0);
    assert_eq!(ran.out, "terminal\r\n");
    assert_eq!(reason(&world.last()), "listener-not-passed: EPERM");
}

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// Ends a filter (BPF_RET | BPF_K).
const fn answer(k: u32) -> Instruction {
    instruction(0x06, 0, 0, k)
}

/// A filter around this program, as some container engines put one there, with a listener or without.
#[allow(unsafe_code, reason = "a filter is installed between fork and exec")]
fn under_a_filter(
    command: &mut std::process::Command,
    program: Vec<Instruction>,
    has_listener: bool,
) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: two system calls; nothing is allocated. The descriptor stays where it is until exec, and the filter's listener is
    // known to the kernel by the filter.
    unsafe {
        command.pre_exec(move || {
            if !is_root() {
                nix::sys::prctl::set_no_new_privs()?;
            }
            if !has_listener {
                return filter::install("seccomp", &program);
            }
            let number = filter::install_reporting("seccomp", &program)?;
            // Kept, so that the filter goes on to have a listener.
            if libc::fcntl(number, libc::F_SETFD, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

#[test]
fn below_another_listener_the_filter_denies_by_itself() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let flags = format!("--runtime embedded -P {}", policy.display());
    let mut command = command_inside(&world, &flags, &["getcpu", "getpid"]);
    under_a_filter(&mut command, vec![answer(libc::SECCOMP_RET_ALLOW)], true);
    let ran = match command.output() {
        Ok(output) => Ran::of(output),
        Err(error) => return skip("below_another_listener", error),
    };
    let answers = answers(&ran);
    assert_eq!(answers["getcpu"], "EPERM");
    assert_eq!(answers["getpid"], "ok");
    let run = world.last();
    assert!(run.declares("syscalls"), "{:?}", run.reason("syscalls"));
    assert_eq!(reason(&run), "another-listener");
}

/// The kernel takes its answer, and asks nobody.
#[test]
fn what_an_outer_filter_denies_is_not_heard_and_the_list_says_that_it_is_not_all() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let flags = format!("--runtime embedded -P {}", policy.display());
    let denied = u32::try_from(libc::SYS_bpf).unwrap();
    let outer = vec![
        // The call's number (BPF_LD | BPF_W | BPF_ABS), and whether it is that one (BPF_JMP | BPF_JEQ | BPF_K).
        instruction(0x20, 0, 0, 0),
        instruction(0x15, 0, 1, denied),
        answer(libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap()),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    // Unless this test, too, runs under one.
    let bare = if filter::is_under_one() {
        "outer-filter"
    } else {
        ""
    };
    for (outer, expected) in [(Some(outer), "outer-filter"), (None, bare)] {
        let is_under_one = outer.is_some();
        let mut command = command_inside(&world, &flags, &["bpf", "ptrace", "getpid"]);
        if let Some(outer) = outer {
            under_a_filter(&mut command, outer, false);
        }
        let ran = match command.output() {
            Ok(output) => Ran::of(output),
            Err(error) => return skip("what_an_outer_filter_denies", error),
        };
        let answers = answers(&ran);
        assert_eq!(
            (&answers["bpf"][..], &answers["ptrace"][..]),
            ("EPERM", "EPERM")
        );
        let run = world.last();
        if !heard("what_an_outer_filter_denies", &run) {
            return;
        }
        let list = listed(&world, &run.execution);
        assert_eq!(counts(&list).contains_key("bpf"), !is_under_one, "{list:?}");
        assert_eq!(counts(&list)["ptrace"], 1);
        let unmeasured = run.execution.unmeasured.clone().unwrap_or_default();
        let mut said = unmeasured.iter().filter(|it| it.field == "violations");
        assert_eq!(said.next().map_or("", |it| it.reason.as_str()), expected);
        assert!(said.next().is_none());
    }
    if let Some(verify) = verifier() {
        let verdict = verdict(verify, &world.ledger(), None);
        let denied = &verdict.document["denied"];
        assert_eq!(
            (&denied["heard"], &denied["partly"]),
            (&2.into(), &1.into())
        );
    }
}

#[test]
fn probes_are_denied_as_ever_and_their_records_list_it() {
    let world = ready!();
    let suite = some_rows(&world, &["syscalls"]);
    let ran = world.run(&format!("matrix --json --runtime embedded --suite {suite}"));
    let cells = crate::matrix::verdicts(&ran.ended(0));
    let contained = ("contained".to_owned(), String::new());
    assert_eq!(cells["syscalls/calibration"], contained, "{cells:?}");
    let mut seen = [0, 0];
    for (record, _) in &world.evidence().records {
        let Body::Probe(probe) = &record.body else {
            continue;
        };
        let reasons = probe.execution.unmeasured.as_deref().unwrap_or_default();
        let why = reasons.iter().find(|it| it.field == "violations");
        match probe.arm.as_str() {
            "run" => {
                if let Some(why) = why {
                    return skip("probes_are_denied_as_ever", &why.reason);
                }
                let list = listed(&world, &probe.execution);
                assert!(counts(&list).contains_key("getcpu"), "{list:?}");
                seen[0] += 1;
            }
            arm => {
                let expected = if arm == "ablation" {
                    "no-filter"
                } else {
                    "runtime-does-not-report"
                };
                assert_eq!(why.unwrap().reason, expected);
                seen[1] += 1;
            }
        }
    }
    assert!(seen[0] > 0 && seen[1] > 1, "{seen:?}");
}
