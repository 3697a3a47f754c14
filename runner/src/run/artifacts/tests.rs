use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{self, AtomicBool};
use std::time::{Duration, SystemTime};

use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::mkfifo;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const BOTH: [Option<Opener>; 2] = [None, Some(Opener::NoFollow)];
const INSIDE: &str = "/w";

fn folder(path: impl AsRef<Path>) -> OwnedFd {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    nix::fcntl::open(path.as_ref(), flags, Mode::empty()).unwrap()
}

/// Scans as a fresh place in both ways of opening, which must agree.
fn scan_fresh(path: &Path, limits: &Limits) -> Scan {
    let [resolve, no_follow] = BOTH.map(|opener| {
        scan_with(
            opener,
            &[Place::fresh(folder(path), INSIDE)],
            limits,
            &|| false,
        )
    });
    assert_eq!(resolve, no_follow);
    resolve
}

fn paths(scan: &Scan) -> Vec<&str> {
    let paths = scan.artifacts.iter().map(|artifact| artifact.path.as_str());
    paths.collect()
}

fn reasons(scan: &Scan) -> Vec<&str> {
    assert!(
        scan.unmeasured
            .iter()
            .all(|entry| entry.field == "artifacts")
    );
    let reasons = scan.unmeasured.iter().map(|entry| entry.reason.as_str());
    reasons.collect()
}

fn file(path: &str, content: &[u8]) -> Artifact {
    Artifact {
        bytes: U53::new(content.len() as u64),
        kind: FileKind::File,
        path: path.into(),
        sha256: Some(Hash::of(content)),
    }
}

fn other(path: &str, kind: FileKind) -> Artifact {
    Artifact {
        bytes: None,
        kind,
        path: path.into(),
        sha256: None,
    }
}

/// A moment that is after everything done so far and not after anything done from now on.
fn settle() -> FileTime {
    let done = clock_gettime(ClockId::CLOCK_REALTIME).unwrap();
    loop {
        let now = FileTime::now().unwrap();
        if (now.seconds, now.nanoseconds) > (done.tv_sec(), done.tv_nsec()) {
            return now;
        }
        std::thread::yield_now();
    }
}

#[test]
fn an_empty_place_has_no_artifacts_and_nothing_unmeasured() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("only/folders")).unwrap();
    assert_eq!(scan_fresh(dir.path(), &Limits::default()), Scan::default());
}

#[test]
fn files_are_hashed_and_ordered_by_path_bytes() {
    let dir = TempDir::new().unwrap();
    let big = vec![7; 300_000];
    fs::create_dir(dir.path().join("a")).unwrap();
    fs::write(dir.path().join("a/b"), &big).unwrap();
    fs::write(dir.path().join("a.b"), b"").unwrap();
    fs::write(dir.path().join("Z"), b"z").unwrap();
    let scan = scan_fresh(dir.path(), &Limits::default());
    assert_eq!(
        scan.artifacts,
        [
            file("/w/Z", b"z"),
            file("/w/a.b", b""),
            file("/w/a/b", &big)
        ]
    );
    assert!(scan.unmeasured.is_empty());
}

