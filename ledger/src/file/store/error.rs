//! Why a ledger is not opened.

use std::path::PathBuf;

use super::acknowledged::Difference;
use super::append::{AppendError, RenewError};
use super::found::FindError;
use super::heads::WriteHeadsError;
use super::keys::KeyFileError;
use super::lock::LockError;
use crate::bytes::canon::WriteLineError;
use crate::bytes::key::{KeyId, PrivateKeyError};
use crate::file::durable::FileError;
use crate::record::WriteRecordError;

/// Why a ledger could not be opened for writing. Nothing was signed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum OpenLedgerError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// There is none.
    #[error("there is no ledger in {}", .0.display())]
    #[diagnostic(
        code(ledger::open::missing),
        help("`runner exec` begins one; --ledger names another folder")
    )]
    Missing(PathBuf),
    /// Not a folder.
    #[error("{} is not a folder", .0.display())]
    #[diagnostic(
        code(ledger::open::not_a_folder),
        help("name a folder with a ledger, or one that does not exist yet")
    )]
    NotAFolder(PathBuf),
    /// Root is about to write to somebody's ledger: what it replaces there would be root's, and out of the owner's
    /// reach.
    #[error("{} belongs to user {owner}, and this is root", path.display())]
    #[diagnostic(
        code(ledger::open::of_another_user),
        help("write to it as that user, or keep a ledger of root's own with --ledger DIR")
    )]
    OfAnotherUser {
        /// The first segment.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The ledger that this folder holds is written to in another one.
    #[error(
        "{} is a copy of the ledger in {}, which is still there: writing to both would make two histories of one",
        dir.display(),
        original.display()
    )]
    #[diagnostic(
        code(ledger::open::copy),
        help(
            "go on in the other folder; to go on in this one, move that one away first; for a ledger of its own, begin another"
        )
    )]
    Copy {
        /// The folder.
        dir: PathBuf,
        /// The one that is known.
        original: PathBuf,
    },
    /// A folder with something else in it.
    #[error("{} is no ledger: it has no records, and holds {}", dir.display(), foreign.join(", "))]
    #[diagnostic(
        code(ledger::open::foreign),
        help("name an empty folder, or one that does not exist yet")
    )]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// Some of what is in it.
        foreign: Vec<String>,
    },
    /// Later segments without the first.
    #[error("{} is missing and later segments are there", .0.display())]
    #[diagnostic(
        code(ledger::open::first_segment_missing),
        help("restore the records that are missing")
    )]
    FirstSegmentMissing(PathBuf),
    /// The first record does not verify.
    #[error(
        "{} does not begin with a genesis record: {why}{}",
        path.display(),
        known.as_ref().map_or_else(String::new, |known| format!("; {known}"))
    )]
    #[diagnostic(
        code(ledger::open::genesis),
        help(
            "nothing was signed. Restore the records; or move the folder away and begin another ledger in its place, with --accept-rollback where this one is known"
        )
    )]
    Genesis {
        /// The first segment.
        path: PathBuf,
        /// Why.
        why: String,
        /// What was acknowledged of the ledger that stood here.
        known: Option<Box<Difference>>,
    },
    /// It could not be locked.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Lock(#[from] LockError),
    /// It could not be found out where the ledger stands.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Find(#[from] FindError),
    /// Records that were acknowledged are not there any more.
    #[error("{difference}{}", damage.as_ref().map_or_else(String::new, |damage| format!("; {damage}")))]
    #[diagnostic(
        code(ledger::open::differs),
        help(
            "nothing was signed. Restore the records that are missing; if the ledger was moved, open it once at its new place; or go on from here with --accept-rollback (of exec or note), which the ledger will show for ever"
        )
    )]
    Differs {
        /// How.
        difference: Box<Difference>,
        /// What is wrong with the records behind the last good one.
        damage: Option<String>,
    },
    /// A key file could not be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Key(#[from] KeyFileError),
    /// The ledger's own key is not in the key folder.
    #[error("the ledger is signed by key {id}, and there is no {}", path.display())]
    #[diagnostic(
        code(ledger::open::key_missing),
        help("name the key with --key FILE, or begin another ledger")
    )]
    KeyMissing {
        /// The ledger's key.
        id: KeyId,
        /// Where it would be.
        path: PathBuf,
    },
    /// Another ledger's key.
    #[error("{} holds key {found}, the ledger is signed by {expected}", path.display())]
    #[diagnostic(
        code(ledger::open::key_of_another),
        help("name the ledger's own key with --key FILE, or leave --key out")
    )]
    KeyOfAnother {
        /// The key file.
        path: PathBuf,
        /// Its key.
        found: KeyId,
        /// The ledger's key.
        expected: KeyId,
    },
    /// The key was kept nowhere.
    #[error("the ledger's key {0} was ephemeral and is gone, nothing can be appended")]
    #[diagnostic(code(ledger::open::key_gone), help("begin another ledger"))]
    KeyGone(KeyId),
    /// An ephemeral key for a ledger that has one.
    #[error("an ephemeral key only begins a ledger, and {} has one", .0.display())]
    #[diagnostic(
        code(ledger::open::ephemeral),
        help("leave --key out, or begin another ledger")
    )]
    Ephemeral(PathBuf),
    /// No random bytes.
    #[error(transparent)]
    #[diagnostic(code(ledger::open::random))]
    Random(#[from] PrivateKeyError),
    /// The first record could not be signed.
    #[error(transparent)]
    #[diagnostic(code(ledger::open::sign))]
    Sign(#[from] WriteRecordError),
    /// The first record cannot be written again.
    #[error(transparent)]
    #[diagnostic(code(ledger::open::line))]
    Line(#[from] WriteLineError),
    /// What follows from the first record could not be written.
    #[error(
        "the ledger was begun, and not everything that follows from its first record was written"
    )]
    #[diagnostic(code(ledger::open::renew))]
    Renew(#[from] RenewError),
    /// A line of `.heads` could not be changed.
    #[error("the ledger is in order, and its line in .heads could not be changed")]
    #[diagnostic(code(ledger::open::heads))]
    Heads(#[from] WriteHeadsError),
    /// The end of the ledger could not be put in order.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Append(#[from] AppendError),
}
