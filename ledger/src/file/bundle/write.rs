//! Writing a bundle: to a temporary file beside its name, synced, then renamed.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::gather::{GatherError, Gathered, Kept, Selection, gather, shown};
use super::segment::{Segment, SegmentError, index_of};
use super::{CheckpointLine, Format, Header, MAX_FILES, PIECE_BYTES, Piece, Proof};
use crate::bytes::canon::{U53, WriteLineError, to_short};
use crate::bytes::hash::{Hash, Hasher, to_hex};
use crate::bytes::key::{Base64, PrivateKeyError, random_bytes};
use crate::file::durable::{self, FileError};
use crate::file::store::{Covered, CoveredError};
use crate::proof::inclusion::root_from;

/// How many bytes are written at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// A value that a bundle may leave out although the ledger opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The workload's arguments.
    Argv,
    /// The runtime's command line.
    Launch,
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
}

/// What a bundle that was written holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundled {
    /// The ledger's id.
    pub ledger: Hash,
    /// Records in it.
    pub records: u64,
    /// Records that its checkpoint covers.
    pub size: u64,
    /// Records of the ledger behind those that the checkpoint covers.
    pub behind: u64,
    /// Files in it.
    pub files: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Values that were to be withheld, and are shown by their records themselves.
    pub clear: u64,
    /// Blobs that records refer to and that the ledger does not have.
    pub missing: Vec<Hash>,
}

/// Why a bundle was not written.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum WriteBundleError {
    /// Nothing is known of what the ledger holds.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Covered(#[from] CoveredError),
    /// Its records cannot be gathered.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Gather(#[from] GatherError),
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// A record cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Segment(#[from] SegmentError),
    /// A line would be too long.
    #[error("a line of the bundle cannot be written")]
    #[diagnostic(code(ledger::bundle::line))]
    Line(#[from] WriteLineError),
    /// No name for the temporary file.
    #[error(transparent)]
    #[diagnostic(code(ledger::bundle::random))]
    Random(#[from] PrivateKeyError),
    /// A folder, a device or a pipe has the name.
    #[error("{} is not a regular file", .0.display())]
    #[diagnostic(
        code(ledger::bundle::not_a_file),
        help("name a file that a bundle may replace, or one that is not there")
    )]
    NotAFile(PathBuf),
    /// It would stand in the ledger.
    #[error("{} is in the ledger's own folder", .0.display())]
    #[diagnostic(
        code(ledger::bundle::in_the_ledger),
        help("write it elsewhere: a file there would be foreign to the ledger")
    )]
    InTheLedger(PathBuf),
    /// A record is not the one that the checkpoint covers.
    #[error("record {0} is not the one that the checkpoint covers")]
    #[diagnostic(
        code(ledger::bundle::unproven),
        help("`verify` says what is wrong with the ledger")
    )]
    Unproven(u64),
    /// A blob or a set-aside file is another than its name says.
    #[error("{}: the content is not what the name says", .0.display())]
    #[diagnostic(
        code(ledger::bundle::blob),
        help(
            "`verify` says which record refers to it; restore it, or remove it to go on without it"
        )
    )]
    Content(PathBuf),
    /// Too many files.
    #[error("the bundle would hold {0} files, at most {MAX_FILES} are read")]
    #[diagnostic(
        code(ledger::bundle::files),
        help("take fewer runs: --last N, or --run ID")
    )]
    Files(usize),
}

/// Writes a bundle of the ledger in `dir`: what is selected of the records that its stored checkpoint covers, with what they
/// refer to, and without the openings of some values. The same ledger and the same wishes give the same bytes.
///
/// # Errors
/// See [`WriteBundleError`]; what had the name before is untouched then.
pub fn write(
    dir: &Path,
    selection: Selection,
    withhold: &[Value],
    to: &Path,
) -> Result<Bundled, WriteBundleError> {
    let destination = Destination::of(dir, to)?;
    let covered = Covered::read(dir)?;
    let mut gathered = gather(&covered, selection, withhold)?;
    let missing = leave_out_missing(&covered, &mut gathered)?;
    if gathered.files.len() > MAX_FILES {
        return Err(WriteBundleError::Files(gathered.files.len()));
    }
    let Destination { to, temporary } = destination;
    let mut out = Out {
        file: durable::create_new(&temporary)?,
        path: temporary.clone(),
        buffer: Vec::with_capacity(BUFFER_BYTES),
        bytes: 0,
    };
    let written = out
        .all(&covered, &gathered, withhold)
        .and_then(|()| Ok(durable::rename(&temporary, &to)?));
    if let Err(error) = written {
        let _ = durable::remove(&temporary);
        return Err(error);
    }
    if let Some(folder) = to.parent() {
        durable::sync_folder(folder)?;
    }
    Ok(Bundled {
        ledger: covered.ledger,
        records: gathered.records.len() as u64,
        size: covered.size(),
        behind: covered.behind,
        files: gathered.files.len() as u64,
        bytes: out.bytes,
        clear: gathered.clear,
        missing,
    })
}

/// Whether a bundle of the ledger in `dir`, which may not have been begun yet, could be written to `to`: tried by making
/// the temporary file, which is removed again. Room for its content is not looked for.
///
/// # Errors
/// The same that [`write`] would give about the file.
pub fn try_to_write(dir: &Path, to: &Path) -> Result<(), WriteBundleError> {
    let Destination { temporary, .. } = Destination::of(dir, to)?;
    drop(durable::create_new(&temporary)?);
    Ok(durable::remove(&temporary)?)
}

