//! Output without end, without a reader, without form, and at the borders of what is kept.

use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ledger::bytes::hash::{Hash, Hasher};

use super::{Watched, outcome, sh, sh_command, strict, unheard};
use crate::world::ready;

#[test]
fn far_more_output_than_anybody_keeps() {
    const BYTES: u64 = 400_000_000;
    let world = ready!();
    let script = format!("head -c {BYTES} /dev/zero; head -c {BYTES} /dev/zero >&2; exit 3");
    let flags = strict(&world, |_| {});
    let mut command = sh_command(&world, &flags, &script, &[]);
    assert_eq!(Watched::start(unheard(&mut command)).wait(), Some(3));
    let (run, how) = outcome(&world);
    assert_eq!(how, "exited 3");
    let mut hasher = Hasher::plain();
    let piece = vec![0; 1_000_000];
    (0..BYTES / 1_000_000).for_each(|_| hasher.update(&piece));
    let all = hasher.finish();
    for output in [run.stdout.unwrap(), run.stderr.unwrap()] {
        assert_eq!((output.bytes.value(), output.sha256), (BYTES, all));
        assert_eq!(output.kept.value(), 1 << 20);
        assert_eq!(output.blob, Some(Hash::of(&vec![0; 1 << 20])));
    }
}

#[test]
fn output_without_end_ends_at_the_deadline() {
    let world = ready!();
    let flags = strict(&world, |policy| {
        policy["resources"]["timeoutMs"] = 700.into()
    });
    let script = "yes >&2 & yes & while :; do echo more; done";
    let mut command = sh_command(&world, &flags, script, &[]);
    assert_eq!(Watched::start(unheard(&mut command)).wait(), Some(124));
    let (run, how) = outcome(&world);
    assert_eq!(how, "timeout");
    // What came first came through.
    for output in [run.stdout.unwrap(), run.stderr.unwrap()] {
        assert!(output.kept.value() <= 1 << 20 && output.kept <= output.bytes);
    }
}

#[test]
fn streams_that_are_closed_end_nothing() {
    let world = ready!();
    let script = "exec >&- 2>&-; sleep 600";
    sh(&world, "-q --timeout 1s", script, &[]).ended(124);
    let (run, how) = outcome(&world);
    assert_eq!(
        (how.as_str(), run.stdout.unwrap().bytes.value()),
        ("timeout", 0)
    );
    // Nor is the end missed, and the status is the workload's.
    sh(&world, "-q", "exec >&- 2>&- <&-; exit 3", &[]).ended(3);
    assert_eq!(outcome(&world).1, "exited 3");
    let script = "echo before; exec >&- 2>&-; kill -KILL $$";
    sh(&world, "-q", script, &[]).ended(128 + 9);
    let (run, how) = outcome(&world);
    assert_eq!(how, "signaled 9");
    assert_eq!(run.stdout.unwrap().text.as_deref(), Some("before\n"));
}

#[test]
fn every_length_around_a_border_is_kept_exactly() {
    const CAP: usize = 8192;
    let world = ready!();
    let flags = strict(&world, |policy| {
        policy["resources"]["outputBytes"] = CAP.into();
    });
    for length in [0, 1, 4095, 4096, 4097, CAP - 1, CAP, CAP + 1] {
        let script = format!("yes | head -c {length}");
        let ran = sh(&world, &flags, &script, &[]).ended(0);
        let all: Vec<u8> = b"y\n".iter().copied().cycle().take(length).collect();
        let kept = &all[..length.min(CAP)];
        assert_eq!(ran.bytes, kept);
        assert_eq!(
            ran.err.contains("past its cap"),
            length > CAP,
            "{}",
            ran.err
        );
        let output = outcome(&world).0.stdout.unwrap();
        assert_eq!(output.bytes.value(), length as u64);
        assert_eq!(output.kept.value(), kept.len() as u64);
        assert_eq!(output.sha256, Hash::of(&all));
        assert_eq!(output.blob, (length > 4096).then(|| Hash::of(kept)));
        let text = (length <= 4096).then(|| String::from_utf8_lossy(kept).into_owned());
        assert_eq!((output.text, output.base64), (text, None));
    }
}

#[test]
fn a_character_that_a_border_cuts_is_no_text() {
    let world = ready!();
    let flags = strict(&world, |policy| {
        policy["resources"]["outputBytes"] = 5.into();
    });
    // Three characters of two bytes each, without a newline.
    let ran = sh(&world, &flags, r"printf '\303\251\303\251\303\251'", &[]).ended(0);
    assert_eq!(ran.bytes, "ééé".as_bytes()[..5]);
    let output = outcome(&world).0.stdout.unwrap();
    assert_eq!(output.base64, Some(STANDARD.encode(&"ééé".as_bytes()[..5])));
    assert_eq!((output.text, output.blob), (None, None));
    assert_eq!(output.sha256, Hash::of("ééé".as_bytes()));
    // Nulls, bytes that are no text, what a terminal would obey, and no newline at the end.
    let script = r"printf '\000\377\033[2J\033]0;title\007\r'; printf '\000' >&2";
    let ran = sh(&world, "-q", script, &[]).ended(0);
    let all = b"\0\xff\x1b[2J\x1b]0;title\x07\r";
    assert_eq!(ran.bytes, all);
    let run = outcome(&world).0;
    assert_eq!(run.stdout.unwrap().base64, Some(STANDARD.encode(all)));
    assert_eq!(run.stderr.unwrap().base64, Some(STANDARD.encode([0])));
}

#[test]
fn own_output_taken_back_is_missing_for_the_workload_alone() {
    let world = ready!();
    // Whoever may make the pipe readable reads what was printed; nothing of the runner's comes back.
    let script = "chmod 666 /proc/self/fd/1; printf secret; (timeout 1 head -c 3 </proc/self/fd/1 >&2); \
        (sleep 600 </proc/self/fd/1 &) ; exit 6";
    let ran = sh(&world, "-q", script, &[]).ended(6);
    assert!(["secret", "ret"].contains(&ran.out.as_str()), "{ran:#?}");
    let (run, how) = outcome(&world);
    assert_eq!(how, "exited 6");
    assert_eq!(run.stdout.unwrap().text, Some(ran.out));
}

#[test]
fn input_that_is_not_wanted_or_never_comes_holds_nothing_up() {
    let world = ready!();
    for (script, code) in [
        ("exit 5", 5),
        ("exec <&-; exit 6", 6),
        (
            "echo back >&0; echo back >/dev/stdin; echo back >/proc/self/fd/0; exit 7",
            7,
        ),
        ("exec <&-; sleep 600", 124),
        ("cat", 124),
    ] {
        // The caller neither writes nor closes.
        let mut command = sh_command(&world, "-q --timeout 1s", script, &[]);
        let mut run = Watched::start(command.stdin(Stdio::piped()));
        let _open = run.child.stdin.take();
        assert_eq!(run.finish().ended(code).out, "");
    }
}
