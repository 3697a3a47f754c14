//! Outliving the end of the run, the deadline, and the cap of the output. The runner looks from outside: inside nobody can.

use std::io::{Read, Write, pipe};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::cause::Cause;
use crate::line::{Claim, Seen, Twin};
use crate::parameters::Parameters;
use crate::sys;

/// Nothing is refused inside.
pub(crate) const DENIED: &[&str] = &["none"];

/// How long a survivor lives at most.
const SURVIVAL: Duration = Duration::from_secs(3);
const BEAT: Duration = Duration::from_millis(100);
/// Longest that this program outlives a deadline.
const LONGEST_MILLIS: u64 = 60_000;
/// One step of living on.
const STEP_MILLIS: u64 = 20;
/// Most that it prints.
const MOST_BYTES: u64 = 64 << 20;

fn begun(detail: String) -> Seen {
    Seen {
        claim: Claim::Contained,
        cause: Cause::None,
        twin: Twin::Ok,
        detail,
    }
}

/// Leaves a process behind that has left session, group and parent, and that says on any socket it can reach that it lives.
///
/// The line comes when it has called everybody once: whom it reaches hears it before the run ends, however busy the machine.
pub(crate) fn survival(parameters: &Parameters) -> Seen {
    let (mut called, tell) = match pipe() {
        Ok(ends) => ends,
        Err(error) => return Seen::error(error.into(), "instrument-missing: no pipe"),
    };
    match sys::child() {
        Ok(None) => {
            drop(called);
            sys::own_session();
            // Its parent ends at once: it belongs to whoever takes orphans.
            if let Ok(None) = sys::child() {
                sys::own_group();
                sys::ignore_requests();
                call(parameters);
                // With everything else, the pipe that says so.
                sys::close_all();
                live(parameters);
            }
            sys::exit_now(0)
        }
        Ok(Some(pid)) => match sys::wait(pid, true) {
            Ok(_) => {
                drop(tell);
                // It ends without a word when all have closed it.
                let _closed = called.read(&mut [0]);
                begun(format!(
                    "a process of its own session lives {} s at most",
                    SURVIVAL.as_secs()
                ))
            }
            Err(cause) => Seen::error(cause, "instrument-missing: the survivor"),
        },
        Err(cause) => Seen::error(cause, "instrument-missing: no survivor could be made"),
    }
}

fn live(parameters: &Parameters) {
    let until = Instant::now() + SURVIVAL;
    while Instant::now() < until {
        std::thread::sleep(BEAT);
        call(parameters);
    }
}

fn call(parameters: &Parameters) {
    let words = parameters.greeting("process/survival");
    for path in parameters.all("unix") {
        let _reached = UnixStream::connect(path).and_then(|mut stream| stream.write_all(&words));
    }
    for name in parameters.all("abstract") {
        let _reached = std::os::unix::net::SocketAddr::from_abstract_name(name)
            .and_then(|address| UnixStream::connect_addr(&address))
            .and_then(|mut stream| stream.write_all(&words));
    }
    for address in parameters
        .all("tcp4")
        .filter_map(|text| text.parse::<SocketAddr>().ok())
    {
        let _reached = TcpStream::connect_timeout(&address, BEAT)
            .and_then(|mut stream| stream.write_all(&words));
    }
}

pub(crate) fn deadline(parameters: &Parameters) -> Seen {
    match parameters.number("millis") {
        Some(millis) if millis <= LONGEST_MILLIS => begun(format!(
            "two processes go on for {millis} ms, deaf to requests"
        )),
        Some(millis) => Seen::missing(format!("{millis} ms are above {LONGEST_MILLIS}")),
        None => Seen::missing("no millis= was given"),
    }
}

/// After the line: this process and a child in a session of its own stay, whatever they are asked. One that comes to its own
/// end says so.
pub(crate) fn linger(parameters: &Parameters) {
    let Some(millis) = parameters
        .number("millis")
        .filter(|millis| *millis <= LONGEST_MILLIS)
    else {
        return;
    };
    sys::ignore_requests();
    let child = sys::child();
    if child == Ok(None) {
        sys::own_session();
    }
    // Counted, not read from a clock: a machine that is busy or stands still for a while keeps whoever is to end this program
    // as long, and what counts is how often it could have been ended and was not.
    for _ in 0..millis.div_ceil(STEP_MILLIS) {
        std::thread::sleep(Duration::from_millis(STEP_MILLIS));
    }
    match child {
        Ok(None) => sys::exit_now(0),
        Ok(Some(pid)) => {
            let _reaped = sys::wait(pid, true);
        }
        Err(_) => {}
    }
    // Whoever does not read it sees no escape in it.
    let _said = std::io::stdout().write_all(&parameters.greeting("timeout/outlived"));
}

pub(crate) fn cap(parameters: &Parameters) -> Seen {
    match parameters.number("bytes") {
        Some(bytes) if bytes <= MOST_BYTES => {
            begun(format!("{bytes} bytes follow on standard error"))
        }
        Some(bytes) => Seen::missing(format!("{bytes} bytes are above {MOST_BYTES}")),
        None => Seen::missing("no bytes= was given"),
    }
}

/// After the line: so many bytes on standard error, and on standard output too where the runner asks for it.
pub(crate) fn flood(parameters: &Parameters) {
    let Some(bytes) = parameters
        .number("bytes")
        .filter(|bytes| *bytes <= MOST_BYTES)
    else {
        return;
    };
    let streams: Vec<&str> = parameters.all("stream").collect();
    if streams.is_empty() || streams.contains(&"stderr") {
        pour(&mut std::io::stderr().lock(), bytes);
    }
    if streams.contains(&"stdout") {
        pour(&mut std::io::stdout().lock(), bytes);
    }
}

fn pour(stream: &mut impl Write, bytes: u64) {
    // One long line: it is no line about any check.
    let part = vec![b'.'; 65_536];
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let now = part.get(..left.min(part.len())).unwrap_or(&part);
        // Whoever reads may have stopped: that is the runner's affair.
        if stream.write_all(now).is_err() {
            return;
        }
        left -= now.len();
    }
    let _flushed = stream.flush();
}
