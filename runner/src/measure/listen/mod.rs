//! **Listen**: what of a probe arrives outside: sockets of every kind, each served by one thread.
//!
//! Nobody is answered but whoever knows the secret of the run, or asks for the run's own name: a stranger on the network
//! gets not a byte. The controller reaches each endpoint itself, before and after the run ([`Listeners::alive`]).

mod call;
mod dns;
mod serve;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::sys::signal::{SigSet, SigmaskHow};

/// What is listened at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP, over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// UDP, over IPv4 or IPv6.
    Udp(SocketAddr),
    /// A resolver, by UDP and TCP of one number, and the only name that it knows.
    Dns(SocketAddr, String),
    /// A unix socket at a path.
    Unix(PathBuf),
    /// A unix socket of the abstract name space.
    Abstract(String),
    /// Not a socket of ours to reach, but the controller's end of something planted, with its name.
    Held(&'static str),
}

impl Endpoint {
    /// The parameter by which a probe is told of it: key and value. None for what is no socket.
    #[must_use]
    pub fn parameter(&self) -> Option<(&'static str, String)> {
        Some(match self {
            Self::Tcp(at) if at.is_ipv4() => ("tcp4", at.to_string()),
            Self::Tcp(at) => ("tcp6", at.to_string()),
            Self::Udp(at) if at.is_ipv4() => ("udp4", at.to_string()),
            Self::Udp(at) => ("udp6", at.to_string()),
            Self::Dns(at, name) => ("dns", format!("{at}/{name}")),
            Self::Unix(path) => ("unix", path.display().to_string()),
            Self::Abstract(name) => ("abstract", name.clone()),
            Self::Held(_) => return None,
        })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.parameter() {
            Some((key, value)) => write!(f, "{key}={value}"),
            None => match self {
                Self::Held(what) => f.write_str(what),
                _ => Ok(()),
            },
        }
    }
}

/// Something that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Which endpoint, by its place in [`Listeners::endpoints`].
    pub endpoint: usize,
    /// The first bytes; of a query the name that was asked for.
    pub text: Vec<u8>,
    /// The user at the other end of a unix socket, as this host numbers users.
    pub user: Option<u32>,
}

/// An endpoint that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {endpoint}")]
pub struct ListenError {
    /// Where.
    pub endpoint: String,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Sockets that are open and not yet served.
#[derive(Debug)]
pub struct Open {
    endpoints: Vec<Endpoint>,
    sources: Vec<serve::Source>,
    /// Through which the controller reaches what it holds.
    others: Vec<(usize, OwnedFd)>,
}

/// What the thread and the controller share.
#[derive(Debug, Default)]
struct Shared {
    heard: Mutex<Vec<Heard>>,
    more: Condvar,
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Vec<Heard>> {
        // A list is whole whoever panicked.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Endpoints that are served.
#[derive(Debug)]
pub struct Listeners {
    endpoints: Vec<Endpoint>,
    shared: Arc<Shared>,
    thread: Option<(JoinHandle<()>, OwnedFd)>,
    calls: u32,
    own: String,
    others: Vec<(usize, OwnedFd)>,
}

/// The addresses of this host's own devices that a socket can be bound to by their number alone: loopback first. Those of
/// one link (`fe80::`) name a device too, and are left out.
///
/// # Errors
/// The kernel's (getifaddrs(3)).
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let mut own = vec![
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    for interface in nix::ifaddrs::getifaddrs()? {
        let Some(address) = interface.address else {
            continue;
        };
        let v4 = address.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
        let v6 = address.as_sockaddr_in6().map(|at| at.ip());
        let v6 = v6.filter(|ip| !ip.is_unicast_link_local()).map(IpAddr::V6);
        own.extend(v4.or(v6).filter(|ip| !ip.is_loopback()));
    }
    let mut seen = std::collections::BTreeSet::new();
    own.retain(|ip| seen.insert(*ip));
    Ok(own)
}

impl Open {
    /// No socket yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            endpoints: Vec::new(),
            sources: Vec::new(),
            others: Vec::new(),
        }
    }

    fn add(
        &mut self,
        what: impl std::fmt::Display,
        opened: io::Result<(Endpoint, Vec<serve::Socket>)>,
    ) -> Result<(), ListenError> {
        let (endpoint, sockets) = opened.map_err(|source| ListenError {
            endpoint: what.to_string(),
            source,
        })?;
        let at = self.endpoints.len();
        let sources = sockets.into_iter();
        self.sources.extend(sources.map(|socket| serve::Source {
            endpoint: at,
            socket,
        }));
        self.endpoints.push(endpoint);
        Ok(())
    }

    /// What is listened at so far.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The parameter of the newest endpoint.
    #[must_use]
    pub fn last_parameter(&self) -> Option<(&'static str, String)> {
        self.endpoints.last()?.parameter()
    }

