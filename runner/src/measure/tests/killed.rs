//! A controller that is killed.

use super::*;

/// Says to the test program, run again, where it is to plant; it waits to be killed.
const VARIABLE: &str = "PLANT_ALL_BELOW";

#[test]
fn a_killed_controller_leaves_no_process_and_a_sweep_removes_the_rest() {
    if let Some(below) = std::env::var_os(VARIABLE) {
        let below = PathBuf::from(below);
        let places = places_below(&below, &|path| path);
        let plant = |control| {
            let probe = row(control, &[("x", "line", "allowed")]);
            Planted::new(&probe, &secret(), &places, &bounds()).unwrap()
        };
        let planted = ["filesystem", "process", "ipc", "descriptors"].map(plant);
        println!("\npid={}", planted[1].values("pid")[0]);
        loop {
            std::thread::park();
        }
    }
    let scene = scene();
    let name = "measure::tests::killed::a_killed_controller_leaves_no_process_and_a_sweep_removes_the_rest";
    let mut child = std::process::Command::new("/proc/self/exe")
        .args(["--exact", name, "--nocapture"])
        .env(VARIABLE, scene.base.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
    let mut pids =
        lines.filter_map(|line| Some(line.unwrap().strip_prefix("pid=")?.parse().unwrap()));
    let pid: i32 = pids.next().unwrap();
    let canary = crate::sys::process::open(pid).unwrap();
    let before = scene.left();
    assert!(before.len() > 10, "{before:?}");
    assert!(sweep(&scene.places.state).unwrap().0.is_empty(), "it lives");
    assert_eq!(scene.left().len(), before.len());
    child.kill().unwrap();
    child.wait().unwrap();
    // A process that has ended is readable (pidfd_open(2)).
    use std::os::fd::AsFd as _;
    let mut polled = [nix::poll::PollFd::new(
        canary.as_fd(),
        nix::poll::PollFlags::POLLIN,
    )];
    let ended = nix::poll::poll(&mut polled, nix::poll::PollTimeout::from(20_000_u16));
    assert_eq!(ended, Ok(1), "the canary outlived its controller");
    let (swept, problems) = sweep(&scene.places.state).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(swept.len(), 4);
    assert!(scene.left().is_empty(), "{:?}", scene.left());
}
