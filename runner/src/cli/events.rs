//! `--events`: JSON lines about a run, for programs that must not mistake a workload's status for the runner's.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;

use super::report;
use super::status::status;
use crate::run::{Event, Finished, write_until};

/// Events cannot be written there.
#[derive(Debug, thiserror::Error)]
#[error("cannot write events to {to}")]
pub(super) struct OpenEventsError {
    to: String,
    source: io::Error,
}

/// JSON lines about a run. One that cannot be written, or that nobody reads, is said, and is the last: half of it may
/// stand there. The run goes on.
pub(super) struct Events {
    to: std::fs::File,
    name: String,
    failed: bool,
}

impl Events {
    pub(super) fn open(to: &str) -> Result<Self, OpenEventsError> {
        let failed = |source| OpenEventsError {
            to: to.to_owned(),
            source,
        };
        let file = match to.parse::<i32>() {
            Ok(number) => open_descriptor(number).map_err(failed)?,
            // A number that no descriptor can have is not the name of a file; `./5000000000` is.
            Err(_) if to.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(failed(io::Error::from_raw_os_error(libc::EBADF)));
            }
            Err(_) => std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(to)
                .map_err(failed)?,
        };
        Ok(Self {
            to: file,
            name: to.to_owned(),
            failed: false,
        })
    }

    pub(super) fn write(&mut self, event: &Event<'_>) {
        let line = match event {
            Event::Started {
                run,
                start,
                controls,
            } => serde_json::json!({
                "event": "started", "run": run, "sequence": start.sequence, "hash": start.hash, "controls": controls,
            }),
            Event::Remark(text) => serde_json::json!({ "event": "remark", "text": text }),
            Event::Cut(stream) => {
                serde_json::json!({ "event": "output-cut", "stream": stream.as_str() })
            }
            Event::Denied(list) => {
                let calls: BTreeMap<_, _> = list.iter().map(|it| (&it.call, it.count)).collect();
                serde_json::json!({ "event": "denied-calls", "calls": calls })
            }
            // The end is written once the exit status is decided.
            Event::Recorded { .. } | Event::Ended { .. } => return,
        };
        self.line(&line);
    }

    pub(super) fn end(&mut self, finished: &Finished) {
        let result = &finished.body.result;
        self.line(&serde_json::json!({
            "event": "ended",
            "start": finished.start.sequence,
            "sequence": finished.end.sequence,
            "hash": finished.end.hash,
            "outcome": result.outcome,
            "reason": result.reason,
            "exitCode": result.exit_code,
            "signal": result.signal,
            "verdict": finished.body.verdict,
            "status": status(finished),
        }));
    }

    fn line(&mut self, value: &serde_json::Value) {
        if self.failed {
            return;
        }
        let line = format!("{value}\n");
        if let Err(error) = write_until(self.to.as_fd(), line.as_bytes(), report::patience()) {
            self.failed = true;
            report::warning_line(&format!("cannot write events to {}: {error}", self.name));
        }
    }
}

fn open_descriptor(number: i32) -> io::Result<std::fs::File> {
    let owned = crate::sys::descriptor::take_planted(number)?;
    Ok(std::fs::File::from(owned))
}