#[test]
fn links_pipes_and_sockets_are_listed_and_never_opened() {
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    symlink(outside.path(), at("to-folder")).unwrap();
    symlink(outside.path().join("secret"), at("to-file")).unwrap();
    symlink("/proc/self/root", at("magic")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    // Opening this one for reading, without O_NONBLOCK, would wait for ever.
    mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    let scan = scan_fresh(dir.path(), &Limits::default());
    assert_eq!(
        scan.artifacts,
        [
            other("/w/dangling", FileKind::Symlink),
            other("/w/magic", FileKind::Symlink),
            other("/w/pipe", FileKind::Fifo),
            other("/w/socket", FileKind::Socket),
            other("/w/to-file", FileKind::Symlink),
            other("/w/to-folder", FileKind::Symlink),
        ]
    );
    assert!(scan.unmeasured.is_empty());
}

#[test]
fn devices_are_listed_and_mounts_are_said_and_not_entered() {
    let limits = Limits {
        hashed_bytes: 0,
        ..Limits::default()
    };
    let scan = scan(&[Place::fresh(folder("/dev"), "/dev")], &limits, &|| false);
    assert!(
        fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device()
    );
    // An engine may bind each device of its own: a bind mount of a device is still only listed.
    assert!(
        scan.artifacts
            .contains(&other("/dev/null", FileKind::Device))
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for mount in mounts.lines().filter_map(|line| line.split(' ').nth(4)) {
        let direct = mount
            .strip_prefix("/dev/")
            .is_some_and(|name| !name.contains('/'));
        if direct && Path::new(mount).is_dir() {
            let below = format!("{mount}/");
            assert!(paths(&scan).iter().all(|path| !path.starts_with(&below)));
            assert!(
                reasons(&scan)
                    .iter()
                    .any(|reason| reason.starts_with(OTHER_MOUNT)),
                "{mount}"
            );
        }
    }
}

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

#[test]
fn an_interrupted_scan_lists_the_rest_without_hashes() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), b"small").unwrap();
    let sparse = File::create(dir.path().join("b")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    fs::write(dir.path().join("c"), b"small").unwrap();
    // Before a, twice in a, before b, and then in b.
    let asked = std::cell::Cell::new(0);
    let interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() == 6
    };
    let places = [Place::fresh(folder(dir.path()), INSIDE)];
    let scan = scan(&places, &Limits::default(), &interrupted);
    let hashed: Vec<_> = scan.artifacts.iter().map(|a| a.sha256.is_some()).collect();
    assert_eq!(hashed, [true, false, false]);
    assert!(scan.artifacts.iter().all(|a| a.bytes.is_some()));
    assert_eq!(reasons(&scan), [INTERRUPTED]);
    assert_eq!(asked.get(), 6);
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
fn names_that_are_not_text_are_escaped() {
    let dir = TempDir::new().unwrap();
    for name in [&b"\xff\xfe"[..], b"back\\slash", b"new\nline"] {
        let name = std::ffi::OsStr::from_bytes(name);
        fs::write(dir.path().join(name), b"1").unwrap();
    }
    let scan = scan_fresh(dir.path(), &Limits::default());
    assert_eq!(
        paths(&scan),
        ["/w/\\xff\\xfe", "/w/back\\x5cslash", "/w/new\nline"]
    );
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
            name_bytes: 302,
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
        name_bytes: 900,
        path_bytes: 1800,
        ..default
    };
    assert!(scan_fresh(dir.path(), &exact).unmeasured.is_empty());
}

