//! `verify matrix` and `verify diff`: what was measured, from ledgers that were checked whole first.

use std::path::{Path, PathBuf};

use ledger::facts::matrix::table::Tone;

use super::arguments::{Cli, Format};
use super::error::VerifyError;
use super::output::give;
use super::{style, verified};
use crate::diff::{Change, compare};
use crate::document::{ComparisonDocument, Document};
use crate::report::{comparison, human};
use crate::rules::Verification;

/// The evidence is not what was written: nothing in it is shown.
const INVALID: u8 = 10;
/// It cannot be proven.
const UNPROVEN: u8 = 11;
/// It is valid, and something disagrees.
const DISAGREEMENT: u8 = 12;
/// There is nothing to look at.
const NOTHING: u8 = 13;

/// What a ledger comes to when its matrices are asked for.
fn code_of(verification: &Verification) -> u8 {
    match verification.exit_code {
        0 if verification.matrices.is_empty() => NOTHING,
        code => code,
    }
}

/// The worst first: 10, 11, 12, then nothing at all.
fn worst(codes: impl IntoIterator<Item = u8>) -> u8 {
    let order = |code: &u8| match code {
        0 => u8::MAX,
        code => *code,
    };
    codes.into_iter().min_by_key(order).unwrap_or(0)
}

pub(super) fn matrix(cli: &Cli, paths: &[PathBuf]) -> Result<u8, VerifyError> {
    if let (Some(_), true) = (&cli.checkpoint, paths.len() > 1) {
        return Err(VerifyError::OneCheckpoint);
    }
    let inputs = paths.iter().filter(|path| *path == Path::new("-"));
    if inputs.count() > 1 {
        return Err(VerifyError::OneInput);
    }
    let mut all = Vec::new();
    for path in paths {
        all.push((path.as_path(), verified(cli, path, true)?));
    }
    give(cli, |format, color| {
        let mut text = String::new();
        for (at, (path, verification)) in all.iter().enumerate() {
            match format {
                Format::Json => text.push_str(&json_of(verification)?),
                Format::Human => {
                    if at > 0 {
                        text.push('\n');
                    }
                    let named = (all.len() > 1).then_some(*path);
                    text.push_str(&text_of(cli, named, verification, color));
                }
            }
        }
        Ok(text)
    })?;
    Ok(worst(all.iter().map(|(_, it)| code_of(it))))
}

/// A document for each matrix, a line each; where nothing may be shown, why.
fn json_of(verification: &Verification) -> Result<String, serde_json::Error> {
    if verification.exit_code == INVALID || verification.matrices.is_empty() {
        return Document::of(verification).to_json();
    }
    let tables = verification.matrices.iter();
    tables.map(|table| table.to_json()).collect()
}

fn text_of(cli: &Cli, path: Option<&Path>, verification: &Verification, color: bool) -> String {
    let mut text = path.map_or_else(String::new, |path| format!("{}\n", clean(path)));
    let mut style = style(cli, color);
    if verification.exit_code == INVALID {
        text.push_str(&human::write(verification, style));
        return text;
    }
    style.quiet = true;
    text.push_str(&human::write(verification, style));
    if verification.matrices.is_empty() {
        text.push_str("no matrix: `runner matrix` measures one\n");
    }
    if cli.quiet {
        return text;
    }
    let paint = |tone: Tone, words: &str| human::paint(color, tone, words);
    for table in &verification.matrices {
        text.push('\n');
        text.push_str(&table.to_text(&paint));
    }
    text
}

fn clean(path: &Path) -> String {
    ledger::bytes::text::clean(&path.display().to_string())
}

pub(super) fn diff(cli: &Cli, a: &Path, b: &Path) -> Result<u8, VerifyError> {
    if cli.checkpoint.is_some() {
        return Err(VerifyError::OneCheckpoint);
    }
    if [a, b].into_iter().all(|path| path == Path::new("-")) {
        return Err(VerifyError::OneInput);
    }
    let sides = [("A", a), ("B", b)];
    let [left, right] = [verified(cli, a, true)?, verified(cli, b, true)?];
    let found = [&left, &right];
    // That a ledger disagrees with itself is `verify`'s to say; here the two are compared.
    let codes = found.map(|it| match code_of(it) {
        DISAGREEMENT if it.matrices.is_empty() => NOTHING,
        DISAGREEMENT => 0,
        code => code,
    });
    let stops = |code: u8, it: &Verification| code == INVALID || it.matrices.is_empty();
    if codes.iter().zip(found).any(|(code, it)| stops(*code, it)) {
        let why: Vec<_> = sides
            .iter()
            .zip(codes.iter().zip(found))
            .filter(|(_, (code, it))| stops(**code, it))
            .map(|((name, path), (code, _))| match *code {
                INVALID => format!("{name} ({}) is invalid; `verify` says why", clean(path)),
                _ => format!("{name} ({}) holds no matrix", clean(path)),
            })
            .collect();
        let why = why.join("; ");
        let code = worst(codes);
        give(cli, |format, _| match format {
            Format::Json => ComparisonDocument::of_failure(code, &why).to_json(),
            Format::Human => Ok(format!("NOT COMPARED  {why}\n")),
        })?;
        return Ok(code);
    }
    let compared = compare(&left.matrices, &right.matrices);
    let regressed = compared.count(Change::Regressed) > 0;
    let code = worst([if regressed { DISAGREEMENT } else { 0 }, worst(codes)]);
    give(cli, |format, color| match format {
        Format::Json => ComparisonDocument::of(&compared, code).to_json(),
        Format::Human => {
            let of = |((name, path), found): (&(&str, &Path), &u8)| {
                let unproven = match *found {
                    UNPROVEN => "  NOT PROVEN; `verify` says why",
                    _ => "",
                };
                format!("{name}  {}{unproven}\n", clean(path))
            };
            let sides: String = sides.iter().zip(&codes).map(of).collect();
            Ok(comparison::write(&compared, &sides, color, cli.quiet))
        }
    })?;
    Ok(code)
}
