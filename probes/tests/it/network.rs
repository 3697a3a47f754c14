//! Listeners of the test's own, on loopback.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use ledger::facts::probe::Twin;

use crate::{Said, secret, skip};

/// Takes one connection and keeps what was said.
fn taken(listener: TcpListener) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut heard = Vec::new();
        listener
            .accept()
            .unwrap()
            .0
            .read_to_end(&mut heard)
            .unwrap();
        heard
    })
}

/// Takes one datagram, answers it, and keeps what was said.
fn echoed(socket: UdpSocket) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut heard = vec![0; 512];
        let (count, from) = socket.recv_from(&mut heard).unwrap();
        socket.send_to(b"heard", from).unwrap();
        heard.truncate(count);
        heard
    })
}

fn greeting(check: &str) -> Vec<u8> {
    format!("{} {check}\n", secret()).into_bytes()
}

#[test]
fn every_listener_is_reached_by_the_secret() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dns = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = |address: std::io::Result<SocketAddr>| address.unwrap().to_string();
    let dns_text = format!("{}/containment-abc.localhost", address(dns.local_addr()));
    let values = [
        ("tcp4", address(tcp.local_addr())),
        ("peer", address(peer.local_addr())),
        ("udp4", address(udp.local_addr())),
        ("dns", dns_text),
    ];
    let values: Vec<_> = values
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let heard = [taken(tcp), taken(peer), echoed(udp), echoed(dns)];
    let said = Said::run("network", &values);
    for check in ["tcp4", "path", "udp", "dns"] {
        said.escaped(check);
    }
    said.error("tcp6", "instrument-missing: no tcp6= was given");
    let [tcp, path, udp, question] = heard.map(|thread| thread.join().unwrap());
    assert_eq!(tcp, greeting("network/tcp4"));
    assert_eq!(path, greeting("network/path"));
    assert_eq!(udp, greeting("network/udp"));
    let name = b"\x0fcontainment-abc\x09localhost\0\0\x01\0\x01";
    assert!(question.ends_with(name), "{question:?}");
}

#[test]
fn a_closed_port_is_a_refusal_with_its_error() {
    // tcpmux (RFC 1078), which nobody has any more.
    let address = "127.0.0.1:1";
    let said = Said::run("network", &[("tcp4", address), ("tcp6", "::1")]);
    said.contained("tcp4", "ECONNREFUSED", Twin::None);
    // What is no address is no containment either: EINVAL is nobody's refusal.
    let line = said.line("tcp6");
    assert_eq!(line.errno.as_ref().unwrap().to_string(), "EINVAL", "{line}");
}

#[test]
fn ipv6_is_reached_where_the_host_speaks_it() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return skip("ipv6_is_reached_where_the_host_speaks_it", "no ::1 here");
    };
    let udp = UdpSocket::bind("[::1]:0").unwrap();
    let (address, datagrams) = (listener.local_addr().unwrap(), udp.local_addr().unwrap());
    let heard = [taken(listener), echoed(udp)];
    let values = [
        ("tcp6", &*address.to_string()),
        ("udp6", &*datagrams.to_string()),
    ];
    let said = Said::run("network", &values);
    said.escaped("tcp6");
    said.escaped("udp6");
    let [tcp, udp] = heard.map(|thread| thread.join().unwrap());
    assert_eq!(tcp, greeting("network/tcp6"));
    assert_eq!(udp, greeting("network/udp6"));
}

#[test]
fn sockets_with_a_path_and_without_are_reached() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let decoy = folder.path().join("docker.sock");
    let name = format!("containment-test-{}", std::process::id());
    let abstracted = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let listeners = [
        UnixListener::bind(&path).unwrap(),
        UnixListener::bind_addr(&abstracted).unwrap(),
        UnixListener::bind(&decoy).unwrap(),
    ];
    let values = [
        ("unix", path.to_str().unwrap()),
        ("abstract", &name),
        ("decoy", decoy.to_str().unwrap()),
    ];
    let said = Said::run("ipc", &values);
    for (check, listener) in ["unix", "abstract", "host-sockets"]
        .into_iter()
        .zip(listeners)
    {
        said.escaped(check);
        let mut heard = Vec::new();
        listener
            .accept()
            .unwrap()
            .0
            .read_to_end(&mut heard)
            .unwrap();
        assert_eq!(heard, greeting(&format!("ipc/{check}")));
    }
    let gone = [
        ("unix", "/nonexistent/s"),
        ("abstract", "containment-test-nobody"),
    ];
    let said = Said::run("ipc", &gone);
    said.contained("unix", "ENOENT", Twin::None);
    said.contained("abstract", "ECONNREFUSED", Twin::None);
}
