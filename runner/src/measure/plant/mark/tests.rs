use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;

/// Says to the test program, run again, where it is to plant; it waits to be killed.
const VARIABLE: &str = "PLANT_BELOW";

fn planted(state: &Path, place: &Path) -> Mark {
    let mark = Mark::new(state, "0abc", &[place.to_owned()]).unwrap();
    fs::create_dir_all(mark.paths()[0].join("deep/er")).unwrap();
    fs::write(mark.paths()[0].join("deep/file"), "x").unwrap();
    mark
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_mark_removes_what_it_names_and_a_sweep_leaves_the_living_alone() {
    let base = tempfile::tempdir().unwrap();
    let place = base.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("mine"), "").unwrap();
    let mark = planted(base.path(), &place);
    assert_eq!(Owner::of(mark.name()).unwrap().pid, std::process::id());
    let (swept, problems) = sweep(base.path()).unwrap();
    assert!(swept.is_empty() && problems.is_empty());
    assert_eq!(names(&place), [mark.name(), "mine"]);
    drop(mark);
    assert_eq!(names(&place), ["mine"]);
    assert_eq!(names(&base.path().join(LISTS)), [""; 0]);
}

#[test]
fn what_a_mark_could_not_remove_is_removed_when_it_is_gone() {
    let base = tempfile::tempdir().unwrap();
    let place = base.path().join("place");
    fs::create_dir(&place).unwrap();
    let mark = planted(base.path(), &place);
    // As long as it stands, it is in use.
    assert!(sweep_own(base.path()).unwrap().is_empty());
    assert_eq!(names(&place), [mark.name()]);
    let (list, planted) = (mark.list.clone(), mark.paths()[0].clone());
    let text = fs::read(&list).unwrap();
    drop(mark);
    // As it is after a removal that failed: what was planted, and its list, which nobody locks.
    fs::create_dir_all(planted.join("deep")).unwrap();
    fs::write(&list, text).unwrap();
    let (swept, _) = sweep(base.path()).unwrap();
    assert!(swept.is_empty(), "{swept:?}");
    assert!(sweep_own(base.path()).unwrap().is_empty());
    assert_eq!(names(&place), [""; 0]);
    assert_eq!(names(&base.path().join(LISTS)), [""; 0]);
}

#[test]
fn what_a_killed_process_planted_is_swept_by_its_own_marks_only() {
    if let Some(below) = std::env::var_os(VARIABLE) {
        let below = PathBuf::from(below);
        let _mark = planted(&below, &below.join("place"));
        println!("planted");
        loop {
            std::thread::park();
        }
    }
    let base = tempfile::tempdir().unwrap();
    let place = base.path().join("place");
    fs::create_dir(&place).unwrap();
    let name =
        "measure::plant::mark::tests::what_a_killed_process_planted_is_swept_by_its_own_marks_only";
    let mut child = Command::new("/proc/self/exe")
        .arg0("planter")
        .args(["--exact", name, "--nocapture"])
        .env(VARIABLE, base.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().ends_with("planted")));
    let (swept, _) = sweep(base.path()).unwrap();
    assert!(swept.is_empty(), "it lives: {swept:?}");
    child.kill().unwrap();
    // Not waited for: it is dead all the same, once all its threads are (pidfd_open(2)).
    let pidfd = crate::sys::process::open(child.id().try_into().unwrap()).unwrap();
    let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut polled, PollTimeout::from(20_000_u16)), Ok(1));
    let left = names(&place);
    assert_eq!(left.len(), 1);
    // Others' files, one of them under a name that looks like a mark, and a list that names what is not its own.
    fs::write(place.join("mine"), "").unwrap();
    fs::write(place.join(format!("{PREFIX}1-1-aa")), "").unwrap();
    let lie = base
        .path()
        .join(LISTS)
        .join(format!("{PREFIX}4194999-7-bb"));
    let mine = place.join("mine");
    fs::write(&lie, [mine.as_os_str().as_bytes(), b"\0"].concat()).unwrap();
    let (swept, problems) = sweep(base.path()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(swept.len(), 2);
    assert!(swept.contains(&left[0]));
    assert_eq!(
        names(&place),
        [format!("{PREFIX}1-1-aa"), "mine".to_owned()]
    );
    assert_eq!(names(&base.path().join(LISTS)), [""; 0]);
    child.wait().unwrap();
}

#[test]
fn a_new_process_under_an_old_number_does_not_keep_what_another_left() {
    let base = tempfile::tempdir().unwrap();
    let own = std::process::id();
    let start = start_time(own).unwrap().unwrap();
    fs::create_dir(base.path().join(LISTS)).unwrap();
    let list = |start: u64| {
        let name = format!("{PREFIX}{own}-{start}-cc");
        fs::create_dir(base.path().join(&name)).unwrap();
        let text = format!("{}\0", base.path().join(&name).display());
        fs::write(base.path().join(LISTS).join(&name), text).unwrap();
        name
    };
    let (living, dead) = (list(start), list(start - 1));
    let (swept, _) = sweep(base.path()).unwrap();
    assert_eq!(swept, [dead.as_str()]);
    assert_eq!(names(base.path()), [living.as_str(), LISTS]);
}

#[test]
fn a_link_in_place_of_what_was_planted_is_not_followed() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir(base.path().join("others")).unwrap();
    fs::write(base.path().join("others/file"), "").unwrap();
    let mark = planted(base.path(), base.path());
    fs::remove_dir_all(&mark.paths()[0]).unwrap();
    std::os::unix::fs::symlink(base.path().join("others"), &mark.paths()[0]).unwrap();
    drop(mark);
    assert_eq!(names(base.path()), ["others", LISTS]);
    assert_eq!(names(&base.path().join("others")), ["file"]);
}

#[test]
fn only_marks_have_owners() {
    let owner = Some(Owner { pid: 12, start: 34 });
    assert_eq!(Owner::of("containment-probe-12-34-0a"), owner);
    for name in [
        "containment-probe-12-34-",
        "containment-probe-12-34",
        "x",
        "containment-probe-a-34-0a",
        "containment-probe-12-34-0a-1",
    ] {
        assert_eq!(Owner::of(name), None, "{name}");
    }
}
