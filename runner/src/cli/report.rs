//! What people read: one style for errors, notices and lists.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ledger::bytes::text::{clean, clean_lines};
use ledger::facts::policy::ReadPolicyError;

use super::ColorChoice;
use crate::run::{moment_in, write_until};

static COLOR: AtomicBool = AtomicBool::new(false);

/// Decides about colour once: the flag, then NO_COLOR (no-color.org), FORCE_COLOR, then the terminal.
pub(super) fn set_color(choice: ColorChoice) {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let on = match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        ColorChoice::Auto => is_set("FORCE_COLOR") || std::io::stderr().is_terminal(),
    };
    COLOR.store(on, Ordering::Relaxed);
    let _ = miette::set_hook(Box::new(move |_| {
        let theme = if on {
            miette::GraphicalTheme::unicode()
        } else {
            miette::GraphicalTheme::unicode_nocolor()
        };
        Box::new(
            miette::MietteHandlerOpts::new()
                .graphical_theme(theme)
                .width(100)
                .build(),
        )
    }));
}

fn paint(code: &str, text: &str) -> String {
    if COLOR.load(Ordering::Relaxed) {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// Text for standard output, coloured where that is a terminal or colour is asked for.
pub(super) fn paint_stdout(code: &str, text: &str) -> String {
    let forced = !std::io::stderr().is_terminal();
    if std::io::stdout().is_terminal() || (forced && COLOR.load(Ordering::Relaxed)) {
        paint(code, text)
    } else {
        text.to_owned()
    }
}

/// A line about something that went wrong, with lines below it that begin with two spaces.
pub(super) fn error_line(text: &str) {
    line(&format!("{} {}", paint("1;31", "runner:"), indented(text)));
}

/// A line that matters even with -q.
pub(super) fn warning_line(text: &str) {
    line(&format!("{} {}", paint("1;33", "runner:"), clean(text)));
}

/// A line of prose.
pub(super) fn notice_line(text: &str) {
    line(&format!("{} {}", paint("1;36", "runner:"), clean(text)));
}

/// The text with its line ends written out but for those that begin a line of our own: no name of a file or program makes a line
/// that could be taken for another message.
fn indented(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut shown = clean(lines.next().unwrap_or_default());
    for line in lines {
        shown.push_str(if line.starts_with("  ") {
            "\n"
        } else {
            "\\u{a}"
        });
        shown.push_str(&clean(line));
    }
    shown
}

/// How long to wait for readers, in nanoseconds: from the moment of writing on.
static WITHIN: AtomicU64 = AtomicU64::new(0);
/// Until when to wait for them, in nanoseconds since boot. Where both are 0, for ever.
static UNTIL: AtomicU64 = AtomicU64::new(0);

fn nanoseconds(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// From now on readers of stderr, and of events, are waited for so long each time.
pub(super) fn wait_within(time: Duration) {
    WITHIN.store(nanoseconds(Some(time)), Ordering::Relaxed);
}

/// From now on they are waited for until `until` (time since boot), or for ever.
pub(super) fn wait_until(until: Option<Duration>) {
    WITHIN.store(0, Ordering::Relaxed);
    UNTIL.store(nanoseconds(until), Ordering::Relaxed);
}

/// Until when to wait for a reader now.
pub(super) fn patience() -> Option<Duration> {
    let load = |from: &AtomicU64| match from.load(Ordering::Relaxed) {
        0 => None,
        nanoseconds => Some(Duration::from_nanos(nanoseconds)),
    };
    load(&WITHIN).map_or_else(|| load(&UNTIL), moment_in)
}

/// Writes to stderr; one that is closed, or that nobody reads, is no reason to fail.
fn line(text: &str) {
    let stderr = std::io::stderr();
    let _ = match patience() {
        None => writeln!(stderr.lock(), "{text}"),
        until => write_until(stderr.as_fd(), format!("{text}\n").as_bytes(), until),
    };
}

/// An error with its code, causes, place and help.
pub(super) fn diagnostic(error: impl miette::Diagnostic + Send + Sync + 'static) {
    let text = format!("{:?}", miette::Report::new(error));
    line(&clean_but_colour(&text));
}

/// As [`clean_lines`], but the theme's own colours stay; paths and arguments in an error can bring no more than those.
fn clean_but_colour(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut shown = clean_lines(parts.next().unwrap_or_default());
    for part in parts {
        let is_colour = |c: char| c.is_ascii_digit() || c == ';';
        let rest = part.trim_start_matches(is_colour);
        let colour = part.get(..part.len() - rest.len()).unwrap_or_default();
        match rest.strip_prefix('m') {
            Some(rest) if COLOR.load(Ordering::Relaxed) => {
                shown.push_str(&format!("\u{1b}[{colour}m{}", clean_lines(rest)));
            }
            _ => shown.push_str(&clean_lines(&format!("\u{1b}[{part}"))),
        }
    }
    shown
}

/// Help, the version, or what is wrong with a command line. A closed stream is no reason to fail.
pub(super) fn usage(error: &clap::Error) {
    let text = error.render();
    let text = if COLOR.load(Ordering::Relaxed) {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    if error.use_stderr() {
        let _ = write!(std::io::stderr(), "{}", clean_but_colour(&text));
    } else {
        print(&text);
    }
}

/// Every mistake of a policy, each with its place in the document.
pub(super) fn policy_error(error: ReadPolicyError) {
    for problem in error.into_problems() {
        diagnostic(problem);
    }
}

/// Whether something that was to be printed is lost.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether output could not be written, though somebody was there to read it.
pub(super) fn output_is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Writes machine output; `false` when it cannot be written. A reader that is gone wants no more, and nothing is said of it;
/// anything else is said once, and is a failure of the command ([`output_is_lost`]).
pub(super) fn print(text: &str) -> bool {
    let mut stdout = std::io::stdout();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    let Err(error) = written else { return true };
    if error.kind() != ErrorKind::BrokenPipe {
        output_failed(&format!("cannot write to standard output: {error}"));
    }
    false
}

/// Says, once, why output is lost.
pub(super) fn output_failed(why: &str) {
    if !LOST.swap(true, Ordering::Relaxed) {
        error_line(why);
    }
}

/// Writes one JSON document and a newline.
pub(super) fn print_json<T: serde::Serialize>(value: &T) -> bool {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(&format!("{text}\n")),
        Err(error) => {
            output_failed(&format!("cannot write JSON: {error}"));
            false
        }
    }
}
