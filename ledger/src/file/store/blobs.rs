//! Blobs: files named by the SHA-256 of their content.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Store;
use super::layout::Layout;
use crate::bytes::hash::{Hash, Hasher, to_hex};
use crate::bytes::key::{PrivateKeyError, random_bytes};
use crate::file::durable::{self, FileError};

/// Why a blob could not be kept.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum BlobError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// No name for the temporary file.
    #[error(transparent)]
    #[diagnostic(code(ledger::blob::random))]
    Random(#[from] PrivateKeyError),
}

impl Store {
    /// Keeps `bytes` as a blob; on the disk, name and content, when this succeeds. A blob that is there
    /// already is read and left alone.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn put_blob(&mut self, bytes: &[u8]) -> Result<Hash, BlobError> {
        let hash = Hash::of(bytes);
        if durable::read(&self.layout.blob(&hash))?.is_some_and(|kept| kept == bytes) {
            return Ok(hash);
        }
        let writer = self.blob_writer()?;
        durable::write(&writer.file, &writer.path, bytes)?;
        writer.keep_as(hash)
    }

    /// A blob that is written bit by bit; it is kept by [`BlobWriter::commit`] and else removed.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn blob_writer(&mut self) -> Result<BlobWriter, BlobError> {
        let name = format!("{}.blob", to_hex(&random_bytes::<16>()?));
        // Under the lock: between making the file and locking it nobody must take it for a dead one's.
        self.locked(|store| BlobWriter::create(&store.layout, &name))
    }
}

/// Writes one blob to a temporary file and hashes it on the way.
#[derive(Debug)]
pub struct BlobWriter {
    layout: Layout,
    path: PathBuf,
    file: File,
    hasher: BlobHasher,
    kept: bool,
}

struct BlobHasher(Hasher);

impl std::fmt::Debug for BlobHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BlobHasher")
    }
}

impl BlobWriter {
    fn create(layout: &Layout, name: &str) -> Result<Self, BlobError> {
        durable::create_folders(&layout.runs())?;
        let path = layout.runs().join(name);
        let file = durable::create_new(&path)?;
        durable::lock(&file, &path)?;
        Ok(Self {
            layout: layout.clone(),
            path,
            file,
            hasher: BlobHasher(Hasher::plain()),
            kept: false,
        })
    }

    /// Keeps what was written; on the disk, name and content, when this succeeds.
    ///
    /// # Errors
    /// The disk refuses; nothing is kept then.
    pub fn commit(self) -> Result<Hash, BlobError> {
        let hash = self.hasher.0.clone().finish();
        self.keep_as(hash)
    }

    fn keep_as(mut self, hash: Hash) -> Result<Hash, BlobError> {
        let to = self.layout.blob(&hash);
        let folder = to.parent().unwrap_or(Path::new("."));
        durable::expect_folder(folder)?;
        durable::create_folders(folder)?;
        durable::sync_data(&self.file, &self.path)?;
        durable::rename(&self.path, &to)?;
        self.kept = true;
        if let Err(error) = durable::sync_folder(folder) {
            // Whoever finds a blob by its name takes it for kept.
            let _ = durable::remove(&to);
            return Err(error.into());
        }
        Ok(hash)
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written =
            durable::write_some(&self.file, &self.path, bytes).map_err(io::Error::other)?;
        self.hasher.0.update(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        if !self.kept {
            // What stays behind is swept when the ledger is opened next.
            let _ = durable::remove(&self.path);
        }
    }
}
