//! The controller's side of its listeners: its own calls, and what was heard.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::{Endpoint, Heard, Listeners, contains, dns};

/// How long the controller's own call may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long nobody looks whether something was heard more often.
const LOOK: Duration = Duration::from_millis(20);

impl Listeners {
    /// What is listened at.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The controller's own call of one endpoint: it is well when what was said is heard.
    ///
    /// # Errors
    /// Why it was not.
    pub fn alive(&mut self, endpoint: usize) -> io::Result<()> {
        self.calls += 1;
        let text = self.call(self.calls);
        let what = self.endpoints.get(endpoint);
        match what.ok_or(io::ErrorKind::NotFound)? {
            Endpoint::Tcp(at) => {
                let stream = TcpStream::connect_timeout(at, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                say(stream, &text)?;
            }
            Endpoint::Unix(path) => say(UnixStream::connect(path)?, &text)?,
            Endpoint::Abstract(name) => {
                let at = UnixAddr::from_abstract_name(name)?;
                say(UnixStream::connect_addr(&at)?, &text)?;
            }
            Endpoint::Udp(at) => {
                ask(*at, text.as_bytes())?;
            }
            Endpoint::Dns(at, name) => {
                let name = format!("{}-{}.{name}", self.own, self.calls);
                let id = self.calls as u16;
                let answer = ask(*at, &dns::ask(&name, id))?;
                let mut stream = TcpStream::connect_timeout(at, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let query = dns::ask(&name, id);
                stream.write_all(&(query.len() as u16).to_be_bytes())?;
                stream.write_all(&query)?;
                let mut again = vec![0; 2 + answer.len()];
                stream.read_exact(&mut again)?;
                if !answer.ends_with(&[127, 0, 0, 1]) || !again.ends_with(&answer) {
                    return Err(io::Error::other("the resolver gives another answer"));
                }
                return self.await_text(endpoint, name.as_bytes());
            }
            Endpoint::Held(_) => {
                let Some(other) = self.others.iter().find(|(at, _)| *at == endpoint) else {
                    return Ok(());
                };
                nix::unistd::write(&other.1, text.as_bytes())?;
            }
        }
        self.await_text(endpoint, text.as_bytes())
    }

    /// Waits until a text is heard.
    pub(super) fn await_text(&self, endpoint: usize, text: &[u8]) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let mut heard = self.shared.heard();
        loop {
            let mut found = heard.iter();
            if found.any(|heard| heard.endpoint == endpoint && contains(&heard.text, text)) {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let woken = self.shared.more.wait_timeout(heard, left);
            heard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How often each endpoint heard `text` until now.
    #[must_use]
    pub fn count(&self, text: &[u8]) -> Vec<usize> {
        let mut counts = vec![0; self.endpoints.len()];
        for heard in self.shared.heard().iter() {
            if contains(&heard.text, text)
                && let Some(count) = counts.get_mut(heard.endpoint)
            {
                *count += 1;
            }
        }
        counts
    }

    /// Waits at most `patience` until one endpoint heard `text` at least `more` times more often than `before` says; whether
    /// it did.
    #[must_use]
    pub fn await_more(
        &self,
        text: &[u8],
        before: &[usize],
        more: usize,
        patience: Duration,
    ) -> bool {
        let until = Instant::now() + patience;
        loop {
            let now = self.count(text);
            if now
                .iter()
                .zip(before)
                .any(|(now, before)| *now >= before + more)
            {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Something may have come since it was counted: then the next look is a little late.
            let waited = self
                .shared
                .more
                .wait_timeout(self.shared.heard(), left.min(LOOK));
            drop(waited);
        }
    }

    /// Everything that was heard and did not come from the controller; nothing is listened at any more.
    #[must_use]
    pub fn stop(&mut self) -> Vec<Heard> {
        self.join();
        let mut heard = std::mem::take(&mut *self.shared.heard());
        for one in &mut heard {
            if matches!(self.endpoints.get(one.endpoint), Some(Endpoint::Held(_))) {
                for call in 1..=self.calls {
                    cut(&mut one.text, self.call(call).as_bytes());
                }
            }
        }
        heard.retain(|heard| !heard.text.is_empty() && !contains(&heard.text, self.own.as_bytes()));
        heard
    }

    fn call(&self, number: u32) -> String {
        format!("{} call {number}.", self.own)
    }

    pub(super) fn join(&mut self) {
        if let Some((thread, stop)) = self.thread.take() {
            drop(stop);
            // What it heard is shared, whatever became of it.
            let _ = thread.join();
        }
    }
}

/// Takes `part` out of `bytes`, wherever it stands.
fn cut(bytes: &mut Vec<u8>, part: &[u8]) {
    while let Some(at) = bytes.windows(part.len()).position(|window| window == part) {
        bytes.drain(at..at + part.len());
    }
}

pub(super) fn say(mut stream: impl io::Write, text: &str) -> io::Result<()> {
    stream.write_all(format!("{text}\n").as_bytes())
}

pub(super) fn ask(at: SocketAddr, text: &[u8]) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind((at.ip(), 0))?;
    socket.connect(at)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(text)?;
    let mut answer = vec![0; 512];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}
