//! The report for people: the verdict first, then what it rests on, then what was found.
//!
//! Everything that comes from the ledger or a file name is hostile text: control characters are
//! written out, so that a record cannot paint over the report about it.

use std::fmt::{self, Write as _};

use ledger::facts::matrix::table::Tone;
use ledger::file::walk::{Assured, CompleteBy};
use ledger::finding::{Class, Finding};

use crate::rules::{CheckStatus, Verification};
use ledger::bytes::text::clean;

/// Findings of one code that are shown unless all are asked for.
const SHOWN_PER_CODE: usize = 3;

/// How to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// With terminal colours.
    pub color: bool,
    /// Every finding, every check with its number, and what was denied.
    pub all: bool,
    /// The verdict line alone.
    pub quiet: bool,
}

/// Writes the report.
#[must_use]
pub fn write(verification: &Verification, style: Style) -> String {
    let mut report = Report {
        text: String::new(),
        style,
    };
    // Writing to a String cannot fail.
    let _ = report.verdict(verification);
    if !style.quiet {
        let _ = report.assurances(verification);
        let _ = report.checks(verification);
        let _ = report.denied(verification);
        let _ = report.findings(verification);
    }
    report.text
}

struct Report {
    text: String,
    style: Style,
}

impl Report {
    fn paint(&self, tone: Tone, text: &str) -> String {
        paint(self.style.color, tone, text)
    }

    fn verdict(&mut self, verification: &Verification) -> fmt::Result {
        let (color, word) = match verification.exit_code {
            0 => (Tone::Good, "VERIFIED"),
            10 => (Tone::Bad, "INVALID"),
            11 => (Tone::Unsure, "NOT PROVEN"),
            12 => (Tone::Bad, "DISAGREEMENT"),
            _ => (Tone::Unsure, "NO RECORDS"),
        };
        let word = self.paint(color, word);
        let withheld = verification.extract.map_or(0, |extract| extract.withheld);
        let mut records = counted(verification.records, "record", "records");
        if withheld > 0 {
            write!(records, " shown, {withheld} withheld")?;
        }
        let says = match verification.exit_code {
            0 if withheld > 0 => format!(
                "consistent among the {} shown; {withheld} withheld",
                counted(verification.records, "record", "records")
            ),
            0 => format!("{records}, and all of it holds"),
            10 => format!("{records}; the evidence is not what was written"),
            11 => format!("{records}; something cannot be proven"),
            12 => format!(
                "{records}; the evidence is valid, and what was declared and what happened disagree"
            ),
            _ => "an empty ledger shows nothing".to_owned(),
        };
        writeln!(self.text, "{word}  {says}")
    }

    fn assurances(&mut self, verification: &Verification) -> fmt::Result {
        if let (Some(ledger), Some(origin)) = (&verification.ledger, &verification.origin) {
            writeln!(self.text, "ledger {ledger} ({})", clean(origin))?;
        }
        if let Some((sequence, hash)) = &verification.head {
            writeln!(self.text, "head   {hash} (record {sequence})")?;
        }
        let lines = [
            (
                "integrity",
                verification.integrity,
                format!(
                    "{} of {} verified",
                    verification.verified,
                    counted(verification.records, "record", "records")
                ),
            ),
            ("identity", verification.identity, identity(verification)),
            (
                "completeness",
                verification.completeness.status,
                completeness(verification),
            ),
            (
                "consistency",
                verification.consistency,
                consistency(verification),
            ),
        ];
        for (name, assured, words) in lines {
            let (color, status) = match assured {
                Assured::Established => (Tone::Good, "established"),
                Assured::NotEstablished => (Tone::Unsure, "not established"),
                Assured::Broken => (Tone::Bad, "broken"),
            };
            let status = self.paint(color, &format!("{status:<15}"));
            writeln!(self.text, "  {name:<13} {status}  {words}")?;
        }
        Ok(())
    }

    fn checks(&mut self, verification: &Verification) -> fmt::Result {
        if self.style.all {
            for check in &verification.checks {
                let color = match check.status {
                    CheckStatus::Pass => Tone::Good,
                    CheckStatus::Fail => Tone::Bad,
                    CheckStatus::NotChecked => Tone::Unsure,
                };
                let status = self.paint(color, &format!("{:<11}", check.status.as_str()));
                writeln!(self.text, "  {:<13} {status}  {}", check.id, check.count)?;
            }
            return Ok(());
        }
        let skipped: Vec<_> = verification
            .checks
            .iter()
            .filter(|check| check.status == CheckStatus::NotChecked)
            .map(|check| check.id)
            .collect();
        if !skipped.is_empty() {
            writeln!(
                self.text,
                "not checked, for there was nothing to look at: {}",
                skipped.join(", ")
            )?;
        }
        Ok(())
    }

