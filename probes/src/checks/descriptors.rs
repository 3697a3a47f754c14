//! Descriptors that whoever started the sandbox left open.

use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::show;
use crate::cause::Cause;
use crate::isolate::answers_by;
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys;
use crate::tally::Tally;

pub(crate) const DENIED: &[&str] = &["EBADF"];

pub(crate) fn inherited(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let given: Vec<RawFd> = parameters
        .all("fd")
        .filter_map(|text| text.parse().ok())
        .collect();
    if given.is_empty() {
        return Seen::missing("no fd= was given");
    }
    for fd in &given {
        match look(*fd, parameters) {
            Ok(what) => tally.escaped(what),
            Err(cause) => tally.refused(fd.to_string(), cause),
        }
    }
    // Under another number: what can be read through it is printed, and the runner knows what it planted; a runtime may have
    // left something of its own open, too.
    let not_own = |fd: &RawFd| !given.contains(fd) && !answers_by(*fd);
    for fd in (3..1_024).filter(not_own) {
        if let Ok(what) = look(fd, parameters) {
            tally.note(what);
        }
    }
    let streams = (0..3).filter(|fd| sys::duplicate(*fd).is_ok()).count();
    tally.finish(Twin::of(streams > 0))
}

/// What an open descriptor leads to, and its beginning; what this program opened for itself is not there.
fn look(fd: RawFd, parameters: &Parameters) -> Result<String, Cause> {
    sys::descriptor_is_open(fd)?;
    let mut file = std::fs::File::from(sys::duplicate(fd)?);
    let kind = match file.metadata() {
        Ok(found) => found.file_type(),
        Err(error) => return Ok(format!("{fd} is open, {}", Cause::from(error))),
    };
    if kind.is_dir() {
        let above = sys::open_at(file.as_raw_fd(), Path::new(".."), sys::O_DIRECTORY);
        let names = names(&format!("/proc/self/fd/{fd}"));
        let names = names.unwrap_or_else(|error| format!("not listed, {}", Cause::from(error)));
        let above = above.map_or_else(|cause| cause.to_string(), |_| "opened".to_owned());
        return Ok(format!("{fd} is a folder {names} ..={above}"));
    }
    if kind.is_file() {
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.take(256).read_to_end(&mut bytes));
        let text = read.map_or_else(|error| Cause::from(error).to_string(), |_| show(&bytes));
        return Ok(format!("{fd} is a file {text}"));
    }
    if kind.is_socket() && parameters.all("fd").any(|text| text == fd.to_string()) {
        // Whoever is at the other end gets the secret.
        let greeting = parameters.greeting("descriptors/inherited");
        let said = sys::say(fd, &greeting);
        let said = said.map_or_else(|cause| cause.to_string(), |()| "written".to_owned());
        return Ok(format!("{fd} is a socket {said}"));
    }
    if kind.is_fifo() || kind.is_socket() {
        return Ok(format!("{fd} is open"));
    }
    Ok(format!("{fd} is another thing"))
}

/// The names in a folder, which only /proc can list by a number.
fn names(path: &str) -> std::io::Result<String> {
    let names = std::fs::read_dir(path)?.flatten().take(6);
    let names: Vec<_> = names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    Ok(names.join(" "))
}
