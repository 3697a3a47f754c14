//! Sockets of processes outside.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};

use crate::cause::{Cause, EPROTOTYPE};
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::tally::Tally;

pub(crate) const DENIED: &[&str] = &[
    "ENOENT",
    "EACCES",
    "EPERM",
    "ENOTDIR",
    "ELOOP",
    "EAFNOSUPPORT",
];
/// Nobody listens by that name in this network namespace.
pub(crate) const DENIED_ABSTRACT: &[&str] = &["ECONNREFUSED", "EACCES", "EPERM", "EAFNOSUPPORT"];

fn greet(address: &SocketAddr, greeting: &[u8]) -> Result<(), Cause> {
    match UnixStream::connect_addr(address) {
        // To be connected is to have reached it, whatever becomes of the words.
        Ok(mut stream) => {
            let _said = stream.write_all(greeting);
            Ok(())
        }
        Err(error) if error.raw_os_error() == Some(EPROTOTYPE) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(address)?;
            socket.send(greeting)?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// By path. A mount that is read-only does not stop it.
pub(crate) fn unix(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    if parameters.first("unix").is_none() {
        return Seen::missing("no unix= was given");
    }
    let greeting = parameters.greeting("ipc/unix");
    for path in parameters.all("unix") {
        let answer = SocketAddr::from_pathname(path)
            .map_err(Cause::from)
            .and_then(|address| greet(&address, &greeting));
        tally.attempt(path, answer);
    }
    tally.finish(Twin::None)
}

pub(crate) fn abstracts(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED_ABSTRACT);
    if parameters.first("abstract").is_none() {
        return Seen::missing("no abstract= was given");
    }
    let greeting = parameters.greeting("ipc/abstract");
    for name in parameters.all("abstract") {
        let answer = SocketAddr::from_abstract_name(name)
            .map_err(Cause::from)
            .and_then(|address| greet(&address, &greeting));
        tally.attempt(format!("@{name}"), answer);
    }
    tally.finish(Twin::None)
}

/// Sockets by which others rule the host: looked at, never connected.
const CONTROL: [&str; 15] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/libvirt/libvirt-sock",
    "/run/snapd.socket",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/systemd/notify",
    "/run/systemd/journal/socket",
    "/run/systemd/io.systemd.Manager",
    "/run/udev/control",
    "/dev/log",
    "/tmp/.X11-unix/X0",
];

/// The sockets of the host's services. Real ones are only looked at; what the runner planted in their likeness (`decoy=`) is
/// connected.
pub(crate) fn host_sockets(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let greeting = parameters.greeting("ipc/host-sockets");
    for path in parameters.all("decoy") {
        let answer = SocketAddr::from_pathname(path)
            .map_err(Cause::from)
            .and_then(|address| greet(&address, &greeting));
        tally.attempt(path, answer);
    }
    let mut paths: Vec<PathBuf> = CONTROL.iter().map(PathBuf::from).collect();
    paths.extend(of_users());
    for path in &paths {
        match path.metadata() {
            Ok(found) if found.file_type().is_socket() => tally.escaped(path.display().to_string()),
            Ok(_) => {}
            Err(error) => tally.refused(path.display().to_string(), error),
        }
    }
    tally.finish(Twin::None)
}

/// A user's own bus and agents, by the variables and by every user's folder that is there.
fn of_users() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for name in ["SSH_AUTH_SOCK", "DOCKER_HOST"] {
        let value = std::env::var(name).unwrap_or_default();
        let path = value.strip_prefix("unix://").unwrap_or(&value);
        if Path::new(path).is_absolute() {
            paths.push(path.into());
        }
    }
    let folders = std::fs::read_dir("/run/user")
        .into_iter()
        .flatten()
        .flatten();
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    for folder in folders.map(|entry| entry.path()).chain(own) {
        for name in [
            "bus",
            "systemd/private",
            "docker.sock",
            "podman/podman.sock",
            "gnupg/S.gpg-agent",
        ] {
            paths.push(folder.join(name));
        }
    }
    paths
}
