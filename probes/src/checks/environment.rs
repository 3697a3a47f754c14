//! Variables of whoever started the sandbox: one that must not be here, beside one that must.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::show;
use crate::cause::Cause;
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::tally::Tally;

/// That a variable is absent is no error.
pub(crate) const DENIED: &[&str] = &["none"];

pub(crate) fn inherited(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    if parameters.first("absent").is_none() {
        return Seen::missing("no absent= was given");
    }
    let mut present = None;
    for text in parameters.all("present") {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let found = std::env::var_os(name);
        tally.note(match &found {
            Some(found) => format!("{name}={}", show(found.as_bytes())),
            None => format!("{name} is missing"),
        });
        let same = found.is_some_and(|found| found.as_bytes() == value.as_bytes());
        present = Some(present.unwrap_or(true) && same);
    }
    let parent = std::os::unix::process::parent_id();
    let places = ["self".to_owned(), "1".to_owned(), parent.to_string()];
    let mut texts: Vec<(String, Vec<u8>)> = Vec::new();
    for place in places {
        match fs::read(format!("/proc/{place}/environ")) {
            Ok(text) => texts.push((format!("/proc/{place}/environ"), text)),
            Err(error) => tally.note(format!("/proc/{place}/environ {}", Cause::from(error))),
        }
    }
    for name in parameters.all("absent") {
        let mut absent = true;
        if let Some(value) = std::env::var_os(name) {
            absent = false;
            tally.escaped(format!("{} {name}", show(value.as_bytes())));
        }
        for (place, text) in &texts {
            let mut entries = text.split(|byte| *byte == 0);
            let start = format!("{name}=");
            if let Some(value) = entries.find_map(|entry| entry.strip_prefix(start.as_bytes())) {
                absent = false;
                tally.escaped(format!("{} {name} in {place}", show(value)));
            }
        }
        if absent {
            tally.refused(name, Cause::None);
        }
    }
    tally.finish(present.map_or(Twin::None, Twin::of))
}
