//! Asking a service manager for a group: one `StartTransientUnit` with `Delegate=yes` for this process
//! (org.freedesktop.systemd1(5), "Control Group APIs and Delegation" of systemd).
//!
//! An ordinary user's session is no place to make groups in: a process can be moved only by who may write to the group above
//! both. The user's own manager moves this process into a scope below itself, which is then this user's. This process goes
//! into a group of its own inside, as processes and switched-on controllers do not go together (cgroups(7)); leaves are made
//! beside it. The scope ends with this process, and the manager removes what is in it.
//!
//! `systemd-run --user --scope` makes the same call to the same socket, for a command that it starts itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::bus::{Body, Connection, Method, Value};
use super::leaf::write_to;
use super::{Manager, Resource, mark};
use crate::host::cgroup::{OWN_GROUP, hierarchies};
use crate::sys::{errno_name, pseudo};

/// How long the manager may take from its answer to having moved this process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has the manager move this process into a scope of its own, and makes that ready for groups; why not, for people.
pub(super) fn settle(manager: &Manager) -> Result<(), String> {
    let name = mark::name().map_err(|error| format!("name a scope: {}", errno_name(&error)))?;
    let name = format!("{name}.scope");
    let mut failed = Vec::new();
    for socket in &manager.sockets {
        match ask(socket, &name) {
            Ok(()) => {
                return await_scope(&name).and_then(|scope| make_ready(&scope, &manager.resources));
            }
            Err(error) => failed.push(format!("service manager at {}: {error}", socket.display())),
        }
    }
    Err(failed.join("; "))
}

fn ask(socket: &Path, name: &str) -> Result<(), super::bus::CallError> {
    let is_bus = socket.ends_with("bus");
    let mut connection = Connection::open(socket, is_bus)?;
    let method = Method {
        destination: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member: "StartTransientUnit",
        signature: "ssa(sv)a(sa(sv))",
    };
    connection.call(&method, &arguments(name, std::process::id()))
}

fn arguments(name: &str, pid: u32) -> Body {
    let mut body = Body::default();
    body.string(name);
    // Another unit of this name is an error.
    body.string("fail");
    body.array(|body| {
        body.property("Description", &Value::Text("containment of workloads"));
        body.property("Delegate", &Value::Bool(true));
        body.property("CollectMode", &Value::Text("inactive-or-failed"));
        body.property("PIDs", &Value::Numbers(&[pid]));
    });
    // No further units.
    body.array(|_| {});
    body
}

/// Waits until this process is in the scope; its folder.
fn await_scope(name: &str) -> Result<PathBuf, String> {
    let until = Instant::now() + PATIENCE;
    let mounts = pseudo::read_text("/proc/self/mountinfo")
        .map_err(|error| format!("read /proc/self/mountinfo: {}", errno_name(&error)))?;
    let mut pause = Duration::from_micros(250);
    loop {
        let membership = pseudo::read_text("/proc/self/cgroup")
            .map_err(|error| format!("read /proc/self/cgroup: {}", errno_name(&error)))?;
        let own = hierarchies(&mounts, &membership)
            .into_iter()
            .find(|one| one.version == 2)
            .map(|one| one.own);
        match own {
            Some(own) if own.ends_with(name) => return Ok(own),
            _ if Instant::now() >= until => {
                return Err(format!(
                    "the service manager did not move this process to {name}"
                ));
            }
            _ => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(8));
            }
        }
    }
}

/// Moves this process into a group of its own in the scope, and switches controllers on for groups beside it.
fn make_ready(scope: &Path, resources: &[Resource]) -> Result<(), String> {
    let own = scope.join(OWN_GROUP);
    std::fs::create_dir(&own)
        .map_err(|error| format!("make {}: {}", own.display(), errno_name(&error)))?;
    let write = |path: PathBuf, text: &str| {
        write_to(&path, text)
            .map_err(|error| format!("write {text} to {}: {}", path.display(), errno_name(&error)))
    };
    write(own.join("cgroup.procs"), "0")?;
    let mut failed = Vec::new();
    let mut done = false;
    for resource in resources {
        let switched = write(
            scope.join("cgroup.subtree_control"),
            &format!("+{}", resource.controller()),
        );
        match switched {
            Ok(()) => done = true,
            Err(why) => failed.push(why),
        }
    }
    // What could not be switched on is said of the place, as not delegated.
    if done { Ok(()) } else { Err(failed.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_without_controllers_is_no_place() {
        let scope = tempfile::tempdir().unwrap();
        let why = make_ready(scope.path(), &[Resource::Memory]).unwrap_err();
        assert!(why.contains("cgroup.procs: ENOENT"), "{why}");
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let why = settle(&Manager {
            sockets: vec![path],
            resources: vec![Resource::Memory],
        })
        .unwrap_err();
        assert!(why.ends_with("connect: ECONNREFUSED"), "{why}");
    }
}
