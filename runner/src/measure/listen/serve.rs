//! The thread that serves every socket of a run, with poll(2).

use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Heard, Shared, contains, dns};

/// Connections that are open at once; the oldest makes room.
const MOST_OPEN: usize = 64;
/// Texts that are kept in all.
const MOST_HEARD: usize = 4_096;
/// Bytes that are kept of one connection.
const MOST_BYTES: usize = 1_024;
/// What whoever knows the secret is answered.
const ANSWER: &[u8] = b"heard\n";

/// A socket of an endpoint.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) endpoint: usize,
    pub(super) socket: Socket,
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
    Udp(UdpSocket),
    DnsUdp(UdpSocket, String),
    DnsTcp(TcpListener, String),
    Held(OwnedFd),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) | Self::DnsTcp(socket, _) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
            Self::Udp(socket) | Self::DnsUdp(socket, _) => socket.as_fd(),
            Self::Held(fd) => fd.as_fd(),
        }
    }
}

/// A connection whose text is being read.
struct Connection {
    endpoint: usize,
    stream: Stream,
    text: Vec<u8>,
    /// The name that a resolver knows.
    name: Option<String>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Held(OwnedFd),
}

impl Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
            Self::Held(fd) => Ok(nix::unistd::read(&*fd, bytes)?),
        }
    }

    /// Who is at the other end (unix(7), SO_PEERCRED); nobody can tell of other sockets.
    fn user(&self) -> Option<u32> {
        use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
        match self {
            Self::Unix(stream) => getsockopt(stream, PeerCredentials)
                .ok()
                .map(|peer| peer.uid()),
            Self::Tcp(_) | Self::Held(_) => None,
        }
    }

    fn answer(&mut self, bytes: &[u8]) {
        // Whoever does not wait for it misses nothing.
        let _ = match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Held(_) => Ok(()),
        };
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Held(fd) => fd.as_fd(),
        }
    }
}

pub(super) struct Server {
    sources: Vec<Source>,
    connections: Vec<Connection>,
    end: OwnedFd,
    shared: Arc<Shared>,
    known: [String; 2],
}

impl Server {
    pub(super) fn new(
        sources: Vec<Source>,
        end: OwnedFd,
        shared: Arc<Shared>,
        known: [String; 2],
    ) -> Self {
        let mut server = Self {
            sources: Vec::new(),
            connections: Vec::new(),
            end,
            shared,
            known,
        };
        for source in sources {
            match source.socket {
                Socket::Held(fd) => server.connections.push(Connection {
                    endpoint: source.endpoint,
                    stream: Stream::Held(fd),
                    text: Vec::new(),
                    name: None,
                }),
                _ => server.sources.push(source),
            }
        }
        server
    }

    /// Until the other end of `end` is closed, and then until nothing more is there.
    pub(super) fn run(mut self) {
        loop {
            let wait = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut polled = vec![wait(self.end.as_fd())];
            polled.extend(self.sources.iter().map(|one| wait(one.socket.as_fd())));
            polled.extend(self.connections.iter().map(|one| wait(one.stream.as_fd())));
            match poll(&mut polled, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return,
            }
            let ready: Vec<bool> = polled.iter().map(|one| one.any() == Some(true)).collect();
            let ended = ready[0];
            let (sources, connections) = ready[1..].split_at(self.sources.len());
            let (sources, connections) = (sources.to_vec(), connections.to_vec());
            self.read(&connections);
            for (at, _) in sources.iter().enumerate().filter(|(_, ready)| **ready) {
                self.take(at);
            }
            if ended {
                // What was accepted just now, and what lay there.
                self.read(&vec![true; self.connections.len()]);
                for connection in std::mem::take(&mut self.connections) {
                    self.finish(connection);
                }
                return;
            }
        }
    }

    /// Whether somebody said the secret, or is the controller.
    fn knows(&self, text: &[u8]) -> bool {
        let mut known = self.known.iter();
        known.any(|known| contains(text, known.as_bytes()))
    }

    fn hear(&self, endpoint: usize, text: Vec<u8>, user: Option<u32>) {
        let mut heard = self.shared.heard();
        if heard.len() < MOST_HEARD {
            heard.push(Heard {
                endpoint,
                text,
                user,
            });
        }
        drop(heard);
        self.shared.more.notify_all();
    }

