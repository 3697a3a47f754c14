//! A matrix for people, in 80 columns: glyph, word and colour, never colour alone.

use std::fmt::Write as _;

use ledger::bytes::text::clean_lines;
use ledger::facts::matrix::CellVerdict;

use crate::measure::cells::Shown;

/// Columns of a line.
const WIDTH: usize = 80;
/// Where the names of checks begin.
const NAMES: usize = 47;

/// Glyph, word and colour (ANSI SGR) of a verdict.
const fn look(verdict: CellVerdict) -> (&'static str, &'static str, &'static str) {
    match verdict {
        CellVerdict::Contained => ("✔", "contained", "32"),
        CellVerdict::Escaped => ("✖", "escaped", "33"),
        CellVerdict::FalseGuarantee => ("‼", "FALSE GUARANTEE", "1;31"),
        CellVerdict::Inconclusive => ("?", "inconclusive", "35"),
        CellVerdict::NotApplicable => ("–", "not applicable", "2"),
    }
}

/// The table of one runtime; `paint` colours a text.
pub(super) fn table(
    runtime: &str,
    cells: &[Shown],
    paint: &dyn Fn(&str, &str) -> String,
) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}",
        paint("1", &format!("{runtime}: {}", summary(cells)))
    );
    let mut controls: Vec<&str> = Vec::new();
    for cell in cells {
        if !controls.contains(&cell.control()) {
            controls.push(cell.control());
        }
    }
    for control in controls {
        let of: Vec<&Shown> = cells
            .iter()
            .filter(|cell| cell.control() == control)
            .collect();
        let declared = if of.iter().any(|cell| cell.cell.declared) {
            "declared"
        } else {
            "not declared"
        };
        let mut begin = format!("  {control:<12} {declared:<13}");
        for verdict in CellVerdict::ALL {
            let names: Vec<&str> = of
                .iter()
                .filter(|cell| cell.cell.verdict == *verdict)
                .map(|cell| cell.check())
                .collect();
            if names.is_empty() {
                continue;
            }
            let (glyph, word, color) = look(*verdict);
            let shown = paint(color, &format!("{glyph} {word:<15}"));
            for (at, line) in wrap(&names.join(" "), WIDTH - NAMES).iter().enumerate() {
                let _ = match at {
                    0 => writeln!(text, "{begin} {shown} {line}"),
                    _ => writeln!(text, "{:NAMES$}{line}", ""),
                };
            }
            begin = " ".repeat(begin.chars().count());
        }
    }
    let open: Vec<&Shown> = cells
        .iter()
        .filter(|cell| cell.cell.verdict != CellVerdict::Contained)
        .collect();
    if !open.is_empty() {
        let _ = writeln!(text, "\n  Not contained:");
    }
    for cell in open {
        details(&mut text, cell, paint);
    }
    text
}

fn details(text: &mut String, shown: &Shown, paint: &dyn Fn(&str, &str) -> String) {
    let (glyph, word, color) = look(shown.cell.verdict);
    let reason = shown
        .cell
        .reason
        .map_or_else(String::new, |reason| format!(" ({reason})"));
    let head = paint(
        color,
        &format!("{glyph} {} {word}{reason}", shown.cell.check),
    );
    let _ = writeln!(text, "  {head}");
    let declared = match (&shown.undeclared, shown.cell.declared) {
        (_, true) => "declared".to_owned(),
        (Some(why), false) => format!("not declared: {why}"),
        (None, false) => "not declared".to_owned(),
    };
    let mut lines = vec![declared];
    if !shown.detail.is_empty() {
        lines.push(format!("seen: {}", clean_lines(&shown.detail)));
    }
    if let Some(advice) = shown.what_to_do() {
        lines.push(format!("to do: {advice}"));
    }
    for line in lines {
        for (at, part) in wrap(&line, WIDTH - 8).iter().enumerate() {
            let indent = if at == 0 { 6 } else { 8 };
            let _ = writeln!(text, "{:indent$}{part}", "");
        }
    }
}

/// `31 contained, 4 escaped`.
pub(super) fn summary(cells: &[Shown]) -> String {
    let counts = CellVerdict::ALL.iter().filter_map(|verdict| {
        let count = cells
            .iter()
            .filter(|cell| cell.cell.verdict == *verdict)
            .count();
        let (_, word, _) = look(*verdict);
        (count > 0).then(|| format!("{count} {}", word.to_lowercase()))
    });
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() {
        "nothing measured".to_owned()
    } else {
        counts.join(", ")
    }
}

/// Breaks a text at spaces; a word that is longer than a line is broken where the line ends.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        loop {
            let space = usize::from(used > 0);
            let fits = used + space + rest.len() <= width;
            if !fits && used > 0 {
                lines.push(String::new());
                used = 0;
                continue;
            }
            let take = rest.len().min(width);
            if let Some(line) = lines.last_mut() {
                if space == 1 {
                    line.push(' ');
                }
                line.extend(rest.drain(..take));
            }
            used += space + take;
            if rest.is_empty() {
                break;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::facts::matrix::{Cell, CellReason};

    fn shown(
        check: &str,
        declared: bool,
        verdict: CellVerdict,
        reason: Option<CellReason>,
    ) -> Shown {
        Shown {
            cell: Cell {
                ablation: None,
                baseline: None,
                check: check.to_owned(),
                declared,
                reason,
                run: None,
                runtime: "embedded".to_owned(),
                verdict,
            },
            detail: "ENETUNREACH, 127.0.0.1:4711 and a long explanation of what was seen that does not fit".to_owned(),
            undeclared: (!declared).then(|| "needs-resource-groups".to_owned()),
        }
    }

    #[test]
    fn a_table_fits_80_columns_and_says_all_without_colour() {
        let cells = [
            shown("network/tcp4", true, CellVerdict::Contained, None),
            shown("network/udp4", true, CellVerdict::FalseGuarantee, None),
            shown(
                "network/tcp6",
                true,
                CellVerdict::NotApplicable,
                Some(CellReason::HostForbids),
            ),
            shown("memory/touch", false, CellVerdict::Escaped, None),
        ];
        let text = table("embedded", &cells, &|_, text| text.to_owned());
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line:?}");
        }
        let expected = "\
embedded: 1 contained, 1 escaped, 1 false guarantee, 1 not applicable
  network      declared      ✔ contained       tcp4
                             ‼ FALSE GUARANTEE udp4
                             – not applicable  tcp6
  memory       not declared  ✖ escaped         touch

  Not contained:
  ‼ network/udp4 FALSE GUARANTEE
      declared
      seen: ENETUNREACH, 127.0.0.1:4711 and a long explanation of what was
        seen that does not fit
      to do: do not rely on this control in this runtime here; report it, the
        record is the evidence
";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("not declared: needs-resource-groups"),
            "{text}"
        );
        let coloured = table("embedded", &cells, &|color, text| {
            format!("<{color}>{text}</>")
        });
        assert!(
            coloured.contains("<1;31>‼ FALSE GUARANTEE</>"),
            "{coloured}"
        );
    }

    #[test]
    fn long_words_are_broken_and_nothing_is_lost() {
        let text = format!("a {} b", "x".repeat(50));
        let lines = wrap(&text, 20);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 20),
            "{lines:?}"
        );
        let letters: String = lines.concat().chars().filter(|c| *c != ' ').collect();
        assert_eq!(letters, text.replace(' ', ""));
    }
}
