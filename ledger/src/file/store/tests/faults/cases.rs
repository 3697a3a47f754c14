//! One call fails, a write is cut, a flush is lost, a disk fills up, becomes read-only or breaks.

use super::*;

/// Calls whose failure costs nothing that anybody must know.
fn is_silent(operation: Operation, path: &Path) -> bool {
    let text = path.to_string_lossy();
    match operation {
        // What stays of an ended run or a blob is swept with the next opening.
        Operation::Remove | Operation::Rename | Operation::Lock => text.contains("/runs/"),
        // Another file is made instead of the one that takes turns.
        Operation::Open => text.ends_with(".new"),
        _ => false,
    }
}

fn one_call_fails(scenario: Scenario) {
    let errors = [Errno::NOSPC, Errno::IO, Errno::ROFS, Errno::DQUOT];
    for n in 0..calls(scenario).len() {
        for errno in errors {
            let rule = Rule::call(n as u64 + 1, What::Fails(errno));
            let played = survives(scenario, &[rule], Memory::Keeps);
            assert_eq!(played.hits, 1);
            let (operation, path) = &played.calls[n];
            let number = format!("(os error {})", errno.raw_os_error());
            let context = format!("call {n}: {operation} {}: {errno}", path.display());
            match played.result {
                Err(text) => {
                    let what = format!("cannot {operation} {}", path.display());
                    assert!(text.contains(&number), "{context}: {text}");
                    assert!(text.contains(&what), "{context}: {text}");
                }
                Ok(()) => {
                    let notices = played.told.notices.join("\n");
                    let told =
                        notices.contains(&number) || notices.contains("made tree and tip again");
                    assert!(told || is_silent(*operation, path), "{context}: {notices}");
                }
            }
        }
    }
}

#[test]
fn one_call_of_a_first_run_fails() {
    one_call_fails(Scenario::New);
}

#[test]
fn one_call_of_a_further_run_fails() {
    one_call_fails(Scenario::Further);
}

#[test]
fn one_call_of_a_close_fails() {
    one_call_fails(Scenario::Close);
}

#[test]
fn what_was_interrupted_or_cut_short_is_done_again() {
    for scenario in [Scenario::New, Scenario::Further, Scenario::Close] {
        let undisturbed = {
            let place = scenario.place();
            let mut told = Told::default();
            scenario.play(&place, &mut told).unwrap();
            told.notices.len()
        };
        for (n, (operation, path)) in (1..).zip(calls(scenario)) {
            for what in [What::Fails(Errno::INTR), What::Short] {
                if what == What::Short && operation != Operation::Write {
                    continue;
                }
                let Played { result, told, .. } =
                    survives(scenario, &[Rule::call(n, what)], Memory::Keeps);
                let context = format!("call {n}: {operation} {}: {what:?}", path.display());
                assert_eq!(result, Ok(()), "{context}");
                assert_eq!(
                    told.notices.len(),
                    undisturbed,
                    "{context}: {:?}",
                    told.notices
                );
            }
        }
    }
}

#[test]
fn a_write_is_cut_and_the_rest_fails() {
    for scenario in [Scenario::New, Scenario::Further, Scenario::Close] {
        for (n, (operation, _)) in (1..).zip(calls(scenario)) {
            if operation != Operation::Write {
                continue;
            }
            for most in [1, 10, 200] {
                for errno in [Errno::NOSPC, Errno::IO] {
                    let rule = Rule::call(n, What::Cut(most, errno));
                    survives(scenario, std::slice::from_ref(&rule), Memory::Keeps);
                    // And what was written cannot be taken back.
                    let stays = Rule::of(Rule::call(1, What::Fails(errno)), Operation::Truncate);
                    survives(scenario, &[rule, stays], Memory::Keeps);
                }
            }
        }
    }
}

#[test]
fn a_flush_fails_and_what_was_written_is_lost() {
    for scenario in [Scenario::New, Scenario::Further, Scenario::Close] {
        let mut flushes = 0;
        for (n, (operation, path)) in (1..).zip(calls(scenario)) {
            if operation != Operation::SyncData {
                continue;
            }
            flushes += 1;
            for memory in [
                Memory::Keeps,
                Memory::DropsFirst(Hole::Zeros),
                Memory::DropsFirst(Hole::Nothing),
                Memory::DropsLater(Hole::Zeros),
                Memory::DropsLater(Hole::Nothing),
            ] {
                let rule = Rule::call(n, What::Fails(Errno::IO));
                let result = survives(scenario, &[rule], memory).result;
                assert!(
                    result.unwrap_err().contains("cannot sync"),
                    "{}",
                    path.display()
                );
            }
        }
        assert!(flushes > 0);
    }
}

