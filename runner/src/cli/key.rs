//! `runner key`: make a key file, show a ledger's key.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ledger::file::store::{create_key_file, describe};

use super::{FAILED, Global, Later, ledger as ledgers, report};

/// What `key` takes.
#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make a new private key file (PKCS#8, readable by its owner alone)
    New {
        /// The file; it must not exist
        file: PathBuf,
    },
    /// Show whose the ledger is: its id, name and key
    Show,
    /// Needs key rotation, which this version does not have
    #[command(hide = true)]
    Rotate(Later),
    /// Needs standby keys, which this version does not have
    #[command(hide = true)]
    Standby(Later),
}

pub(super) fn run(global: &Global, args: KeyArgs) -> u8 {
    match args.command {
        KeyCommand::New { file } => new(global, &file),
        KeyCommand::Show => show(global),
        KeyCommand::Rotate(later) => super::needs("key rotate", "key rotation", &later),
        KeyCommand::Standby(later) => super::needs("key standby", "standby keys", &later),
    }
}

fn new(global: &Global, file: &Path) -> u8 {
    // Without a place for a ledger there is none that the file could be in.
    let ledger = ledgers::folder(global).ok();
    if let Err(error) = ledgers::refuse_inside(file, ledger.as_deref()) {
        report::diagnostic(error);
        return FAILED;
    }
    match create_key_file(file) {
        Ok(public) => {
            let id = public.id();
            if global.is_json() {
                report::print_json(&serde_json::json!({ "file": file, "keyId": id }));
            } else {
                report::print(&format!("{id}\n"));
            }
            0
        }
        Err(error) => {
            report::diagnostic(error);
            FAILED
        }
    }
}

fn show(global: &Global) -> u8 {
    let folder = match ledgers::folder(global) {
        Ok(folder) => folder,
        Err(error) => {
            report::diagnostic(error);
            return FAILED;
        }
    };
    let found = match describe(&folder) {
        Ok(found) => found,
        Err(error) => {
            report::diagnostic(error);
            return FAILED;
        }
    };
    let public = ledger::bytes::key::Base64(found.key.to_bytes());
    let (origin, id) = (found.origin.as_str(), found.key.id());
    if global.is_json() {
        report::print_json(&serde_json::json!({
            "ledger": found.ledger, "origin": origin, "keyId": id, "publicKey": public, "custody": found.custody,
            "records": found.size, "closedAt": found.closed_at,
        }));
    } else {
        report::print(&format!(
            "ledger     {}\norigin     {origin}\nkey id     {id}\npublic key {public}\nrecords    {}\n",
            found.ledger, found.size
        ));
    }
    0
}
