//! What changed since a snapshot.

use std::collections::BTreeMap;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;

#[test]
fn an_mtime_set_back_does_not_hide_a_change() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, b"before").unwrap();
    fs::write(dir.path().join("same"), b"same").unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let limits = Limits::default();
    let place = existing(dir.path(), &limits);
    fs::write(&path, b"after!").unwrap();
    let open = OpenOptions::new().write(true).open(&path).unwrap();
    open.set_modified(modified).unwrap();
    drop(open);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
    let scan = scan_all(&[place], &limits);
    assert_eq!(scan.artifacts, [file("/w/f", b"after!")]);
    assert!(scan.unmeasured.is_empty());
}

#[test]
fn what_changes_in_the_tick_of_the_snapshot_counts_as_changed() {
    let dir = TempDir::new().unwrap();
    let now = FileTime::now().unwrap();
    fs::write(dir.path().join("f"), b"1").unwrap();
    let limits = Limits::default();
    let place = Place::existing(folder(dir.path()), INSIDE, now, &limits, &whole);
    assert_eq!(scan_all(&[place], &limits).artifacts, [file("/w/f", b"1")]);
}

#[test]
fn a_snapshot_over_its_limit_goes_by_ctime_and_says_so() {
    let dir = TempDir::new().unwrap();
    let at = |number: usize| dir.path().join(format!("{number:02}"));
    for number in 0..20 {
        fs::write(at(number), b"1").unwrap();
    }
    let small = Limits {
        entries: 10,
        ..Limits::default()
    };
    let place = existing(dir.path(), &small);
    for number in 0..20 {
        if number % 3 == 0 {
            fs::write(at(number), b"2").unwrap();
        }
    }
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let open = OpenOptions::new().write(true).open(at(18)).unwrap();
    open.set_modified(old).unwrap();
    let scan = scan_all(&[place], &Limits::default());
    let expected: Vec<_> = (0..20)
        .step_by(3)
        .map(|number| file(&format!("/w/{number:02}"), b"2"))
        .collect();
    assert_eq!(scan.artifacts, expected);
    assert_eq!(reasons(&scan), ["snapshot-incomplete: /w"]);
}

/// What a workload does to one of eight names.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Content of this length, mtime set back to what it was.
    Write(usize, u8),
    Chmod(usize),
    Touch(usize),
    Remove(usize),
    Rename(usize, usize),
    Replace(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0usize..8;
    prop_oneof![
        (name(), 0u8..4).prop_map(|(name, length)| Step::Write(name, length)),
        name().prop_map(Step::Chmod),
        name().prop_map(Step::Touch),
        name().prop_map(Step::Remove),
        (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        name().prop_map(Step::Replace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// An artifact is exactly what is there after the run and was touched in it.
    #[test]
    fn the_comparison_finds_what_was_touched(
        before in proptest::collection::btree_map(0usize..8, 0u8..4, 0..8),
        steps in proptest::collection::vec(step(), 0..12),
    ) {
        let dir = TempDir::new().unwrap();
        // Names in two folders and in the place itself.
        for folder in ["a", "b"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let name = |number: usize| format!("{}f{number}", ["", "a/", "b/"][number % 3]);
        let at = |number: usize| dir.path().join(name(number));
        let content = |length: u8, fill: u8| vec![fill; usize::from(length)];
        for (number, length) in &before {
            fs::write(at(*number), content(*length, b'0')).unwrap();
        }
        let limits = Limits::default();
        let place = existing(dir.path(), &limits);

        let mut model: BTreeMap<usize, bool> = before.keys().map(|name| (*name, false)).collect();
        for step in steps {
            match step {
                Step::Write(number, length) => {
                    let modified = fs::metadata(at(number)).and_then(|old| old.modified());
                    fs::write(at(number), content(length, b'1')).unwrap();
                    if let Ok(modified) = modified {
                        let file = OpenOptions::new().write(true).open(at(number)).unwrap();
                        file.set_modified(modified).unwrap();
                    }
                    model.insert(number, true);
                }
                Step::Replace(number) => {
                    let new = dir.path().join("new");
                    fs::write(&new, b"").unwrap();
                    fs::rename(new, at(number)).unwrap();
                    model.insert(number, true);
                }
                Step::Remove(number) => {
                    prop_assert_eq!(fs::remove_file(at(number)).is_ok(), model.remove(&number).is_some());
                }
                Step::Rename(from, to) => {
                    let renamed = fs::rename(at(from), at(to)).is_ok();
                    prop_assert_eq!(renamed, model.contains_key(&from));
                    if from != to && model.remove(&from).is_some() {
                        model.insert(to, true);
                    }
                }
                Step::Chmod(number) | Step::Touch(number) => {
                    let Some(touched) = model.get_mut(&number) else {
                        continue;
                    };
                    *touched = true;
                    if matches!(step, Step::Chmod(_)) {
                        fs::set_permissions(at(number), Permissions::from_mode(0o640)).unwrap();
                    } else {
                        let file = OpenOptions::new().write(true).open(at(number)).unwrap();
                        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
                    }
                }
            }
        }

        let scan = scan_all(&[place], &limits);
        let mut expected: Vec<_> = model
            .into_iter()
            .filter(|(_, touched)| *touched)
            .map(|(number, _)| file(&format!("/w/{}", name(number)), &fs::read(at(number)).unwrap()))
            .collect();
        expected.sort_by(|a, b| a.path.cmp(&b.path));
        prop_assert_eq!(scan.artifacts, expected);
        prop_assert!(scan.unmeasured.is_empty());
    }
}
