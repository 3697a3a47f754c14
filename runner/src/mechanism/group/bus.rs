//! As much of D-Bus as one method call needs (D-Bus specification: Authentication Protocol, Message Protocol).
//!
//! A library would bring an executor or a C library along, into a program that is executed again inside each sandbox; what
//! is said here is one call with one kind of argument list, over a local socket whose other side is the same user's.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long the other side may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read.
const MOST_BYTES: u32 = 1 << 20;
/// Longest line of the authentication.
const LONGEST_LINE: usize = 512;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

/// Codes of header fields.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The socket, or the other side's silence.
    #[error("{attempt}: {}", crate::sys::errno_name(source))]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The other side does not take this user.
    #[error("it does not accept this user: {0}")]
    Refused(String),
    /// The other side's answer is an error.
    #[error("it answers {0}")]
    Answer(String),
}

fn system(attempt: &'static str) -> impl Fn(io::Error) -> CallError {
    move |source| CallError::System { attempt, source }
}

/// A method of an object.
#[derive(Debug)]
pub(super) struct Method<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    pub(super) signature: &'a str,
}

/// A connection after its authentication.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    serial: u32,
}

impl Connection {
    /// Connects as this user. Where a message bus listens, and no single program, it wants to be greeted first.
    pub(super) fn open(path: &Path, is_bus: bool) -> Result<Self, CallError> {
        let stream = UnixStream::connect(path).map_err(system("connect"))?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .map_err(system("limit the wait"))?;
        let mut connection = Self { stream, serial: 0 };
        connection.authenticate()?;
        if is_bus {
            let hello = Method {
                destination: "org.freedesktop.DBus",
                path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus",
                member: "Hello",
                signature: "",
            };
            connection.call(&hello, &Body::default())?;
        }
        Ok(connection)
    }

    fn authenticate(&mut self) -> Result<(), CallError> {
        let uid = nix::unistd::geteuid().to_string();
        let uid = ledger::bytes::hash::to_hex(uid.as_bytes());
        let greeting = format!("\0AUTH EXTERNAL {uid}\r\n");
        self.stream
            .write_all(greeting.as_bytes())
            .map_err(system("authenticate"))?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if line.len() >= LONGEST_LINE {
                return Err(CallError::Refused("a line without an end".to_owned()));
            }
            let mut byte = [0];
            self.stream
                .read_exact(&mut byte)
                .map_err(system("authenticate"))?;
            line.extend(byte);
        }
        if !line.starts_with(b"OK ") {
            let line = String::from_utf8_lossy(&line);
            return Err(CallError::Refused(line.trim().to_owned()));
        }
        self.stream
            .write_all(b"BEGIN\r\n")
            .map_err(system("authenticate"))
    }

    /// Calls a method and waits until it has returned; what it returns is not needed.
    pub(super) fn call(&mut self, method: &Method<'_>, body: &Body) -> Result<(), CallError> {
        self.serial += 1;
        let message = message(method, self.serial, &body.0);
        self.stream.write_all(&message).map_err(system("call"))?;
        loop {
            let answer = self.receive().map_err(system("wait for the answer"))?;
            if answer.reply_to != Some(self.serial) {
                // Signals, and what others call.
                continue;
            }
            match answer.kind {
                METHOD_RETURN => return Ok(()),
                ERROR => {
                    let name = answer.error;
                    let name = name.unwrap_or_else(|| "an error without a name".to_owned());
                    return Err(CallError::Answer(match first_string(&answer.body) {
                        Some(text) => format!("{name}: {text}"),
                        None => name,
                    }));
                }
                _ => {}
            }
        }
    }

    fn receive(&mut self) -> io::Result<Answer> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let mut fixed = [0; 16];
        self.stream.read_exact(&mut fixed)?;
        let [endian, kind, _, _, a, b, c, d, _, _, _, _, e, f, g, h] = fixed;
        if endian != b'l' {
            return Err(invalid());
        }
        let body = u32::from_le_bytes([a, b, c, d]);
        let fields = u32::from_le_bytes([e, f, g, h]);
        if body > MOST_BYTES || fields > MOST_BYTES {
            return Err(invalid());
        }
        let padded = fields.next_multiple_of(8);
        let mut rest = vec![0; (padded + body) as usize];
        self.stream.read_exact(&mut rest)?;
        let body = rest.split_off(padded as usize);
        rest.truncate(fields as usize);
        Answer::parse(kind, &rest, body).ok_or_else(invalid)
    }
}

