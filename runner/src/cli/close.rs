//! `runner close`: nothing may follow.

use clap::Args;
use ledger::file::store::Appended;

use super::{FAILED, Global, ledger as ledgers, report};

/// What `close` takes.
#[derive(Debug, Args)]
pub(super) struct CloseArgs {
    /// Why
    #[arg(default_value = "closed by the operator")]
    reason: String,
}

pub(super) fn run(global: &Global, args: CloseArgs) -> u8 {
    let (mut store, stamp) = match ledgers::open(global, false, false) {
        Ok(opened) => opened,
        Err(error) => {
            report::diagnostic(error);
            return FAILED;
        }
    };
    match store.close(&args.reason, &stamp) {
        Ok(appended) => {
            ledgers::tell(global, &mut store);
            tell_record(global, &appended, "close");
            0
        }
        Err(error) => {
            report::diagnostic(error);
            FAILED
        }
    }
}

/// Says which record was written.
pub(super) fn tell_record(global: &Global, appended: &Appended, kind: &str) {
    if global.is_json() {
        report::print_json(
            &serde_json::json!({ "kind": kind, "sequence": appended.sequence, "hash": appended.hash }),
        );
    } else if !global.quiet {
        report::notice_line(&format!("record {}: {kind}", appended.sequence));
    }
}
