//! The result as one JSON document, also on failure (DESIGN.md §6).

mod comparison;

pub use comparison::ComparisonDocument;

use ledger::file::walk::Assured;
use ledger::finding::{Class, Code, Finding, Place};
use ledger::record::Custody;
use serde::Serialize;

use crate::rules::{Denials, Verification};
use ledger::bytes::text::clean;

/// The document; its fields are an API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    schema: &'static str,
    exit_code: u8,
    ledger: Option<String>,
    records: u64,
    /// Records of a bundle's ledger that it does not show; only for a bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<u64>,
    head: Option<Head>,
    assurance: Assurance,
    checks: Vec<Check>,
    /// System calls that were denied, most often first; absent where there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<Denied>,
    findings: Vec<Problem>,
    /// Why there is no result, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Head {
    sequence: u64,
    hash: String,
}

#[derive(Debug, Serialize)]
struct Assurance {
    integrity: Status,
    identity: Identity,
    completeness: Completeness,
    consistency: Status,
}

#[derive(Debug, Serialize)]
struct Status {
    status: &'static str,
}

#[derive(Debug, Serialize)]
struct Identity {
    status: &'static str,
    keys: Vec<Key>,
}

#[derive(Debug, Serialize)]
struct Key {
    key: String,
    custody: Custody,
    from: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Completeness {
    status: &'static str,
    through: Option<u64>,
    after: u64,
    as_of: Option<String>,
    by: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Check {
    id: &'static str,
    status: &'static str,
    count: u64,
}

#[derive(Debug, Serialize)]
struct Denied {
    heard: u64,
    partly: u64,
    unheard: u64,
    calls: Vec<DeniedCall>,
}

#[derive(Debug, Serialize)]
struct DeniedCall {
    call: String,
    count: u64,
    runs: u64,
    first: u64,
}

impl Denied {
    fn of(denials: &Denials) -> Self {
        let call = |denied: &crate::rules::Denied| DeniedCall {
            call: clean(&denied.call),
            count: denied.count,
            runs: denied.runs,
            first: denied.first,
        };
        Self {
            heard: denials.heard,
            partly: denials.partly,
            unheard: denials.unheard,
            calls: denials.calls.iter().map(call).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Problem {
    code: Code,
    severity: Class,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
    count: u64,
}

const SCHEMA: &str = "verify/result/v1";

impl Document {
    /// The document of a ledger that was read to its end.
    #[must_use]
    pub fn of(verification: &Verification) -> Self {
        let completeness = &verification.completeness;
        let status = |assured: Assured| Status {
            status: assured.as_str(),
        };
        let check = |check: &crate::rules::Check| Check {
            id: check.id,
            status: check.status.as_str(),
            count: check.count,
        };
        Self {
            schema: SCHEMA,
            exit_code: verification.exit_code,
            ledger: verification.ledger.map(|id| id.to_string()),
            records: verification.records,
            withheld: verification.extract.map(|extract| extract.withheld),
            head: verification.head.map(|(sequence, hash)| Head {
                sequence,
                hash: hash.to_string(),
            }),
            assurance: Assurance {
                integrity: status(verification.integrity),
                identity: Identity {
                    status: verification.identity.as_str(),
                    keys: verification
                        .keys
                        .iter()
                        .map(|active| Key {
                            key: active.key.id().to_string(),
                            custody: active.custody,
                            from: active.from,
                        })
                        .collect(),
                },
                completeness: Completeness {
                    status: completeness.status.as_str(),
                    through: completeness.through,
                    after: completeness.after,
                    as_of: completeness.as_of.map(|time| time.to_string()),
                    by: completeness.by.map(|by| by.as_str()),
                },
                consistency: status(verification.consistency),
            },
            checks: verification.checks.iter().map(check).collect(),
            denied: Some(Denied::of(&verification.denials)),
            findings: verification.findings.iter().map(Problem::of).collect(),
            error: None,
        }
    }

    /// The document when nothing could be said about a ledger.
    #[must_use]
    pub fn of_failure(exit_code: u8, error: &str) -> Self {
        let nothing = Assured::NotEstablished.as_str();
        Self {
            schema: SCHEMA,
            exit_code,
            ledger: None,
            records: 0,
            withheld: None,
            head: None,
            assurance: Assurance {
                integrity: Status { status: nothing },
                identity: Identity {
                    status: nothing,
                    keys: Vec::new(),
                },
                completeness: Completeness {
                    status: nothing,
                    through: None,
                    after: 0,
                    as_of: None,
                    by: None,
                },
                consistency: Status { status: nothing },
            },
            checks: Vec::new(),
            denied: None,
            findings: Vec::new(),
            error: Some(clean(error)),
        }
    }

    /// One line of JSON, with its newline.
    ///
    /// # Errors
    /// None that these types can cause.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|json| json + "\n")
    }
}

impl Problem {
    fn of(finding: &Finding) -> Self {
        let cleaned = |text: &Option<String>| text.as_deref().map(clean);
        Self {
            code: finding.code,
            severity: finding.code.class(),
            message: clean(&finding.message),
            sequence: finding.sequence,
            place: finding.place.as_ref().map(|place| Place {
                file: clean(&place.file),
                line: place.line,
            }),
            expected: cleaned(&finding.expected),
            found: cleaned(&finding.found),
            help: cleaned(&finding.help),
            count: finding.count,
        }
    }
}