    /// Takes everything that waits at a source.
    fn take(&mut self, at: usize) {
        loop {
            let source = &self.sources[at];
            let endpoint = source.endpoint;
            let (stream, name) = match &source.socket {
                Socket::Tcp(socket) => match socket.accept() {
                    Ok((stream, _)) => (Stream::Tcp(stream), None),
                    Err(_) => return,
                },
                Socket::DnsTcp(socket, name) => match socket.accept() {
                    Ok((stream, _)) => (Stream::Tcp(stream), Some(name.clone())),
                    Err(_) => return,
                },
                Socket::Unix(socket) => match socket.accept() {
                    Ok((stream, _)) => (Stream::Unix(stream), None),
                    Err(_) => return,
                },
                Socket::Udp(socket) => {
                    let mut text = vec![0; MOST_BYTES];
                    let Ok((length, from)) = socket.recv_from(&mut text) else {
                        return;
                    };
                    text.truncate(length);
                    if self.knows(&text) {
                        let _ = socket.send_to(ANSWER, from);
                    }
                    self.hear(endpoint, text, None);
                    continue;
                }
                Socket::DnsUdp(socket, name) => {
                    let mut text = vec![0; MOST_BYTES];
                    let Ok((length, from)) = socket.recv_from(&mut text) else {
                        return;
                    };
                    text.truncate(length);
                    let heard = match query(&text, name) {
                        Some((heard, answer)) => {
                            let _ = socket.send_to(&answer, from);
                            heard
                        }
                        None => text,
                    };
                    self.hear(endpoint, heard, None);
                    continue;
                }
                // Read as a connection from the beginning.
                Socket::Held(_) => return,
            };
            let blocking = match &stream {
                Stream::Tcp(stream) => stream.set_nonblocking(true),
                Stream::Unix(stream) => stream.set_nonblocking(true),
                Stream::Held(_) => Ok(()),
            };
            if blocking.is_err() {
                continue;
            }
            let is_held = |one: &Connection| matches!(one.stream, Stream::Held(_));
            if self.connections.len() >= MOST_OPEN
                && let Some(oldest) = self.connections.iter().position(|one| !is_held(one))
            {
                let mut oldest = self.connections.remove(oldest);
                let _ = fill(&mut oldest);
                self.finish(oldest);
            }
            self.connections.push(Connection {
                endpoint,
                stream,
                text: Vec::new(),
                name,
            });
        }
    }

    /// What is held has no lines and no end: it is one text that grows.
    fn grow(&self, endpoint: usize, text: &[u8]) {
        let mut heard = self.shared.heard();
        match heard.iter_mut().find(|heard| heard.endpoint == endpoint) {
            Some(heard) if heard.text.len() < MOST_BYTES => heard.text.extend(text),
            Some(_) => {}
            None => heard.push(Heard {
                endpoint,
                text: text.to_vec(),
                user: None,
            }),
        }
        drop(heard);
        self.shared.more.notify_all();
    }

    /// Reads those connections that are ready, and keeps those that go on.
    fn read(&mut self, ready: &[bool]) {
        let connections = std::mem::take(&mut self.connections);
        for (at, mut connection) in connections.into_iter().enumerate() {
            if !ready.get(at).is_some_and(|ready| *ready) {
                self.connections.push(connection);
                continue;
            }
            let filled = fill(&mut connection);
            if matches!(connection.stream, Stream::Held(_)) && !connection.text.is_empty() {
                self.grow(connection.endpoint, &std::mem::take(&mut connection.text));
            }
            match filled {
                Ok(()) => self.connections.push(connection),
                Err(()) => self.finish(connection),
            }
        }
    }

    /// Answers a text that is whole, or is not to become longer, and notes it.
    fn finish(&self, mut connection: Connection) {
        let asked = connection.name.as_ref().and_then(|name| {
            let message = connection.text.get(2..)?;
            query(message, name)
        });
        if let Some((heard, answer)) = asked {
            let length = (answer.len() as u16).to_be_bytes();
            connection.stream.answer(&[&length[..], &answer].concat());
            connection.text = heard;
        } else if self.knows(&connection.text) {
            connection.stream.answer(ANSWER);
        }
        if !connection.text.is_empty() {
            let user = connection.stream.user();
            self.hear(connection.endpoint, connection.text, user);
        }
    }
}

/// A query for a resolver's own name or one below it: the name that was asked for, and the answer.
fn query(message: &[u8], own: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let query = dns::read(message)?;
    let below = query.name.strip_suffix(own)?;
    (below.is_empty() || below.ends_with('.')).then_some(())?;
    let answer = dns::answer(message, &query)?;
    Some((query.name.into_bytes(), answer))
}

/// Reads what is there; `Err` when a text is whole.
fn fill(connection: &mut Connection) -> Result<(), ()> {
    let mut bytes = [0; MOST_BYTES];
    loop {
        match connection.stream.read(&mut bytes) {
            Ok(0) => return Err(()),
            Ok(length) => {
                connection.text.extend(bytes.iter().take(length));
                let text = &connection.text;
                let whole = match &connection.name {
                    Some(_) => is_whole_message(text) || text.ends_with(b"\n"),
                    None if matches!(connection.stream, Stream::Held(_)) => false,
                    None => text.ends_with(b"\n"),
                };
                if whole
                    || (text.len() >= MOST_BYTES && !matches!(connection.stream, Stream::Held(_)))
                {
                    return Err(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return Err(()),
        }
    }
}

/// Whether a message of DNS is there as TCP carries it: its length in two bytes, and as many (RFC 1035 §4.2.2).
fn is_whole_message(text: &[u8]) -> bool {
    let length = text.first_chunk::<2>();
    length.is_some_and(|length| text.len() >= 2 + usize::from(u16::from_be_bytes(*length)))
}