/// What came.
#[derive(Debug)]
struct Answer {
    kind: u8,
    reply_to: Option<u32>,
    error: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    /// Reads the header's fields: structures of a code and a variant, each on a multiple of 8.
    fn parse(kind: u8, fields: &[u8], body: Vec<u8>) -> Option<Self> {
        let mut answer = Self {
            kind,
            reply_to: None,
            error: None,
            body,
        };
        let mut at = 0_usize;
        while at < fields.len() {
            let code = *fields.get(at)?;
            let length = usize::from(*fields.get(at + 1)?);
            let signature = fields.get(at + 2..at + 2 + length)?;
            at += 2 + length + 1;
            match signature {
                b"s" | b"o" => {
                    at = at.next_multiple_of(4);
                    let text = first_string(fields.get(at..)?)?;
                    at += 4 + text.len() + 1;
                    if code == ERROR_NAME {
                        answer.error = Some(text);
                    }
                }
                b"g" => at += 1 + usize::from(*fields.get(at)?) + 1,
                b"u" => {
                    at = at.next_multiple_of(4);
                    let number = number(fields.get(at..)?)?;
                    at += 4;
                    if code == REPLY_SERIAL {
                        answer.reply_to = Some(number);
                    }
                }
                _ => return None,
            }
            at = at.next_multiple_of(8);
        }
        Some(answer)
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_le_bytes)
}

/// The string at the beginning, where there is one.
fn first_string(bytes: &[u8]) -> Option<String> {
    let length = number(bytes)? as usize;
    let text = bytes.get(4..4_usize.checked_add(length)?)?;
    String::from_utf8(text.to_vec()).ok()
}

fn message(method: &Method<'_>, serial: u32, body: &[u8]) -> Vec<u8> {
    let mut fields = Body::default();
    for (code, signature, value) in [
        (PATH, "o", method.path),
        (INTERFACE, "s", method.interface),
        (MEMBER, "s", method.member),
        (DESTINATION, "s", method.destination),
        (SIGNATURE, "g", method.signature),
    ] {
        if value.is_empty() {
            continue;
        }
        fields.align(8);
        fields.0.push(code);
        fields.signature(signature);
        if signature == "g" {
            fields.signature(value);
        } else {
            fields.string(value);
        }
    }
    let mut message = vec![b'l', METHOD_CALL, 0, 1];
    message.extend(length(body).to_le_bytes());
    message.extend(serial.to_le_bytes());
    message.extend(length(&fields.0).to_le_bytes());
    message.extend(&fields.0);
    message.resize(message.len().next_multiple_of(8), 0);
    message.extend(body);
    message
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Arguments, each on a multiple of its own alignment.
#[derive(Debug, Default)]
pub(super) struct Body(Vec<u8>);

impl Body {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// `s` or `o`.
    pub(super) fn string(&mut self, text: &str) {
        self.number(length(text.as_bytes()));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// An array whose items are on multiples of 8.
    pub(super) fn array(&mut self, fill: impl FnOnce(&mut Self)) {
        self.number(0);
        let at = self.0.len();
        // Before the first item, and not counted.
        self.align(8);
        let begin = self.0.len();
        fill(self);
        let length = length(self.0.get(begin..).unwrap_or_default());
        if let Some(place) = self.0.get_mut(at - 4..at) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// One `(sv)`.
    pub(super) fn property(&mut self, name: &str, value: &Value<'_>) {
        self.align(8);
        self.string(name);
        match value {
            Value::Bool(value) => {
                self.signature("b");
                self.number((*value).into());
            }
            Value::Text(text) => {
                self.signature("s");
                self.string(text);
            }
            Value::Numbers(numbers) => {
                self.signature("au");
                self.number(u32::try_from(numbers.len() * 4).unwrap_or(u32::MAX));
                for number in *numbers {
                    self.number(*number);
                }
            }
        }
    }
}

/// What a property can be here.
#[derive(Debug)]
pub(super) enum Value<'a> {
    /// `b`
    Bool(bool),
    /// `s`
    Text(&'a str),
    /// `au`
    Numbers(&'a [u32]),
}

#[cfg(test)]
mod tests;
