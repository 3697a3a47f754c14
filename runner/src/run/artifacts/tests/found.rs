//! What is found, and what is said of it.

use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn an_empty_place_has_no_artifacts_and_nothing_unmeasured() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("only/folders")).unwrap();
    assert_eq!(scan_fresh(dir.path(), &Limits::default()), Scan::default());
}

#[test]
fn files_are_hashed_and_listed_in_the_order_of_names() {
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
            file("/w/a/b", &big),
            file("/w/a.b", b"")
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
    let scan = scan_all(&[Place::fresh(folder("/dev"), "/dev")], &limits);
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
fn names_that_are_not_text_are_escaped() {
    let dir = TempDir::new().unwrap();
    for name in [&b"\xff\xfe"[..], b"back\\slash", b"new\nline"] {
        let name = std::ffi::OsStr::from_bytes(name);
        fs::write(dir.path().join(name), b"1").unwrap();
    }
    let scan = scan_fresh(dir.path(), &Limits::default());
    assert_eq!(
        paths(&scan),
        ["/w/back\\x5cslash", "/w/new\nline", "/w/\\xff\\xfe"]
    );
}

#[test]
fn what_cannot_be_read_is_said() {
    if is_root_and_ran_as_user(module_path!(), "what_cannot_be_read_is_said") {
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
    let place = existing(dir.path(), &Limits::default());
    mode("closed", 0o700).unwrap();
    mode("names-only", 0o700).unwrap();
    assert_eq!(
        scan_all(&[place], &Limits::default()).artifacts,
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
    let fresh = scan_all(
        &[Place::fresh(readable(), "/out/report")],
        &Limits::default(),
    );
    assert_eq!(fresh.artifacts, expected);

    let limits = Limits::default();
    let place = || Place::existing(readable(), "/out/report", settle(), &limits, &whole);
    assert_eq!(scan_all(&[place()], &limits), Scan::default());
    let place = place();
    fs::write(&path, b"CONTENT").unwrap();
    assert_eq!(
        scan_all(&[place], &limits).artifacts,
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
    let scan = scan_all(&places, &Limits::default());
    assert_eq!(scan.artifacts, [file("/w/f", b"2"), file("/w/sub/g", b"3")]);
}
