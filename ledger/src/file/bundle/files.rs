//! The files in a bundle: where each begins, and reading one piece by piece.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{PIECE_BYTES, Piece, parse};
use crate::bytes::canon::MAX_LINE_BYTES;
use crate::bytes::hash::Hash;

/// The whole files of a bundle that can be read at any place.
#[derive(Debug)]
pub(in crate::file) struct Files {
    file: File,
    pub(in crate::file) path: PathBuf,
    /// In the order of their hashes.
    entries: Vec<Entry>,
}

/// A file whose pieces were all there and had its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) hash: Hash,
    /// Where the line of its first piece begins.
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Files {
    pub(super) fn new(file: File, path: PathBuf, entries: Vec<Entry>) -> Self {
        Self {
            file,
            path,
            entries,
        }
    }

    /// Opens the file of that hash; its content is to be hashed again by whoever relies on it.
    pub(in crate::file) fn open(self: &Arc<Self>, hash: &Hash) -> Option<(BlobReader, u64)> {
        let found = self.entries.binary_search_by(|entry| entry.hash.cmp(hash));
        let entry = *self.entries.get(found.ok()?)?;
        let reader = Pieces {
            files: Arc::clone(self),
            entry,
            next: entry.offset,
            at: 0,
            piece: io::Cursor::new(Vec::new()),
        };
        Some((BlobReader(Inner::Pieces(reader)), entry.size))
    }
}

/// The content of a blob or of a set-aside file, wherever it stands.
#[derive(Debug)]
pub struct BlobReader(Inner);

#[derive(Debug)]
enum Inner {
    File(File),
    Pieces(Pieces),
}

#[derive(Debug)]
struct Pieces {
    files: Arc<Files>,
    entry: Entry,
    /// Where the next line begins.
    next: u64,
    /// How many bytes of the file stand before it.
    at: u64,
    piece: io::Cursor<Vec<u8>>,
}

impl From<File> for BlobReader {
    fn from(file: File) -> Self {
        Self(Inner::File(file))
    }
}

impl BlobReader {
    /// Back to the first byte.
    ///
    /// # Errors
    /// The system refuses.
    pub fn rewind(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Inner::File(file) => file.seek(SeekFrom::Start(0)).map(|_| ()),
            Inner::Pieces(pieces) => {
                pieces.next = pieces.entry.offset;
                pieces.at = 0;
                pieces.piece = io::Cursor::new(Vec::new());
                Ok(())
            }
        }
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Inner::File(file) => file.read(buffer),
            Inner::Pieces(pieces) => loop {
                let count = pieces.piece.read(buffer)?;
                if count > 0 || buffer.is_empty() || pieces.at == pieces.entry.size {
                    return Ok(count);
                }
                pieces.turn()?;
            },
        }
    }
}

impl Pieces {
    /// Reads the next piece. It was looked at before, so another one says that the bundle changed meanwhile.
    fn turn(&mut self) -> io::Result<()> {
        let mut line = vec![0; MAX_LINE_BYTES + 1];
        let mut filled = 0;
        while let Some(room) = line.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.files.file.read_at(room, self.next + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        line.truncate(filled);
        let changed = || io::Error::other("the bundle changed while it was read");
        let end = memchr::memchr(b'\n', &line).ok_or_else(changed)?;
        line.truncate(end);
        let piece: Piece = parse(&line).map_err(|_| changed())?;
        let bytes = piece.content().ok_or_else(changed)?;
        if piece.blob != self.entry.hash || piece.at.value() != self.at || bytes.is_empty() {
            return Err(changed());
        }
        self.at += bytes.len() as u64;
        self.next += end as u64 + 1;
        self.piece = io::Cursor::new(bytes);
        Ok(())
    }
}

impl Piece {
    /// Its bytes, when they are as many as stand there.
    pub(super) fn content(&self) -> Option<Vec<u8>> {
        let bytes = STANDARD.decode(&self.bytes).ok()?;
        let left = self.size.value().checked_sub(self.at.value())?;
        let whole = bytes.len() as u64 == left.min(PIECE_BYTES);
        (whole && STANDARD.encode(&bytes) == self.bytes).then_some(bytes)
    }
}
