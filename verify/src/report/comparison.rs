//! A comparison of matrices for people, in 80 columns.

use std::fmt::{self, Write as _};

use ledger::bytes::text::excerpt;
use ledger::facts::matrix::CellVerdict;
use ledger::facts::matrix::table::{Row, Tone};
use ledger::finding::Code;

use super::human::paint;
use crate::diff::{Change, Comparison};

/// Columns of a value that stands after its side's letter.
const VALUE: usize = 72;

/// Writes the comparison: the verdict, which `sides` were compared, the fingerprints, then every cell that is not the
/// same.
#[must_use]
pub fn write(comparison: &Comparison<'_>, sides: &str, color: bool, quiet: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = report(&mut text, comparison, sides, color, quiet);
    text
}

fn report(
    text: &mut String,
    comparison: &Comparison<'_>,
    sides: &str,
    color: bool,
    quiet: bool,
) -> fmt::Result {
    let regressed = comparison.count(Change::Regressed) > 0;
    let (tone, word) = if regressed {
        (Tone::Bad, "REGRESSED")
    } else {
        (Tone::Good, "NO REGRESSION")
    };
    let counts: Vec<_> = Change::ALL
        .into_iter()
        .map(|change| (comparison.count(change), change))
        .filter(|(count, _)| *count > 0)
        .map(|(count, change)| format!("{count} {}", change.as_str()))
        .collect();
    let word = paint(color, tone, word);
    writeln!(text, "{word}  {}", counts.join(", "))?;
    if quiet {
        return Ok(());
    }
    text.push_str(sides);
    if comparison.fingerprints.is_empty() {
        writeln!(text, "same host, policy, suite and runtimes")?;
    } else {
        writeln!(text, "\nnot the same:")?;
    }
    for difference in &comparison.fingerprints {
        writeln!(text, "  {}", excerpt(&difference.what, VALUE))?;
        for (side, value) in [("A", &difference.a), ("B", &difference.b)] {
            let value = value.as_deref().unwrap_or("(not there)");
            writeln!(text, "    {side} {}", excerpt(value, VALUE))?;
        }
    }
    let mut before = None;
    for pair in &comparison.cells {
        let (Some(row), true) = (pair.either(), pair.change != Change::Same) else {
            continue;
        };
        if before.replace(pair.change) != Some(pair.change) {
            let title = paint(color, tone_of(pair.change), pair.change.as_str());
            let more = match pair.change {
                Change::Regressed => format!(" (`verify explain {}`)", Code::Regression),
                _ => String::new(),
            };
            writeln!(text, "\n{title}{more}")?;
        }
        let (runtime, check) = (excerpt(&row.runtime, 24), excerpt(&row.check, 48));
        writeln!(text, "  {runtime} {check}")?;
        for (side, row) in [("A", pair.a), ("B", pair.b)] {
            if let Some(row) = row {
                found(text, side, row, color)?;
            }
        }
    }
    Ok(())
}

fn found(text: &mut String, side: &str, row: &Row, color: bool) -> fmt::Result {
    let mut words = format!("{} {}", row.verdict.glyph(), row.verdict);
    if let Some(reason) = row.reason {
        words.push_str(&format!(": {reason}"));
    }
    let declared = if row.declared {
        "declared"
    } else {
        "not declared"
    };
    let words = paint(color, row.verdict.tone(), &words);
    writeln!(text, "    {side} {words}, {declared}")?;
    if row.verdict != CellVerdict::Contained {
        writeln!(text, "        {}", excerpt(&row.detail, VALUE))?;
    }
    Ok(())
}

const fn tone_of(change: Change) -> Tone {
    match change {
        Change::Regressed => Tone::Bad,
        Change::Improved => Tone::Good,
        Change::Changed | Change::OnlyA | Change::OnlyB => Tone::Unsure,
        Change::Same => Tone::Plain,
    }
}
