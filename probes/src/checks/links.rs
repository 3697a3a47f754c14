//! Interfaces and routes, asked of the kernel (rtnetlink(7), netdevice(7)): there may be no /proc and no /sys.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::cause::{Cause, EIO};
use crate::sys;

/// Why nothing is known.
pub(crate) enum Blind {
    /// There are no sockets of the Internet at all.
    NoSockets(Cause),
    /// There are, and interfaces cannot be listed.
    Unknown(Cause),
}

const GET_LINKS: u16 = 18;
const GET_ROUTES: u16 = 26;
const UP: u32 = 1;
const LOOPBACK: u32 = 8;
const UNICAST: u8 = 1;
const SOCK_DGRAM: i32 = 2;
const SOCK_RAW: i32 = 3;
const INTERFACE_NAME: u16 = 3;

/// Every interface that is up and is not loopback, and every default route.
pub(crate) fn ways_out() -> Result<Vec<String>, Blind> {
    match by_netlink() {
        Ok(ways) => Ok(ways),
        Err(cause) => by_ioctl(cause),
    }
}

fn by_netlink() -> Result<Vec<String>, Cause> {
    let mut ways = Vec::new();
    for message in dump(GET_LINKS, 16)? {
        let flags = message.get(8..12).map_or(0, word);
        if flags & UP != 0 && flags & LOOPBACK == 0 {
            let name = attribute(message.get(16..).unwrap_or_default(), INTERFACE_NAME);
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            ways.push(format!("{} is up", String::from_utf8_lossy(name)));
        }
    }
    for message in dump(GET_ROUTES, 12)? {
        if let [family, 0, _, _, _, _, _, UNICAST, ..] = message[..] {
            let version = if family == 2 { 4 } else { 6 };
            ways.push(format!("a default route of IPv{version}"));
        }
    }
    ways.dedup();
    Ok(ways)
}

/// The bodies of all answers to a question for everything of a kind.
fn dump(kind: u16, header_bytes: usize) -> Result<Vec<Vec<u8>>, Cause> {
    let mut socket = File::from(sys::open_socket(sys::AF_NETLINK, SOCK_RAW, 0)?);
    let length = 16 + header_bytes;
    let mut question = Vec::new();
    question.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_ne_bytes());
    question.extend_from_slice(&kind.to_ne_bytes());
    // NLM_F_REQUEST | NLM_F_DUMP
    question.extend_from_slice(&0x301_u16.to_ne_bytes());
    question.resize(length, 0);
    socket.write_all(&question)?;
    let mut found = Vec::new();
    loop {
        if !sys::readable(socket.as_raw_fd(), 500) {
            return Err(Cause::Errno(crate::cause::ETIMEDOUT));
        }
        let mut part = vec![0; 65_536];
        let count = socket.read(&mut part)?;
        let mut rest = part.get(..count).unwrap_or_default();
        while let (Some(length), Some(kind)) = (rest.get(..4).map(word), rest.get(4..6)) {
            let length = length as usize;
            let body = rest.get(16..length).ok_or(Cause::Errno(EIO))?;
            match kind {
                kind if kind == 3_u16.to_ne_bytes() => return Ok(found),
                kind if kind == 2_u16.to_ne_bytes() => {
                    let number = body.get(..4).map_or(0, word) as i32;
                    return Err(Cause::Errno(number.wrapping_neg()));
                }
                _ => found.push(body.to_vec()),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_ne_bytes)
}

/// The value of an attribute; empty when it is not there.
fn attribute(mut rest: &[u8], wanted: u16) -> &[u8] {
    while let Some([a, b, c, d]) = rest.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let Some(value) = rest.get(4..length) else {
            break;
        };
        if u16::from_ne_bytes([*c, *d]) == wanted {
            return value;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    &[]
}

/// Interfaces alone, by their numbers. A kernel that lets nobody ask by netlink lets this be asked by any socket.
fn by_ioctl(before: Cause) -> Result<Vec<String>, Blind> {
    const NAME_OF: u64 = 0x8910;
    const FLAGS_OF: u64 = 0x8913;
    let socket: OwnedFd = match sys::open_socket(sys::AF_INET, SOCK_DGRAM, 0) {
        Ok(socket) => socket,
        Err(cause) => {
            return match sys::open_socket(10, SOCK_DGRAM, 0) {
                Ok(_) => Err(Blind::Unknown(before)),
                Err(_) => Err(Blind::NoSockets(cause)),
            };
        }
    };
    let mut ways = Vec::new();
    let mut known = 0;
    for index in 1..=256_i32 {
        // struct ifreq: 16 bytes of name, then a union of 24.
        let mut request = [0_u8; 40];
        request[16..20].copy_from_slice(&index.to_ne_bytes());
        if sys::control(socket.as_raw_fd(), NAME_OF, &mut request).is_err() {
            continue;
        }
        known += 1;
        let name: Vec<u8> = request
            .iter()
            .copied()
            .take(16)
            .take_while(|byte| *byte != 0)
            .collect();
        sys::control(socket.as_raw_fd(), FLAGS_OF, &mut request).map_err(Blind::Unknown)?;
        let flags = u32::from(u16::from_ne_bytes([request[16], request[17]]));
        if flags & UP != 0 && flags & LOOPBACK == 0 {
            ways.push(format!("{} is up", String::from_utf8_lossy(&name)));
        }
    }
    // Every network has a loopback: who sees none sees nothing.
    if known == 0 {
        Err(Blind::Unknown(before))
    } else {
        Ok(ways)
    }
}