/// `depth` folders named `d` in one another; the deepest one's descriptor.
fn dig(place: &Path, depth: usize) -> OwnedFd {
    let mut at = folder(place);
    for _ in 0..depth {
        mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
        at = nix::fcntl::openat(&at, "d", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
    }
    at
}

fn write_at(dir: &OwnedFd, name: &str, content: &[u8]) {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT;
    let fd = nix::fcntl::openat(dir, name, flags, Mode::S_IRWXU).unwrap();
    nix::unistd::write(&fd, content).unwrap();
}

/// Removes what [`dig`] made: paths are too long for the ordinary way.
fn fill_in(place: &Path) {
    let (top, next) = (place.join("d"), place.join("next"));
    while top.exists() {
        for name in ["bottom", "z"] {
            let _absent = fs::remove_file(top.join(name));
        }
        if top.join("d").exists() {
            fs::rename(top.join("d"), &next).unwrap();
        }
        fs::remove_dir(&top).unwrap();
        if next.exists() {
            fs::rename(&next, &top).unwrap();
        }
    }
}

#[test]
fn a_tree_deeper_than_any_path_is_walked_down_and_back() {
    const DEPTH: usize = 5000;
    let dir = TempDir::new().unwrap();
    let bottom = dig(dir.path(), DEPTH);
    write_at(&bottom, "bottom", b"deep");
    let shallow = dir.path().join("d/d/d/z");
    fs::write(&shallow, b"on the way back").unwrap();
    let scan = scan_fresh(dir.path(), &Limits::default());
    let deep = format!("/w{}/bottom", "/d".repeat(DEPTH));
    assert_eq!(
        scan.artifacts,
        [file(&deep, b"deep"), file("/w/d/d/d/z", b"on the way back")]
    );
    assert!(scan.unmeasured.is_empty());
    fill_in(dir.path());
}

fn walk_fresh(
    path: &Path,
    problems: &mut Problems,
    visit: &mut dyn FnMut(&Entry<'_>),
) -> ControlFlow<()> {
    let place = folder(path);
    let ground = Ground {
        place: place.as_fd(),
        inside: INSIDE.as_bytes(),
        covered: &[],
        opener: None,
    };
    let mut budget = Budget::of(&Limits::default());
    walk(ground, &mut budget, problems, &mut |_, entry| {
        visit(&entry);
        ControlFlow::Continue(())
    })
}

#[test]
fn few_descriptors_are_held() {
    let dir = TempDir::new().unwrap();
    write_at(&dig(dir.path(), 200), "bottom", b"");
    let mut held = None;
    let _all_seen = walk_fresh(dir.path(), &mut Problems::default(), &mut |_| {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let ours = open.filter(|fd| {
            fs::read_link(fd.path()).is_ok_and(|target| target.starts_with(dir.path()))
        });
        held = Some(ours.count());
    });
    // The caller's, the place's own and the deepest 32.
    assert_eq!(held, Some(34));
}

#[test]
fn a_tree_moved_while_the_walk_is_below_it_is_given_up_and_the_rest_is_seen() {
    let dir = TempDir::new().unwrap();
    write_at(&dig(dir.path(), 50), "bottom", b"");
    let lost = dir.path().join("d/d/z");
    fs::write(lost, b"").unwrap();
    fs::write(dir.path().join("z"), b"").unwrap();
    let mut seen = Vec::new();
    let mut problems = Problems::default();
    let _all_seen = walk_fresh(dir.path(), &mut problems, &mut |entry| {
        seen.push(escape_bytes(entry.path));
        if entry.path.ends_with(b"/bottom") {
            let moved = dir.path().join(["d"; 10].join("/"));
            fs::rename(moved, dir.path().join("moved")).unwrap();
        }
    });
    let deep = format!("/w{}/bottom", "/d".repeat(50));
    assert_eq!(seen, [deep.as_str(), "/w/z"]);
    let said = problems.into_unmeasured();
    assert_eq!(said.len(), 1);
    assert_eq!(
        said[0].reason,
        format!("changed-while-scanned: /w{}", "/d".repeat(9))
    );
}

#[test]
fn a_file_replaced_or_changed_after_it_was_looked_at_has_no_hash() {
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |path| fs::write(path, b"other").unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            symlink("/etc/passwd", path).unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            mkfifo(path, Mode::S_IRWXU).unwrap();
        },
        |path| fs::remove_file(path).unwrap(),
    ];
    for change in changes {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"first content").unwrap();
        let mut problems = Problems::default();
        let mut artifact = None;
        let mut reader = Reader {
            left: 1000,
            buffer: vec![0; 100],
            interrupted: &|| false,
            stopped: false,
        };
        let mut said = Problems::default();
        let _all_seen = walk_fresh(dir.path(), &mut said, &mut |entry| {
            change(&path);
            artifact = reader.artifact(entry, &mut problems);
        });
        assert_eq!(
            artifact.unwrap(),
            Artifact {
                bytes: U53::new(13),
                ..other("/w/f", FileKind::File)
            }
        );
        let said = problems.into_unmeasured();
        assert_eq!(said[0].reason, "changed-while-scanned: /w/f");
    }
}

#[test]
fn a_folder_swapped_for_a_link_does_not_lead_outside() {
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("f"), b"secret").unwrap();
    let dir = TempDir::new().unwrap();
    let (real, link) = (dir.path().join("x"), dir.path().join("y"));
    fs::create_dir(&real).unwrap();
    fs::write(real.join("f"), b"own").unwrap();
    symlink(outside.path(), &link).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(atomic::Ordering::Relaxed) {
                let flags = RenameFlags::RENAME_EXCHANGE;
                renameat2(AT_FDCWD, &real, AT_FDCWD, &link, flags).unwrap();
            }
        });
        for _ in 0..300 {
            for opener in BOTH {
                let places = [Place::fresh(folder(dir.path()), INSIDE)];
                let scan = scan_with(opener, &places, &Limits::default(), &|| false);
                assert!(
                    scan.artifacts
                        .iter()
                        .all(|artifact| artifact.sha256 != Some(Hash::of(b"secret"))),
                    "{scan:?}"
                );
            }
        }
        stop.store(true, atomic::Ordering::Relaxed);
    });
}

/// Whether this is root; then the test runs once more as an ordinary user, in a process of its own.
fn is_root_and_ran_as_user(test: &str) -> bool {
    if !nix::unistd::geteuid().is_root() {
        return false;
    }
    // Not by its path, which an ordinary user may not reach.
    let output = Command::new("/proc/self/exe")
        .args([
            "--exact",
            &format!("{}::{test}", module_path!().split_once("::").unwrap().1),
        ])
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    true
}