/// Where a bundle goes.
struct Destination {
    to: PathBuf,
    /// Beside it, under a name that nothing has.
    temporary: PathBuf,
}

impl Destination {
    fn of(dir: &Path, to: &Path) -> Result<Self, WriteBundleError> {
        let to = durable::absolute(to)?;
        if durable::inspect_path(&to)?.is_some_and(|facts| !facts.is_file()) {
            return Err(WriteBundleError::NotAFile(to));
        }
        let root = durable::canonical_to_be(&durable::absolute(dir)?)?;
        if durable::canonical_to_be(&to)?.starts_with(root) {
            return Err(WriteBundleError::InTheLedger(to));
        }
        // A link stays one, and what it leads to is replaced.
        let to = match durable::inspect_name(&to)? {
            Some(_) => durable::canonical(&to)?,
            None => to,
        };
        let mut temporary = to.as_os_str().as_bytes().to_owned();
        temporary.extend(format!(".{}.new", to_hex(&random_bytes::<8>()?)).bytes());
        let temporary = PathBuf::from(std::ffi::OsStr::from_bytes(&temporary));
        Ok(Self { to, temporary })
    }
}

/// A blob that is not there is not there for the bundle's reader either, who is told by the record that names it.
fn leave_out_missing(
    covered: &Covered,
    gathered: &mut Gathered,
) -> Result<Vec<Hash>, WriteBundleError> {
    let mut missing = Vec::new();
    for (hash, kept) in &gathered.files {
        if durable::inspect_name(&path(covered, hash, *kept))?.is_none() {
            missing.push(*hash);
        }
    }
    for hash in &missing {
        gathered.files.remove(hash);
    }
    Ok(missing)
}

fn path(covered: &Covered, hash: &Hash, kept: Kept) -> PathBuf {
    match kept {
        Kept::Blob => covered.blob(hash),
        Kept::Torn => covered.torn(hash),
    }
}

/// The temporary file.
struct Out {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    bytes: u64,
}

impl Out {
    fn all(
        &mut self,
        covered: &Covered,
        gathered: &Gathered,
        withhold: &[Value],
    ) -> Result<(), WriteBundleError> {
        self.value(&Header {
            bundle: Format::V1,
            files: U53::saturating(gathered.files.len() as u64),
            ledger: covered.ledger,
            records: U53::saturating(gathered.records.len() as u64),
            size: U53::saturating(covered.size()),
        })?;
        self.value(&CheckpointLine {
            checkpoint: covered.checkpoint.to_string(),
        })?;
        for (hash, kept) in &gathered.files {
            self.pieces(hash, &path(covered, hash, *kept))?;
        }
        let last = gathered.records.last().copied().unwrap_or(0);
        let mut segment: Option<Segment> = None;
        for sequence in gathered.records.iter().copied() {
            let index = index_of(sequence);
            let here = match segment.take_if(|it| it.index == index) {
                Some(segment) => segment,
                None => Segment::open(covered, index, last)?,
            };
            self.record(covered, &here, sequence, withhold)?;
            segment = Some(here);
        }
        self.flush()?;
        durable::sync_data(&self.file, &self.path)?;
        Ok(())
    }

    fn record(
        &mut self,
        covered: &Covered,
        segment: &Segment,
        sequence: u64,
        withhold: &[Value],
    ) -> Result<(), WriteBundleError> {
        let unproven = || WriteBundleError::Unproven(sequence);
        let (line, opening) = segment.lines(sequence)?;
        let proof = covered.prove(sequence)?.ok_or_else(unproven)?;
        let claim = covered.checkpoint.claim();
        // `tree` is a cache, and the segment may have changed since it was made.
        if root_from(Hash::leaf(&line), sequence, claim.size, &proof) != Some(claim.root) {
            return Err(unproven());
        }
        self.value(&Proof {
            index: U53::saturating(sequence),
            proof: proof.iter().map(|hash| Base64(*hash.as_bytes())).collect(),
        })?;
        if let Some(opening) = opening
            && let Some(opening) = shown(sequence, &opening, withhold)?
        {
            let opening = opening.to_line()?;
            self.line(&opening)?;
        }
        self.line(&line)
    }

    /// A file in pieces; its size is that which it has when it is opened.
    fn pieces(&mut self, hash: &Hash, path: &Path) -> Result<(), WriteBundleError> {
        let changed = || WriteBundleError::Content(path.to_owned());
        let file = durable::open_to_read(path)?.ok_or_else(changed)?;
        let size = durable::inspect(&file, path)?.len();
        let mut hasher = Hasher::plain();
        let mut at = 0;
        loop {
            let length = (size - at).min(PIECE_BYTES);
            let mut bytes = vec![0; usize::try_from(length).map_err(|_| changed())?];
            durable::read_at(&file, path, &mut bytes, at)?;
            hasher.update(&bytes);
            self.value(&Piece {
                at: U53::saturating(at),
                blob: *hash,
                bytes: STANDARD.encode(&bytes),
                size: U53::saturating(size),
            })?;
            at += length;
            if at == size {
                break;
            }
        }
        if hasher.finish() == *hash {
            Ok(())
        } else {
            Err(changed())
        }
    }

    fn value<T: Serialize>(&mut self, value: &T) -> Result<(), WriteBundleError> {
        let line = to_short(value)?;
        self.line(&line)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), WriteBundleError> {
        if self.buffer.len() + line.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(line);
        self.buffer.push(b'\n');
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteBundleError> {
        durable::write(&self.file, &self.path, &self.buffer)?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
