//! Reaching the runner's listeners from inside, and looking for any way out.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::links;
use crate::cause::{Cause, EINVAL, ENETUNREACH};
use crate::line::{Claim, Seen, Twin};
use crate::parameters::Parameters;
use crate::tally::Tally;

/// ECONNREFUSED: a loopback of the sandbox's own; that the listener lives is shown by the runner's own call.
pub(crate) const DENIED: &[&str] = &[
    "ENETUNREACH",
    "EHOSTUNREACH",
    "EADDRNOTAVAIL",
    "EACCES",
    "EPERM",
    "EAFNOSUPPORT",
    "ENOTSOCK",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "ENETDOWN",
];

/// What all attempts of a check may wait, together.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// What one waits for an answer to a datagram.
const ANSWER: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_millis(400);

fn addresses(parameters: &Parameters, key: &str, tally: &mut Tally) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for text in parameters.all(key) {
        match text.parse() {
            Ok(address) => found.push(address),
            Err(_) => tally.refused(format!("{key}={text} is no address"), Cause::Errno(EINVAL)),
        }
    }
    found
}

fn share(count: usize) -> Duration {
    let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    (PATIENCE / count).clamp(Duration::from_millis(20), LONGEST)
}

pub(crate) fn tcp4(parameters: &Parameters) -> Seen {
    tcp(parameters, "tcp4", "network/tcp4")
}

pub(crate) fn tcp6(parameters: &Parameters) -> Seen {
    tcp(parameters, "tcp6", "network/tcp6")
}

fn tcp(parameters: &Parameters, key: &str, check: &str) -> Seen {
    let mut tally = Tally::new(DENIED);
    if parameters.first(key).is_none() {
        return Seen::missing(format!("no {key}= was given"));
    }
    let targets = addresses(parameters, key, &mut tally);
    let greeting = parameters.greeting(check);
    for target in &targets {
        let answer = greet(*target, &greeting, share(targets.len()));
        tally.attempt(target.to_string(), answer);
    }
    tally.finish(Twin::None)
}

/// Connects, says the secret, and hangs up. To be connected is to have reached it, whatever becomes of the words.
fn greet(target: SocketAddr, greeting: &[u8], patience: Duration) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, patience)?;
    let _said = stream
        .set_write_timeout(Some(patience))
        .and_then(|()| stream.write_all(greeting));
    Ok(())
}

pub(crate) fn udp(parameters: &Parameters) -> Seen {
    datagrams(parameters, "udp4", "network/udp")
}

pub(crate) fn udp6(parameters: &Parameters) -> Seen {
    datagrams(parameters, "udp6", "network/udp6")
}

/// That a datagram was sent proves nothing; an answer does.
fn datagrams(parameters: &Parameters, key: &str, check: &str) -> Seen {
    let mut tally = Tally::new(DENIED);
    if parameters.first(key).is_none() {
        return Seen::missing(format!("no {key}= was given"));
    }
    let greeting = parameters.greeting(check);
    let mut waiting = Vec::new();
    for target in addresses(parameters, key, &mut tally) {
        match send(target, &greeting) {
            Ok(socket) => waiting.push((target, socket)),
            Err(error) => tally.refused(target.to_string(), error),
        }
    }
    let until = Instant::now() + ANSWER;
    for (target, socket) in waiting {
        tally.attempt(target.to_string(), answer(&socket, until, &mut [0; 512]));
    }
    tally.finish(Twin::None)
}

fn send(target: SocketAddr, words: &[u8]) -> std::io::Result<UdpSocket> {
    let own: SocketAddr = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own)?;
    socket.connect(target)?;
    socket.send(words)?;
    Ok(socket)
}

fn answer(socket: &UdpSocket, until: Instant, into: &mut [u8]) -> Result<usize, Cause> {
    let left = until.saturating_duration_since(Instant::now());
    socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
    socket.recv(into).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Cause::Errno(crate::cause::ETIMEDOUT),
        _ => Cause::from(error),
    })
}

/// Any way out: the listener outside the sandbox's network, or an interface or route that could lead to one.
pub(crate) fn path(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let targets = addresses(parameters, "peer", &mut tally);
    let greeting = parameters.greeting("network/path");
    for target in &targets {
        let answer = greet(*target, &greeting, share(targets.len()));
        tally.attempt(target.to_string(), answer);
    }
    if tally.has_escaped() {
        return tally.finish(Twin::None);
    }
    match links::ways_out() {
        Ok(ways) if ways.is_empty() => {
            tally.refused(
                "no interface is up but loopback, no default route",
                Cause::Errno(ENETUNREACH),
            );
        }
        Ok(ways) => {
            let mut seen = tally.finish(Twin::None);
            seen.claim = Claim::Error;
            seen.cause = Cause::None;
            seen.detail = format!("path-present: {}", ways.join(", "));
            return seen;
        }
        // Not even a socket of the Internet: there is nothing to send by.
        Err(links::Blind::NoSockets(cause)) => tally.refused("no socket of the Internet", cause),
        Err(links::Blind::Unknown(cause)) => {
            return Seen::missing(format!("interfaces cannot be listed: {cause}"));
        }
    }
    tally.finish(Twin::None)
}

/// Sockets of services that resolve names for others; a path that crosses network namespaces.
const RESOLVERS: [&str; 4] = [
    "/run/nscd/socket",
    "/var/run/nscd/socket",
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/avahi-daemon/socket",
];

/// Asks the runner's resolver, by datagram and by connection. Names are asked of nobody else: whom the host's own resolver
/// would ask is not ours to choose. Its sockets are connected, without a question.
pub(crate) fn dns(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    if parameters.first("dns").is_none() {
        return Seen::missing("no dns= was given");
    }
    for text in parameters.all("dns") {
        let parts = text.split_once('/');
        let target =
            parts.and_then(|(address, name)| Some((address.parse().ok()?, question(name)?)));
        let Some((target, question)) = target else {
            tally.refused(
                format!("dns={text} is no address/name"),
                Cause::Errno(EINVAL),
            );
            continue;
        };
        let datagram = send(target, &question)
            .map_err(Cause::from)
            .and_then(|socket| answer(&socket, Instant::now() + ANSWER, &mut [0; 512]));
        tally.attempt(format!("udp {target}"), datagram);
        tally.attempt(format!("tcp {target}"), ask_by_tcp(target, &question));
    }
    for path in RESOLVERS {
        // Not there is not worth a word.
        match UnixStream::connect(path) {
            Ok(_) => tally.escaped(format!("{path} connected")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tally.note(format!("{path} {}", Cause::from(error))),
        }
    }
    tally.finish(Twin::None)
}

fn ask_by_tcp(target: SocketAddr, question: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, LONGEST)?;
    let length = u16::try_from(question.len()).unwrap_or(0).to_be_bytes();
    stream.set_read_timeout(Some(ANSWER))?;
    // To be connected is to have reached it.
    let _answered = stream
        .write_all(&[&length, question].concat())
        .and_then(|()| stream.read(&mut [0; 512]));
    Ok(())
}

/// A question for the address of a name (RFC 1035 §4.1).
fn question(name: &str) -> Option<Vec<u8>> {
    let mut message = vec![0x5a, 0x5a, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..=63).contains(length))?;
        message.push(length);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    (message.len() <= 271).then_some(message)
}
