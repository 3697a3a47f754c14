//! Small text forms: each has exactly one spelling for each value.

use std::fmt::Display;
use std::str::FromStr;

use ledger::bytes::hash::Hash;
use ledger::bytes::key::{Base64, KeyId, Signature};
use ledger::bytes::time::{BootId, Timestamp};
use ledger::facts::control::Control;
use ledger::facts::execution::RunId;
use ledger::finding::Code;
use ledger::record::Origin;

use crate::engine::{Checked, Outcome, Target, hold};

const VALID: &[&str] = &[
    "2026-11-29T21:22:00.123456Z",
    "0000-01-01T00:00:00.000000Z",
    "9999-12-31T23:59:59.999999Z",
    "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f",
    "network",
    "chain-previous-mismatch",
    "example.com/ledger/host-1",
    "07070707070707070707070707070707",
    "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c",
    "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
    "i8APewVWHdZXY/+z9E0WgayE54ndyPWkrPiXjDmh6gAxROBoVdweAsB0fZCc5geq5i9D3vbM92M2ltruUw1TDg==",
];
const WORDS: &[&str] = &[
    "2026",
    "-11-29",
    "T",
    "21:22:00",
    "23:59:60",
    ".123456",
    "Z",
    "z",
    "+00:00",
    "-0001",
    "+2026",
    "02-29",
    "a",
    "f",
    "F",
    "0",
    "-",
    "_",
    "/",
    ".",
    "+",
    "=",
    "==",
    "AAAA",
    "SSHSIG",
    "DSSEv1",
    "cosignature/",
    "containment-ledger/",
    "subtree/",
];

#[test]
fn texts() {
    crate::run(Target {
        name: "texts",
        valid: VALID.iter().map(|text| text.as_bytes().to_vec()).collect(),
        words: WORDS,
        shape: |_, _| None,
        check,
    });
}

fn check(bytes: &[u8]) -> Checked {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Outcome::refused("not text");
    };
    let mut read = Vec::new();
    one::<Timestamp>("time", text, &mut read)?;
    one::<BootId>("boot id", text, &mut read)?;
    one::<Hash>("hash", text, &mut read)?;
    one::<KeyId>("key id", text, &mut read)?;
    one::<RunId>("run", text, &mut read)?;
    one::<Signature>("signature", text, &mut read)?;
    one::<Base64<32>>("32 bytes", text, &mut read)?;
    one::<Code>("code", text, &mut read)?;
    one::<Control>("control", text, &mut read)?;
    if let Ok(origin) = one_of::<Origin>("origin", text, &mut read)? {
        hold!(
            origin.as_str() == text,
            "origin: read as {}",
            origin.as_str()
        );
    }
    if read.is_empty() {
        return Outcome::refused("no form");
    }
    Ok(Outcome::accepted(&read.join(" ")))
}

fn one<T>(form: &'static str, text: &str, read: &mut Vec<&'static str>) -> Result<(), String>
where
    T: FromStr<Err: Display> + Display,
{
    if let Ok(value) = one_of::<T>(form, text, read)? {
        hold!(value.to_string() == text, "{form}: written as {value}");
    }
    Ok(())
}

fn one_of<T>(
    form: &'static str,
    text: &str,
    read: &mut Vec<&'static str>,
) -> Result<Result<T, ()>, String>
where
    T: FromStr<Err: Display>,
{
    match text.parse::<T>() {
        Ok(value) => {
            read.push(form);
            Ok(Ok(value))
        }
        Err(error) => {
            Outcome::refused(&error.to_string()).map_err(|why| format!("{form}: {why}"))?;
            Ok(Err(()))
        }
    }
}
