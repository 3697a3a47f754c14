//! `verify explain`: what a finding code means.

use ledger::finding::{Class, Code};

use super::arguments::{Cli, Format};
use super::error::VerifyError;
use super::output::give;

/// Pages of docs/codes, by code.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// A code as JSON.
#[derive(Debug, serde::Serialize)]
struct Explained {
    code: Code,
    severity: Class,
    meaning: &'static str,
    page: Option<&'static str>,
}

impl Explained {
    fn of(code: Code) -> Self {
        Self {
            code,
            severity: code.class(),
            meaning: code.meaning(),
            page: page(code),
        }
    }
}

pub(super) fn explain(cli: &Cli, code: Option<&str>) -> Result<u8, VerifyError> {
    let code = code.map(str::parse::<Code>).transpose()?;
    let line = |code: &Code| {
        let class = code.class().as_str();
        format!("{code:<28} {class:<13} {}\n", code.meaning())
    };
    give(cli, |format, _| match (format, code) {
        (Format::Json, Some(code)) => serde_json::to_string(&Explained::of(code)).map(ended),
        (Format::Json, None) => {
            let all: Vec<_> = Code::ALL.iter().copied().map(Explained::of).collect();
            serde_json::to_string(&all).map(ended)
        }
        (Format::Human, Some(code)) => Ok(page(code).map_or_else(
            || format!("# {code}\n\n{}\n", code.meaning()),
            str::to_owned,
        )),
        (Format::Human, None) => Ok(Code::ALL.iter().map(line).collect()),
    })?;
    Ok(0)
}

fn ended(json: String) -> String {
    json + "\n"
}

/// The page of a code, as in docs/codes.
fn page(code: Code) -> Option<&'static str> {
    PAGES
        .iter()
        .find_map(|(name, page)| (*name == code.as_str()).then_some(*page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let missing: Vec<_> = Code::ALL
            .iter()
            .filter(|code| page(**code).is_none())
            .map(|code| code.as_str())
            .collect();
        assert!(
            missing.is_empty(),
            "pages missing in docs/codes: {missing:?}"
        );
        for (name, page) in PAGES {
            assert!(
                name.parse::<Code>().is_ok(),
                "docs/codes/{name}.md explains no code"
            );
            assert!(
                page.contains(name),
                "docs/codes/{name}.md does not name its code"
            );
        }
    }
}
