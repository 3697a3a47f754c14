use std::os::fd::AsRawFd as _;
use std::process::Command;

use super::*;

#[test]
fn places_that_cannot_be_used_are_named() {
    let base = tempfile::tempdir().unwrap();
    let home = base.path().join("home/work");
    fs::create_dir_all(&home).unwrap();
    let places = six_places(Some(&base.path().join("home")), None, &home);
    let (usable, skipped) = usable(&places);
    let home = fs::canonicalize(base.path().join("home")).unwrap();
    assert_eq!(usable[0], home);
    assert!(usable.contains(&PathBuf::from("/tmp")), "{skipped:?}");
    assert!(skipped.contains(&"$XDG_RUNTIME_DIR: there is none".to_owned()));
    let same = format!(
        "the parent of the working folder: the same as {}",
        home.display()
    );
    assert!(skipped.contains(&same), "{skipped:?}");
}

#[test]
fn every_kind_of_write_shows_on_the_canary() {
    type Write = fn(&Path) -> io::Result<()>;
    let writes: [(&str, Write, &str); 10] = [
        ("append", |path| fs::write(path, "other"), "content"),
        ("truncate", |path| File::create(path).map(drop), "content"),
        ("unlink", |path| fs::remove_file(path), "gone"),
        (
            "rename over",
            |path| {
                fs::write(path.with_extension("new"), "5ec2e7")?;
                fs::rename(path.with_extension("new"), path)
            },
            "inode",
        ),
        (
            "chmod",
            |path| fs::set_permissions(path, Permissions::from_mode(0o600)),
            "mode",
        ),
        (
            "chmod and back",
            |path| {
                fs::set_permissions(path, Permissions::from_mode(0o600))?;
                fs::set_permissions(path, Permissions::from_mode(0o666))
            },
            "changed at",
        ),
        (
            "link",
            |path| fs::hard_link(path, path.with_extension("link")),
            "links",
        ),
        (
            "create",
            |path| fs::write(path.with_extension("new"), ""),
            "listing",
        ),
        (
            "a link in its place",
            |path| {
                fs::remove_file(path)?;
                std::os::unix::fs::symlink("/dev/null", path)
            },
            "content",
        ),
        (
            "the folder",
            |path| fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o700)),
            "folder",
        ),
    ];
    for (name, write, what) in writes {
        let base = tempfile::tempdir().unwrap();
        let canary = Canary::plant(base.path().join("canary"), "5ec2e7").unwrap();
        canary.alive().unwrap();
        assert_eq!(fs::read(&canary.file).unwrap(), b"5ec2e7");
        assert_eq!(
            canary.changed().unwrap(),
            None,
            "{name}: reading is no write"
        );
        // Later than the canary by the file system's own clock, which moves in ticks.
        let planted = fs::metadata(&canary.file).unwrap();
        let tick = base.path().join("tick");
        loop {
            fs::write(&tick, "").unwrap();
            let now = fs::metadata(&tick).unwrap();
            if (now.ctime(), now.ctime_nsec()) > (planted.ctime(), planted.ctime_nsec()) {
                break;
            }
        }
        write(&canary.file).unwrap();
        let changed = canary.changed().unwrap().unwrap();
        assert!(changed.contains(what), "{name}: {changed}");
    }
}

#[test]
fn planted_files_have_their_mode_whatever_the_umask_is() {
    let base = tempfile::tempdir().unwrap();
    let canary = Canary::plant(base.path().join("c"), "x").unwrap();
    assert_eq!(fs::metadata(&canary.file).unwrap().mode() & 0o7777, 0o666);
    assert_eq!(fs::metadata(&canary.folder).unwrap().mode() & 0o7777, 0o777);
    assert!(
        file(&canary.file, "y", 0o600).is_err(),
        "nothing is planted over"
    );
}

#[test]
fn leaked_descriptors_reach_an_executed_program_and_are_gone_when_dropped() {
    let base = tempfile::tempdir().unwrap();
    let (leaked, _ours) = Leaked::plant(base.path(), ["aa11", "bb22", "cc33"]).unwrap();
    leaked.alive().unwrap();
    let [file, socket, folder] = leaked.numbers()[..] else {
        panic!()
    };
    assert!(file >= LEAKED_FROM && socket > file && folder > socket);
    let script = format!("cat <&{file}; head -n 1 <&{socket}; ls /proc/self/fd/{folder}/");
    // dash knows descriptors of one digit only.
    if !Path::new("/bin/bash").exists() {
        eprintln!("SKIPPED: no bash");
        return;
    }
    let ran = Command::new("/bin/bash")
        .args(["-c", &script])
        .output()
        .unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(
        said,
        "aa11bb22\ncc33\n",
        "{:?}",
        String::from_utf8(ran.stderr)
    );
    descriptor::set_cloexec(&leaked.all[0], true).unwrap();
    leaked.alive().unwrap_err();
}

#[test]
fn what_is_injected_into_the_terminal_is_its_input_and_what_is_written_is_not() {
    let opened = Terminal::open().unwrap();
    assert!(opened.path.starts_with("/dev/pts"));
    nix::unistd::write(&opened.terminal, b"printed").unwrap();
    nix::unistd::write(&opened.master, b"typed").unwrap();
    let mut bytes = [0; 16];
    let length = nix::unistd::read(&opened.terminal, &mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"typed");
    let length = nix::unistd::read(&opened.master, &mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"printed");
    assert!(opened.terminal.as_raw_fd() > 2);
}
