//! What a workload could leave on the host to act there later, or use there at once.

use std::os::unix::fs::PermissionsExt as _;

use crate::world::{program, ready, skip};

#[test]
fn no_program_is_left_that_acts_for_the_folders_owner() {
    let world = ready!();
    let out = world.folder("out");
    let flags = format!("--write {}:/w", out.display());
    let script = "cp /usr/bin/true /w/x && for mode in 4755 2755 6711; do chmod $mode /w/x && exit 9; done; chmod 711 /w/x";
    world.exec(&flags, &["sh", "-c", script]).ended(0);
    let mode = std::fs::metadata(out.join("x"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o711);
}

#[test]
fn no_file_is_made_with_such_a_bit() {
    let world = ready!();
    if program("python3").is_none() {
        return skip("leftovers::no_file_is_made_with_such_a_bit", "no python3");
    }
    let out = world.folder("out");
    let flags = format!("--write {}:/w", out.display());
    let script = "
import os, sys
for mode in (0o4755, 0o2755):
    for make in (lambda: os.open('/w/a', os.O_CREAT | os.O_WRONLY, mode), lambda: os.open('/w', os.O_TMPFILE | os.O_WRONLY, mode), lambda: os.mknod('/w/b', mode)):
        try: make()
        except PermissionError: continue
        sys.exit(9)
os.close(os.open('/w/plain', os.O_CREAT | os.O_WRONLY, 0o755))
";
    world.exec(&flags, &["python3", "-c", script]).ended(0);
    let names: Vec<_> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["plain"]);
}

#[test]
fn sockets_of_the_machine_are_not_had_without_its_network() {
    let world = ready!();
    if program("python3").is_none() {
        return skip("leftovers::sockets_of_the_machine", "no python3");
    }
    // AF_VSOCK and AF_ALG belong to no network namespace.
    let script = "
import socket, sys
for family in (40, 38):
    try: socket.socket(family, socket.SOCK_SEQPACKET if family == 38 else socket.SOCK_STREAM)
    except PermissionError: continue
    sys.exit(9)
socket.socket(socket.AF_UNIX); socket.socket(socket.AF_INET); socket.socket(socket.AF_INET6)
";
    world.exec("", &["python3", "-c", script]).ended(0);
}