    /// The system calls that sandboxes denied; no verdict rests on them, so only who asks for all sees them.
    fn denied(&mut self, verification: &Verification) -> fmt::Result {
        let denials = &verification.denials;
        if !self.style.all || denials.heard + denials.unheard == 0 {
            return Ok(());
        }
        let heard = counted(denials.heard, "run", "runs");
        let what = match denials.calls.as_slice() {
            _ if denials.heard == 0 => "nobody listened",
            [] => "none",
            _ => "most often first",
        };
        write!(
            self.text,
            "\ndenied system calls in {heard} (probes not counted): {what}"
        )?;
        if denials.partly > 0 {
            let partly = denials.partly;
            write!(
                self.text,
                "; in {partly} of them a filter around the runner may have denied more"
            )?;
        }
        if denials.unheard > 0 {
            let others = counted(denials.unheard, "other run", "other runs");
            write!(self.text, "; of {others} it is not known")?;
        }
        writeln!(self.text)?;
        for denied in &denials.calls {
            let runs = counted(denied.runs, "run", "runs");
            writeln!(
                self.text,
                "  {:<24} {:>10}  in {runs}, the first of start {}",
                clean(&denied.call),
                denied.count,
                denied.first
            )?;
        }
        Ok(())
    }

    fn findings(&mut self, verification: &Verification) -> fmt::Result {
        let mut shown = std::collections::BTreeMap::<_, (usize, u64)>::new();
        for finding in &verification.findings {
            let (count, hidden) = shown.entry(finding.code).or_default();
            if *count < SHOWN_PER_CODE || self.style.all {
                *count += 1;
                self.finding(finding)?;
            } else {
                *hidden += finding.count;
            }
        }
        for (code, (_, hidden)) in shown {
            if hidden > 0 {
                writeln!(self.text, "\n{code}: {hidden} more, shown with --all")?;
            }
        }
        Ok(())
    }

    fn finding(&mut self, finding: &Finding) -> fmt::Result {
        let class = finding.code.class();
        let color = match class {
            Class::Invalid | Class::Disagreement => Tone::Bad,
            Class::Unproven => Tone::Unsure,
            Class::Observation => Tone::Plain,
        };
        let class = self.paint(color, class.as_str());
        let mut line = format!("\n{class}: {}", finding.code);
        if let Some(sequence) = finding.sequence {
            write!(line, ", record {sequence}")?;
        }
        if let Some(place) = &finding.place {
            write!(line, ", {}", clean(&place.file))?;
            if let Some(number) = place.line {
                write!(line, ":{number}")?;
            }
        }
        if finding.count > 1 {
            write!(line, " ({} times)", finding.count)?;
        }
        writeln!(self.text, "{line}\n  {}", clean(&finding.message))?;
        for (name, value) in [
            ("expected", &finding.expected),
            ("found", &finding.found),
            ("help", &finding.help),
        ] {
            if let Some(value) = value {
                writeln!(self.text, "  {name:<9} {}", clean(value))?;
            }
        }
        Ok(())
    }
}

/// The text in the colour of its tone.
#[must_use]
pub fn paint(color: bool, tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Unsure => "33",
        Tone::Plain => "1",
    };
    if color {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

fn identity(verification: &Verification) -> String {
    match verification.keys.as_slice() {
        [] => "no key is known".to_owned(),
        [key] => format!("key {}, by the ledger's own word", key.key.id()),
        [.., key] => format!(
            "{} keys by the ledger's own word, the active one {}",
            verification.keys.len(),
            key.key.id()
        ),
    }
}

fn completeness(verification: &Verification) -> String {
    let completeness = &verification.completeness;
    match (completeness.status, completeness.through, completeness.by) {
        (Assured::Broken, ..) => "a checkpoint says otherwise".to_owned(),
        (Assured::Established, Some(through), Some(by)) => {
            let by = match by {
                CompleteBy::Given => "the given checkpoint",
                CompleteBy::Witness => "a witness",
                CompleteBy::Closed => "closed by its key",
            };
            let as_of = completeness
                .as_of
                .map_or(String::new(), |time| format!(" as of {time}"));
            let after = match completeness.after {
                0 => String::new(),
                after => format!(
                    "; {} not covered",
                    counted(after, "later record is", "later records are")
                ),
            };
            format!("complete through {through}{as_of} ({by}){after}")
        }
        _ => match verification.extract {
            Some(extract) if extract.withheld > 0 => format!(
                "{} of the checkpoint's {} withheld",
                extract.withheld,
                counted(extract.shown + extract.withheld, "record", "records")
            ),
            _ => "nothing outside the ledger says how long it should be".to_owned(),
        },
    }
}

fn consistency(verification: &Verification) -> String {
    match verification.runs {
        0 => "no run to compare".to_owned(),
        runs => format!(
            "{} compared with what was declared",
            counted(runs, "run", "runs")
        ),
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