#[test]
fn what_cannot_be_read_is_said() {
    if is_root_and_ran_as_user("what_cannot_be_read_is_said") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mode = |name: &str, mode| fs::set_permissions(at(name), Permissions::from_mode(mode));
    fs::create_dir(at("closed")).unwrap();
    fs::write(at("closed/f"), b"1").unwrap();
    fs::create_dir(at("names-only")).unwrap();
    fs::write(at("names-only/f"), b"1").unwrap();
    fs::write(at("file"), b"12").unwrap();
    mode("closed", 0o000).unwrap();
    mode("names-only", 0o400).unwrap();
    mode("file", 0o000).unwrap();
    let scan = scan_fresh(dir.path(), &Limits::default());
    assert_eq!(
        scan.artifacts,
        [Artifact {
            bytes: U53::new(2),
            ..other("/w/file", FileKind::File)
        }]
    );
    assert_eq!(
        reasons(&scan),
        [
            "unreadable: /w/closed (EACCES)",
            "unreadable: /w/file (EACCES)",
            "unreadable: /w/names-only/f (EACCES)",
        ]
    );

    // Closed before the run and open after it: nobody knows, so it counts as changed.
    let now = settle();
    let place = Place::existing(folder(dir.path()), INSIDE, now, &Limits::default());
    mode("closed", 0o700).unwrap();
    mode("names-only", 0o700).unwrap();
    assert_eq!(
        scan_with(None, &[place], &Limits::default(), &|| false).artifacts,
        [file("/w/closed/f", b"1"), file("/w/names-only/f", b"1")]
    );
}

#[test]
fn a_place_that_is_a_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, b"content").unwrap();
    let readable = || OwnedFd::from(File::open(&path).unwrap());
    let expected = [file("/out/report", b"content")];
    let fresh = scan(
        &[Place::fresh(readable(), "/out/report")],
        &Limits::default(),
        &|| false,
    );
    assert_eq!(fresh.artifacts, expected);

    let limits = Limits::default();
    let place = || Place::existing(readable(), "/out/report", settle(), &limits);
    assert_eq!(scan(&[place()], &limits, &|| false), Scan::default());
    let place = place();
    fs::write(&path, b"CONTENT").unwrap();
    assert_eq!(
        scan(&[place], &limits, &|| false).artifacts,
        [file("/out/report", b"CONTENT")]
    );
}

#[test]
fn a_place_over_another_hides_what_is_below_it() {
    let (outer, inner) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::create_dir(outer.path().join("sub")).unwrap();
    fs::write(outer.path().join("sub/hidden"), b"1").unwrap();
    fs::write(outer.path().join("f"), b"2").unwrap();
    fs::write(inner.path().join("g"), b"3").unwrap();
    let places = [
        Place::fresh(folder(outer.path()), "/w"),
        Place::fresh(folder(inner.path()), "/w/sub/"),
    ];
    let scan = scan(&places, &Limits::default(), &|| false);
    assert_eq!(scan.artifacts, [file("/w/f", b"2"), file("/w/sub/g", b"3")]);
}

#[test]
fn an_mtime_set_back_does_not_hide_a_change() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, b"before").unwrap();
    fs::write(dir.path().join("same"), b"same").unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let limits = Limits::default();
    let place = Place::existing(folder(dir.path()), INSIDE, settle(), &limits);
    fs::write(&path, b"after!").unwrap();
    let open = OpenOptions::new().write(true).open(&path).unwrap();
    open.set_modified(modified).unwrap();
    drop(open);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
    let scan = scan(&[place], &limits, &|| false);
    assert_eq!(scan.artifacts, [file("/w/f", b"after!")]);
    assert!(scan.unmeasured.is_empty());
}

#[test]
fn what_changes_in_the_tick_of_the_snapshot_counts_as_changed() {
    let dir = TempDir::new().unwrap();
    let now = FileTime::now().unwrap();
    fs::write(dir.path().join("f"), b"1").unwrap();
    let limits = Limits::default();
    let place = Place::existing(folder(dir.path()), INSIDE, now, &limits);
    assert_eq!(
        scan(&[place], &limits, &|| false).artifacts,
        [file("/w/f", b"1")]
    );
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
    let place = Place::existing(folder(dir.path()), INSIDE, settle(), &small);
    for number in 0..20 {
        if number % 3 == 0 {
            fs::write(at(number), b"2").unwrap();
        }
    }
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let open = OpenOptions::new().write(true).open(at(18)).unwrap();
    open.set_modified(old).unwrap();
    let scan = scan(&[place], &Limits::default(), &|| false);
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
        let place = Place::existing(folder(dir.path()), INSIDE, settle(), &limits);

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

        let scan = scan(&[place], &limits, &|| false);
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
