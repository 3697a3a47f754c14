//! Deep trees, and trees that do not hold still.

use std::sync::atomic::{self, AtomicBool};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::mkdirat;

use super::super::walk::{Entry, Opener};
use super::*;

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
    let pacer = Pacer::new(&whole);
    let mut budget = Budget::of(&Limits::default(), &pacer);
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
        let pacer = Pacer::new(&whole);
        let mut reader = Reader {
            left: 1000,
            buffer: vec![0; 100],
            pacer: &pacer,
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
                let scan = scan_as(opener, &places, &Limits::default(), &whole);
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

/// The kernel's answer EXDEV also stands for what was moved out while it was opened.
#[test]
fn what_moves_out_while_it_is_opened_is_on_no_other_mount() {
    const OPENS: usize = 100_000;
    let dir = TempDir::new().unwrap();
    let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
    for folder in [&inside, &outside] {
        fs::create_dir_all(folder.join("folder")).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = RenameFlags::RENAME_EXCHANGE;
            while !over.load(atomic::Ordering::Relaxed) {
                let (a, b) = (inside.join("folder"), outside.join("folder"));
                renameat2(AT_FDCWD, &a, AT_FDCWD, &b, flags).unwrap();
            }
        });
        let place = folder(&inside);
        let (opener, place) = Opener::for_place(place.as_fd()).unwrap();
        let mut answers = std::collections::BTreeSet::new();
        for _ in 0..OPENS {
            let opened = opener.open(&place, c"folder", OFlag::O_DIRECTORY);
            answers.insert(opened.err().map(|errno| format!("{errno:?}")));
        }
        over.store(true, atomic::Ordering::Relaxed);
        assert!(answers.contains(&None), "{answers:?}");
        assert!(!answers.contains(&Some("EXDEV".to_owned())), "{answers:?}");
        println!("{answers:?}");
    });
}
