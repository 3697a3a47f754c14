//! The one thing an own network namespace needs from outside the file API: its loopback device switched on.

use std::io;
use std::os::fd::AsRawFd;

use super::check;

/// Sets `lo` up in this network namespace (netdevice(7)).
///
/// # Errors
/// The kernel's.
pub fn loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")
        .or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))?;
    // SAFETY: an all-zero ifreq is a valid value of that plain C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }.into())
        .map(drop)
}