#[test]
fn a_disk_is_full_from_some_call_on_and_emptied_later() {
    for scenario in [Scenario::New, Scenario::Further, Scenario::Close] {
        let disk_calls = calls(scenario).len() as u64;
        let mut refused = 0;
        for n in 1..=disk_calls {
            let Played { result, told, .. } = survives(scenario, &[Rule::full(n)], Memory::Keeps);
            match result {
                Err(text) => {
                    refused += 1;
                    assert!(text.contains("No space left"), "{text}");
                }
                Ok(()) => assert!(told.durable > 0),
            }
        }
        assert!(refused > 3, "{scenario:?}: {refused}");
    }
}

#[test]
fn a_disk_becomes_read_only_or_broken_for_good() {
    for scenario in [Scenario::New, Scenario::Further, Scenario::Close] {
        for n in 1..=calls(scenario).len() as u64 {
            let mut broken = Rule::call(n, What::Fails(Errno::IO));
            broken.until = u64::MAX;
            let result = survives(scenario, &[broken], Memory::Keeps).result;
            let silent = result.is_ok();
            let read_only = Rule {
                what: What::Fails(Errno::ROFS),
                ..Rule::full(n)
            };
            survives(scenario, &[read_only], Memory::Keeps);
            assert!(!silent || n > 20, "call {n}");
        }
    }
}

/// A disk whose `n`th flush of a segment fails, and which never had what was written before it.
fn loses_flush(n: u64) -> Rule {
    Rule {
        part: Some("/records/".to_owned()),
        ..Rule::call(n, What::Fails(Errno::IO)).of(Operation::SyncData)
    }
}

#[test]
fn what_another_process_failed_to_flush_is_written_again() {
    for hole in [Hole::Zeros, Hole::Nothing] {
        let place = Place::in_memory();
        let (mut one, mut two) = (place.open(), place.open());
        let disk = Disk::with([loses_flush(1)]);
        let begun = begin(&mut one, run_id());
        let failed = two.append(note("lost"), None, &stamp(), Durability::Durable);
        assert!(
            matches!(failed, Err(AppendError::File(error)) if error.operation == Operation::SyncData)
        );
        // It stops: only those who open the ledger again go on.
        let stopped = two.append(note("x"), None, &stamp(), Durability::Durable);
        assert!(matches!(stopped, Err(AppendError::Stopped)));
        let body = execution(begun);
        let ended = one
            .append(body, None, &stamp(), Durability::Durable)
            .unwrap();
        assert_eq!(ended.sequence.value(), 3);
        assert_eq!(disk.evict(hole), 0, "all of it was written again");
        assert_eq!(place.walk_covered().len(), 4);
        disk.power_loss(hole);
        assert_eq!(place.walk().len(), 4);
        // The caches went with the power; then nothing is written twice any more.
        say(&mut place.open(), "first");
        disk.then([]);
        say(&mut place.open(), "next");
        let writes = disk.calls();
        let to_segment = |(operation, path): &&(Operation, PathBuf)| {
            *operation == Operation::Write && path.starts_with(place.dir().join("records"))
        };
        assert_eq!(writes.iter().filter(to_segment).count(), 1, "{writes:?}");
    }
}

#[test]
fn a_full_segment_that_was_not_flushed_is_written_again() {
    let place = Place::in_memory();
    let mut one = place.open();
    let disk = Disk::with([loses_flush(1)]);
    for _ in 2..SEGMENT_RECORDS {
        one.append(note("x"), None, &stamp(), Durability::Deferred)
            .unwrap();
    }
    let failed = one.append(note("lost"), None, &stamp(), Durability::Durable);
    assert!(failed.is_err());
    drop(one);
    let mut two = place.open();
    assert_eq!(two.size(), SEGMENT_RECORDS);
    say(&mut two, "the first of the next segment");
    assert_eq!(disk.evict(Hole::Zeros), 0);
    disk.power_loss(Hole::Zeros);
    assert_eq!(place.walk().len() as u64, SEGMENT_RECORDS + 1);
}
