//! Which listeners a workload reaches: acceptance "reach a listener on the host's loopback".

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use crate::probe::inside;
use crate::world::{World, ready, skip};

/// Listeners of the host, served until the test ends.
struct Listeners {
    tcp: SocketAddr,
    udp: SocketAddr,
    name: String,
}

impl Listeners {
    fn new(world: &World) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = format!(
            "containment-{}",
            world.path("").file_name().unwrap().display()
        );
        let address = UnixAddr::from_abstract_name(&name).unwrap();
        let unix = UnixListener::bind_addr(&address).unwrap();
        let listeners = Self {
            tcp: tcp.local_addr().unwrap(),
            udp: udp.local_addr().unwrap(),
            name,
        };
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let _ = stream.and_then(|mut stream| stream.write_all(b"hello"));
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((count, from)) = udp.recv_from(&mut buffer) {
                let _ = udp.send_to(&buffer[..count], from);
            }
        });
        std::thread::spawn(move || unix.incoming().for_each(drop));
        listeners
    }

    fn attempts(&self) -> [String; 4] {
        [
            format!("tcp:{}", self.tcp),
            format!("udp:{}", self.udp),
            format!("abstract:{}", self.name),
            "own-loopback".to_owned(),
        ]
    }
}

fn reached(world: &World, flags: &str) -> Vec<bool> {
    let listeners = Listeners::new(world);
    let attempts = listeners.attempts();
    let attempts: Vec<&str> = attempts.iter().map(String::as_str).collect();
    let answers = inside(world, flags, &attempts);
    attempts
        .iter()
        .map(|attempt| answers[*attempt] == "ok")
        .collect()
}

#[test]
fn no_network_reaches_nothing() {
    let world = ready!();
    assert_eq!(reached(&world, ""), [false; 4]);
    let run = world.last();
    assert!(run.declares("network") && run.declares("ipc"));
}

#[test]
fn loopback_is_the_sandboxs_own() {
    let world = ready!();
    assert_eq!(
        reached(&world, "--network loopback"),
        [false, false, false, true]
    );
    let run = world.last();
    assert!(run.declares("network") && run.declares("ipc"));
}

#[test]
fn an_unrestricted_network_reaches_the_host_but_not_its_abstract_sockets() {
    let world = ready!();
    if !has_scopes() {
        return skip(
            "network::an_unrestricted_network",
            "Landlock here has no scopes (ABI 6)",
        );
    }
    let reached = reached(&world, "--network unrestricted");
    // TCP, UDP, the abstract socket, and a listener of the sandbox's own.
    assert_eq!(reached, [true, true, false, true]);
    let run = world.last();
    assert!(!run.declares("network") && run.declares("ipc"));
}

#[test]
fn abstract_sockets_of_the_host_are_shared_where_nothing_scopes_them() {
    let world = ready!();
    let policy = world.policy(|policy| policy["nesting"] = "allow".into());
    let flags = format!("-P {} --network unrestricted", policy.display());
    let ran = world.exec(&flags, &["true"]).ended(126);
    assert!(ran.err.contains("abstract-sockets-shared"), "{}", ran.err);
    assert_eq!(world.last().reason("ipc"), Some("abstract-sockets-shared"));
    let reached = reached(&world, &format!("{flags} --best-effort"));
    assert_eq!(reached, [true; 4]);
    assert!(!world.last().declares("ipc"));
}

fn has_scopes() -> bool {
    let facts = runner::host::gather(None).unwrap();
    facts.landlock_abi.is_some_and(|abi| abi >= 6)
}

#[test]
fn an_allowlist_needs_egress() {
    let world = ready!();
    let ran = world.exec("--allow example.com:443", &["true"]).ended(126);
    assert!(ran.err.contains("needs-egress"), "{}", ran.err);
    assert_eq!(world.last().reason("network"), Some("needs-egress"));
}
