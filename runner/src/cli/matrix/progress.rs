//! What goes on, while it does.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::cli::report;
use crate::measure::lanes::Progress;

/// How long a measurement goes on before its progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// One line on a terminal that says what is being done, once it takes a while.
pub(super) struct ProgressLine {
    began: Instant,
    quiet: bool,
    on: bool,
    shown: bool,
}

impl ProgressLine {
    /// Where no line shows what goes on, that something does.
    pub(super) fn begin(&self, runtime: &str) {
        if !self.quiet && !self.on {
            report::notice_line(&format!("measuring {runtime}"));
        }
    }

    pub(super) fn new(quiet: bool) -> Self {
        Self {
            began: Instant::now(),
            quiet,
            on: !quiet && io::stderr().is_terminal(),
            shown: false,
        }
    }

    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        if !self.on || self.began.elapsed() < PATIENCE {
            return;
        }
        self.shown = true;
        let Progress {
            runtime,
            under_way,
            done,
            all,
        } = progress;
        // What has begun last, as it shows that things go on.
        let last = under_way.last().map_or_else(String::new, |(probe, arm)| {
            let others = match under_way.len() {
                0 | 1 => String::new(),
                more => format!(" and {} more under way", more - 1),
            };
            format!(", {probe} ({arm}){others}")
        });
        // A terminal that is gone is no reason to fail.
        let _ = write!(
            io::stderr(),
            "\r\u{1b}[Kmeasuring {runtime}: {done} of {all} done{last}"
        );
    }

    pub(super) fn clear(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
            self.shown = false;
        }
    }
}
