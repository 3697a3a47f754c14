//! `runner note`: a signed remark by the operator.

use clap::Args;
use ledger::file::store::Durability;
use ledger::record::{Body, Note};

use super::{FAILED, Global, USAGE, ledger as ledgers, report};

/// What `note` takes.
#[derive(Debug, Args)]
pub(super) struct NoteArgs {
    /// The remark
    text: String,
    /// Go on with a ledger that lost records; a record says so, and verify gives 10 from then on
    #[arg(long)]
    accept_rollback: bool,
}

pub(super) fn run(global: &Global, args: NoteArgs) -> u8 {
    if args.text.trim().is_empty() {
        report::error_line("an empty note says nothing");
        return USAGE;
    }
    let (mut store, stamp) = match ledgers::open(global, true, args.accept_rollback) {
        Ok(opened) => opened,
        Err(error) => {
            report::diagnostic(error);
            return FAILED;
        }
    };
    // Whoever runs next ends the runs whose runner died.
    if let Err(error) = store.ready(&stamp) {
        report::diagnostic(error);
        return FAILED;
    }
    match store.append(
        Body::Note(Note { text: args.text }),
        None,
        &stamp,
        Durability::Durable,
    ) {
        Ok(appended) => {
            ledgers::tell(global, &mut store);
            super::close::tell_record(global, &appended, "note");
            0
        }
        Err(error) => {
            report::diagnostic(error);
            FAILED
        }
    }
}