    /// TCP at an address.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn tcp(&mut self, ip: IpAddr) -> Result<(), ListenError> {
        let tcp = TcpListener::bind((ip, 0)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let endpoint = Endpoint::Tcp(listener.local_addr()?);
            Ok((endpoint, vec![serve::Socket::Tcp(listener)]))
        });
        self.add(format_args!("tcp {ip}"), tcp)
    }

    /// UDP at an address.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn udp(&mut self, ip: IpAddr) -> Result<(), ListenError> {
        let udp = UdpSocket::bind((ip, 0)).and_then(|socket| {
            socket.set_nonblocking(true)?;
            let endpoint = Endpoint::Udp(socket.local_addr()?);
            Ok((endpoint, vec![serve::Socket::Udp(socket)]))
        });
        self.add(format_args!("udp {ip}"), udp)
    }

    /// A resolver at an address that answers `name` and what is below it.
    ///
    /// # Errors
    /// The address cannot be bound, for UDP and TCP with one number.
    pub fn dns(&mut self, ip: IpAddr, name: &str) -> Result<(), ListenError> {
        let bind = || -> io::Result<(Endpoint, Vec<serve::Socket>)> {
            let udp = UdpSocket::bind((ip, 0))?;
            let at = udp.local_addr()?;
            let tcp = TcpListener::bind(at)?;
            udp.set_nonblocking(true)?;
            tcp.set_nonblocking(true)?;
            let sockets = vec![
                serve::Socket::DnsUdp(udp, name.to_owned()),
                serve::Socket::DnsTcp(tcp, name.to_owned()),
            ];
            Ok((Endpoint::Dns(at, name.to_owned()), sockets))
        };
        // Somebody else may have the number for TCP.
        let opened = (0..8).fold(bind(), |found, _| match found {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => bind(),
            found => found,
        });
        self.add(format_args!("dns {ip}"), opened)
    }

    /// A unix socket that everybody may connect to, at a path.
    ///
    /// # Errors
    /// It cannot be bound; `InvalidInput` for a path of more than 107 bytes.
    pub fn unix(&mut self, path: &Path) -> Result<(), ListenError> {
        use std::os::unix::fs::PermissionsExt as _;
        let opened = UnixListener::bind(path).and_then(|listener| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
            listener.set_nonblocking(true)?;
            let endpoint = Endpoint::Unix(path.to_owned());
            Ok((endpoint, vec![serve::Socket::Unix(listener)]))
        });
        self.add(format_args!("unix {}", path.display()), opened)
    }

    /// A unix socket of the abstract name space.
    ///
    /// # Errors
    /// It cannot be bound.
    pub fn abstract_name(&mut self, name: &str) -> Result<(), ListenError> {
        let opened = UnixAddr::from_abstract_name(name).and_then(|at| {
            let listener = UnixListener::bind_addr(&at)?;
            listener.set_nonblocking(true)?;
            let endpoint = Endpoint::Abstract(name.to_owned());
            Ok((endpoint, vec![serve::Socket::Unix(listener)]))
        });
        self.add(format_args!("abstract {name}"), opened)
    }

    /// A descriptor of the controller's: whatever can be read from it is heard. What is written to `other` must be read there.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub fn held(
        &mut self,
        what: &'static str,
        fd: OwnedFd,
        other: Option<OwnedFd>,
    ) -> Result<(), ListenError> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        let opened = fcntl(&fd, FcntlArg::F_GETFL).and_then(|flags| {
            let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
            fcntl(&fd, FcntlArg::F_SETFL(flags))
        });
        let opened = opened.map(|_| (Endpoint::Held(what), vec![serve::Socket::Held(fd)]));
        let at = self.endpoints.len();
        self.others.extend(other.map(|other| (at, other)));
        self.add(what, opened.map_err(io::Error::from))
    }

    /// Serves them from now on: `secret` is what whoever is answered has to say.
    ///
    /// # Errors
    /// No thread, no pipe.
    pub fn serve(self, secret: &str, own: String) -> io::Result<Listeners> {
        let (end, stop) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let shared = Arc::new(Shared::default());
        let server = serve::Server::new(
            self.sources,
            end,
            shared.clone(),
            [secret.to_owned(), own.clone()],
        );
        // Signals to this process are the main thread's, which may have them blocked.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let thread = std::thread::Builder::new()
            .name("listeners".to_owned())
            .spawn(move || server.run());
        before.thread_set_mask()?;
        Ok(Listeners {
            endpoints: self.endpoints,
            shared,
            thread: Some((thread?, stop)),
            calls: 0,
            own,
            others: self.others,
        })
    }
}

impl Default for Open {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.join();
    }
}

/// Whether `text` stands in `bytes`.
pub(super) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && bytes.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests;
