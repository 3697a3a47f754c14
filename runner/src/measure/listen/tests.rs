use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::call::{PATIENCE, ask, say};
use super::*;

const OWN: &str = "00112233";
const SECRET: &str = "5ec2e7";

fn listeners(open: impl FnOnce(&mut Open)) -> Listeners {
    let mut opened = Open::new();
    open(&mut opened);
    opened.serve(SECRET, OWN.to_owned()).unwrap()
}

fn loopback(open: &mut Open) {
    open.tcp(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    open.udp(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if let Err(error) = open.tcp(v6).and_then(|()| open.udp(v6)) {
        eprintln!("SKIPPED: IPv6: {error}: {}", error.source);
    }
}

#[test]
fn what_is_said_at_each_socket_is_heard_and_the_controllers_own_calls_are_not_among_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let name = format!("listeners-{}", std::process::id());
    let mut listeners = listeners(|open| {
        loopback(open);
        open.dns(IpAddr::V4(Ipv4Addr::LOCALHOST), "t0.localhost")
            .unwrap();
        open.unix(&path).unwrap();
        open.abstract_name(&name).unwrap();
    });
    let endpoints = listeners.endpoints().to_vec();
    for at in 0..endpoints.len() {
        listeners.alive(at).unwrap();
    }
    for (at, endpoint) in endpoints.iter().enumerate() {
        let text = format!("{SECRET} x/{at}");
        match endpoint {
            Endpoint::Tcp(to) => {
                let mut stream = TcpStream::connect(to).unwrap();
                writeln!(stream, "{text}").unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert_eq!(answer, "heard\n");
            }
            Endpoint::Udp(to) => assert_eq!(ask(*to, text.as_bytes()).unwrap(), b"heard\n"),
            Endpoint::Dns(to, name) => {
                ask(*to, &dns::ask(name, 1)).unwrap();
                say(TcpStream::connect(to).unwrap(), &text).unwrap();
            }
            Endpoint::Unix(path) => say(UnixStream::connect(path).unwrap(), &text).unwrap(),
            Endpoint::Abstract(name) => {
                let to = UnixAddr::from_abstract_name(name).unwrap();
                say(UnixStream::connect_addr(&to).unwrap(), &text).unwrap();
            }
            Endpoint::Held(_) => unreachable!(),
        }
    }
    let heard = listeners.stop();
    for (at, endpoint) in endpoints.iter().enumerate() {
        let texts: Vec<_> = heard.iter().filter(|heard| heard.endpoint == at).collect();
        let wanted = format!("{SECRET} x/{at}\n");
        let wanted = wanted.as_bytes();
        assert!(
            texts
                .iter()
                .any(|heard| heard.text.starts_with(wanted.trim_ascii())),
            "{endpoint}: {texts:?}"
        );
        let asked = texts.iter().any(|heard| heard.text == b"t0.localhost");
        assert_eq!(asked, matches!(endpoint, Endpoint::Dns(..)), "{endpoint}");
    }
    assert!(UnixStream::connect(&path).is_err());
}

#[test]
fn a_stranger_is_not_answered() {
    let mut listeners = listeners(|open| {
        open.udp(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        open.dns(IpAddr::V4(Ipv4Addr::LOCALHOST), "t0.localhost")
            .unwrap();
    });
    let Endpoint::Udp(udp) = listeners.endpoints()[0] else {
        panic!()
    };
    let Endpoint::Dns(dns, _) = listeners.endpoints()[1].clone() else {
        panic!()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"hello", udp).unwrap();
    let query = dns::ask("xt0.localhost", 9);
    socket.send_to(&query, dns).unwrap();
    // Both were read before this was answered, as one thread reads each socket in order.
    listeners.alive(0).unwrap();
    listeners.alive(1).unwrap();
    socket.set_nonblocking(true).unwrap();
    let answered = socket.recv(&mut [0; 64]).unwrap_err();
    assert_eq!(answered.kind(), io::ErrorKind::WouldBlock);
    let heard: Vec<_> = listeners
        .stop()
        .into_iter()
        .map(|heard| heard.text)
        .collect();
    assert_eq!(heard, [b"hello".to_vec(), query]);
}

#[test]
fn a_text_without_an_end_counts_when_the_run_is_over() {
    let mut listeners = listeners(loopback);
    let Endpoint::Tcp(to) = listeners.endpoints()[0] else {
        panic!()
    };
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(b"half a text").unwrap();
    let expected = Heard {
        endpoint: 0,
        text: b"half a text".to_vec(),
        user: None,
    };
    assert_eq!(listeners.stop(), [expected]);
}

#[test]
fn many_connections_are_all_heard() {
    let mut listeners = listeners(loopback);
    let Endpoint::Tcp(to) = listeners.endpoints()[0] else {
        panic!()
    };
    // These stay open and say nothing; those after them still get their turn.
    let idle: Vec<_> = (0..80).map(|_| TcpStream::connect(to).unwrap()).collect();
    for at in 0..100 {
        say(TcpStream::connect(to).unwrap(), &format!("text {at}")).unwrap();
    }
    let heard = listeners.stop();
    assert_eq!(heard.len(), 100);
    drop(idle);
}

#[test]
fn what_is_held_is_one_text_without_the_controllers_calls() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let other = theirs.try_clone().unwrap();
    let mut listeners = listeners(|open| {
        open.held("socket", ours.into(), Some(other.into()))
            .unwrap();
    });
    listeners.alive(0).unwrap();
    for byte in b"injected" {
        (&theirs).write_all(&[*byte]).unwrap();
    }
    listeners.alive(0).unwrap();
    let heard = listeners.stop();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].text, b"injected");
}

#[test]
fn who_connects_to_a_unix_socket_is_known_and_how_often() {
    let name = format!("who-{}", std::process::id());
    let mut listeners = listeners(|open| open.abstract_name(&name).unwrap());
    let before = listeners.count(b"beat");
    assert!(!listeners.await_more(b"beat", &before, 1, Duration::ZERO));
    let at = UnixAddr::from_abstract_name(&name).unwrap();
    for _ in 0..2 {
        say(UnixStream::connect_addr(&at).unwrap(), "beat").unwrap();
    }
    assert!(listeners.await_more(b"beat", &before, 2, PATIENCE));
    let own = nix::unistd::geteuid().as_raw();
    assert!(listeners.stop().iter().all(|heard| heard.user == Some(own)));
}

#[test]
fn a_dead_endpoint_is_not_alive() {
    let mut listeners = listeners(loopback);
    assert!(listeners.alive(99).is_err());
    listeners.join();
    assert!(listeners.alive(0).is_err());
}

#[test]
fn own_addresses_begin_with_loopback_and_name_no_link() {
    let own = own_addresses().unwrap();
    assert!(own[0].is_loopback() && own[1].is_loopback());
    for ip in &own[2..] {
        assert!(!ip.is_loopback() && !ip.is_unspecified(), "{ip}");
        assert!(!matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    }
}
