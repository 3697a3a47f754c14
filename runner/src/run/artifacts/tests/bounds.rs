//! What a scan may cost.

use std::cell::Cell;

use super::*;

#[test]
fn a_sparse_file_of_terabytes_is_listed_without_a_hash() {
    let dir = TempDir::new().unwrap();
    let terabytes = 10u64 << 40;
    File::create(dir.path().join("sparse"))
        .unwrap()
        .set_len(terabytes)
        .unwrap();
    fs::write(dir.path().join("z"), b"small").unwrap();
    let scan = scan_fresh(dir.path(), &Limits::default());
    assert_eq!(
        scan.artifacts,
        [
            Artifact {
                bytes: U53::new(terabytes),
                ..other("/w/sparse", FileKind::File)
            },
            file("/w/z", b"small"),
        ]
    );
    assert_eq!(reasons(&scan), ["over-budget: /w/sparse"]);
}

/// Scans with a pace that changes when it is asked for the `at`th time; and how often it was asked.
fn scan_until(path: &Path, at: u32, then: Pace) -> (Scan, u32) {
    let asked = Cell::new(0);
    let pace = || {
        asked.set(asked.get() + 1);
        if asked.get() < at { Pace::Whole } else { then }
    };
    let places = [Place::fresh(folder(path), INSIDE)];
    let scan = scan_as(None, &places, &Limits::default(), &pace);
    (scan, asked.get())
}

#[test]
fn a_late_scan_lists_the_rest_without_hashes() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), b"small").unwrap();
    let sparse = File::create(dir.path().join("b")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    fs::write(dir.path().join("c"), b"small").unwrap();
    for reason in [INTERRUPTED, OUT_OF_TIME] {
        // Before a, three times in a, before b, twice in b.
        let (scan, _) = scan_until(dir.path(), 7, Pace::NoHashes(reason));
        let hashed: Vec<_> = scan.artifacts.iter().map(|a| a.sha256.is_some()).collect();
        assert_eq!(hashed, [true, false, false]);
        assert!(scan.artifacts.iter().all(|a| a.bytes.is_some()));
        assert_eq!(reasons(&scan), [reason]);
    }
}

#[test]
fn a_scan_that_is_stopped_says_that_the_list_is_not_all() {
    let dir = TempDir::new().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(dir.path().join(name), b"small").unwrap();
    }
    // Before a, three times in a, before b: it is not asked again.
    let (scan, asked) = scan_until(dir.path(), 5, Pace::Stop(OUT_OF_TIME));
    assert_eq!(scan.artifacts, [file("/w/a", b"small")]);
    assert_eq!(reasons(&scan), [INCOMPLETE, OUT_OF_TIME]);
    assert_eq!(asked, 5);
    // While the names of a large folder are read.
    for number in 0..3000 {
        fs::write(dir.path().join(number.to_string()), b"").unwrap();
    }
    let (scan, asked) = scan_until(dir.path(), 2, Pace::Stop(INTERRUPTED));
    assert_eq!(scan.artifacts, []);
    assert_eq!(reasons(&scan), [INCOMPLETE, INTERRUPTED]);
    assert_eq!(asked, 2);
}

#[test]
fn names_are_held_only_on_the_way_down() {
    let dir = TempDir::new().unwrap();
    for folder in 0..20 {
        let folder = dir.path().join(format!("{folder:02}"));
        fs::create_dir(&folder).unwrap();
        for number in 0..20 {
            fs::write(folder.join(format!("{number:02}")), b"").unwrap();
        }
    }
    // Those of the place and of one folder in it, at 7 bytes each.
    let limits = Limits {
        held_bytes: 280,
        ..Limits::default()
    };
    let scan = scan_fresh(dir.path(), &limits);
    assert_eq!((scan.artifacts.len(), reasons(&scan)), (400, vec![]));
    let limits = Limits {
        held_bytes: 279,
        ..Limits::default()
    };
    let scan = scan_fresh(dir.path(), &limits);
    assert_eq!(
        (scan.artifacts.len(), reasons(&scan)),
        (380, vec![TOO_MANY])
    );
}

#[test]
fn what_lies_too_deep_is_not_entered_and_that_is_said() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
    fs::write(dir.path().join("a/b/c/f"), b"1").unwrap();
    fs::write(dir.path().join("z"), b"2").unwrap();
    let limits = |longest_path| Limits {
        longest_path,
        ..Limits::default()
    };
    let scan = scan_fresh(dir.path(), &limits(10));
    assert_eq!(paths(&scan), ["/w/a/b/c/f", "/w/z"]);
    assert_eq!(reasons(&scan), [""; 0]);
    for short in [9, 6, 4] {
        let scan = scan_fresh(dir.path(), &limits(short));
        assert_eq!(paths(&scan), ["/w/z"]);
        assert_eq!(reasons(&scan), [TOO_MANY]);
    }
}

#[test]
fn the_byte_budget_is_for_all_files_together() {
    let dir = TempDir::new().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(dir.path().join(name), [b'x'; 60]).unwrap();
    }
    fs::write(dir.path().join("d"), [b'x'; 40]).unwrap();
    let limits = Limits {
        hashed_bytes: 100,
        ..Limits::default()
    };
    let scan = scan_fresh(dir.path(), &limits);
    let hashed: Vec<_> = scan.artifacts.iter().map(|a| a.sha256.is_some()).collect();
    assert_eq!(hashed, [true, false, false, true]);
    assert!(
        scan.artifacts
            .iter()
            .all(|artifact| artifact.bytes.is_some())
    );
    assert_eq!(reasons(&scan), ["over-budget: /w/b", "over-budget: /w/c"]);
}

#[test]
fn too_many_are_cut_and_said() {
    let dir = TempDir::new().unwrap();
    for number in 0..300 {
        fs::write(dir.path().join(format!("{number:03}")), b"").unwrap();
    }
    let default = Limits::default();
    for limits in [
        Limits {
            artifacts: 100,
            ..default
        },
        Limits {
            path_bytes: 600,
            ..default
        },
    ] {
        let scan = scan_fresh(dir.path(), &limits);
        let expected: Vec<_> = (0..100).map(|number| format!("/w/{number:03}")).collect();
        assert_eq!(paths(&scan), expected);
        assert_eq!(reasons(&scan), ["too-many"]);
    }
    for limits in [
        Limits {
            entries: 100,
            ..default
        },
        Limits {
            held_bytes: 802,
            ..default
        },
    ] {
        let scan = scan_fresh(dir.path(), &limits);
        assert_eq!(scan.artifacts.len(), 100);
        assert!(scan.artifacts.is_sorted_by_key(|artifact| &artifact.path));
        assert_eq!(reasons(&scan), ["too-many"]);
    }
    let exact = Limits {
        artifacts: 300,
        entries: 300,
        held_bytes: 2400,
        path_bytes: 1800,
        ..default
    };
    assert!(scan_fresh(dir.path(), &exact).unmeasured.is_empty());
}
