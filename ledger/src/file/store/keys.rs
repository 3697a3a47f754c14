//! Private keys in files: PKCS#8 PEM, for their owner alone.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::bytes::key::{KeyId, LocalKey, PrivateKeyError, PublicKey, Signer as _};
use crate::file::durable::{self, FileError};

/// Longest key file that is read; a PKCS#8 Ed25519 key has about 120 bytes.
const MAX_KEY_BYTES: u64 = 16 * 1024;

/// Why a key file could not be used or made.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum KeyFileError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// There is none.
    #[error("there is no key file {}", .0.display())]
    #[diagnostic(code(ledger::key::missing), help("`runner key new FILE` makes one"))]
    Missing(PathBuf),
    /// There is one already.
    #[error("{} exists already", .0.display())]
    #[diagnostic(
        code(ledger::key::exists),
        help("choose another name; a key is never overwritten")
    )]
    Exists(PathBuf),
    /// Not a regular file.
    #[error("{} is not a regular file, expected a key in one", .0.display())]
    #[diagnostic(code(ledger::key::not_a_file), help("name the file of a key"))]
    NotAFile(PathBuf),
    /// Others may read it.
    #[error("{} has mode {mode:04o}, expected a key that only its owner can read (0600)", path.display())]
    #[diagnostic(
        code(ledger::key::readable_by_others),
        help("others may know this key already: prefer a new one to chmod 600")
    )]
    ReadableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Others may put another key in its place.
    #[error("the key folder {} has mode {mode:04o}, others can write to it", path.display())]
    #[diagnostic(
        code(ledger::key::folder_writable_by_others),
        help("chmod 700 the folder")
    )]
    FolderWritableByOthers {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not a key.
    #[error("{} holds no usable key", path.display())]
    #[diagnostic(
        code(ledger::key::form),
        help("restore the key from a copy; `runner key new FILE` makes one for another ledger")
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PrivateKeyError,
    },
    /// No new key could be made.
    #[error("cannot make a key")]
    #[diagnostic(code(ledger::key::generate))]
    Generate(#[source] PrivateKeyError),
}

/// Reads a key that only its owner can read.
///
/// # Errors
/// It is missing, readable by others, or no Ed25519 key in PKCS#8 PEM.
pub fn read_key_file(path: &Path) -> Result<LocalKey, KeyFileError> {
    let file = durable::open_named(path)?.ok_or_else(|| KeyFileError::Missing(path.into()))?;
    let facts = durable::inspect(&file, path)?;
    if !facts.is_file() {
        return Err(KeyFileError::NotAFile(path.into()));
    }
    let mode = facts.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let path = path.into();
        return Err(KeyFileError::ReadableByOthers { path, mode });
    }
    let mut bytes = Vec::new();
    durable::read_most(&file, path, &mut bytes, MAX_KEY_BYTES)?;
    // Bytes that are not text are no PEM.
    std::str::from_utf8(&bytes)
        .map_err(|_| PrivateKeyError::Form)
        .and_then(LocalKey::from_pem)
        .map_err(|source| KeyFileError::Key {
            path: path.into(),
            source,
        })
}

/// Makes a new key in a new file; the file is on the disk when this succeeds.
///
/// # Errors
/// The file exists already or cannot be written.
pub fn create_key_file(path: &Path) -> Result<PublicKey, KeyFileError> {
    let key = LocalKey::generate().map_err(KeyFileError::Generate)?;
    write_key(path, &key)?;
    Ok(*key.public())
}

/// Makes the folder of keys, or sees that it can be one.
pub(super) fn prepare_folder(folder: &Path) -> Result<(), KeyFileError> {
    durable::create_folders(folder)?;
    refuse_open_folder(folder)
}

/// The key with this id in `folder`, on the disk; a half-written one, of which nobody has the other half, is removed.
pub(super) fn left_behind(
    folder: &Path,
    id: &KeyId,
) -> Result<Option<(LocalKey, PathBuf)>, KeyFileError> {
    let path = key_path(folder, id);
    match read_key_file(&path) {
        Ok(key) if key.public().id() == *id => {
            settle(&path)?;
            Ok(Some((key, path)))
        }
        Ok(_) | Err(KeyFileError::Missing(_)) => Ok(None),
        Err(KeyFileError::Key { .. }) => {
            let text = durable::read(&path)?.unwrap_or_default();
            let ending = b"-----END";
            if !text.windows(ending.len()).any(|window| window == ending) {
                durable::remove(&path)?;
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Puts a key file on the disk of which nobody knows whether it is there: whoever made it may have been told that it is
/// not.
fn settle(path: &Path) -> Result<(), FileError> {
    let Some(file) = durable::open_to_write(path)? else {
        return Ok(());
    };
    let length = durable::inspect(&file, path)?.len();
    durable::write_again(&file, path, 0..length)?;
    durable::sync_data(&file, path)?;
    sync_above(path)
}

fn sync_above(path: &Path) -> Result<(), FileError> {
    let folder = path.parent().filter(|above| !above.as_os_str().is_empty());
    durable::sync_folder(folder.unwrap_or(Path::new(".")))
}

/// Where a ledger's own key is kept: `<folder>/<key id>.pem`.
pub(super) fn key_path(folder: &Path, id: &KeyId) -> PathBuf {
    folder.join(format!("{id}.pem"))
}

/// A folder in which others can put files cannot keep a key.
pub(super) fn refuse_open_folder(folder: &Path) -> Result<(), KeyFileError> {
    let Some(facts) = durable::inspect_path(folder)? else {
        return Ok(());
    };
    let mode = facts.permissions().mode() & 0o7777;
    if mode & 0o022 != 0 {
        let path = folder.into();
        return Err(KeyFileError::FolderWritableByOthers { path, mode });
    }
    Ok(())
}

/// Writes a key to a new file; it is on the disk when this succeeds.
pub(super) fn write_key(path: &Path, key: &LocalKey) -> Result<(), KeyFileError> {
    let pem = key.to_pem().map_err(KeyFileError::Generate)?;
    let file = match durable::create_new(path) {
        Err(error) if error.source.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(KeyFileError::Exists(path.into()));
        }
        other => other?,
    };
    let kept = durable::write(&file, path, pem.as_bytes())
        .and_then(|()| durable::sync_data(&file, path))
        .and_then(|()| sync_above(path));
    if kept.is_err() {
        discard_key(path);
    }
    Ok(kept?)
}

/// Removes a key that has signed nothing. What cannot be removed is a key of no ledger.
pub(super) fn discard_key(path: &Path) {
    let _ = durable::remove(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_key_is_made_once_and_read_back() {
        let at = tempfile::tempdir().unwrap();
        let path = at.path().join("key.pem");
        let public = create_key_file(&path).unwrap();
        assert_eq!(read_key_file(&path).unwrap().public(), &public);
        assert!(matches!(
            create_key_file(&path),
            Err(KeyFileError::Exists(_))
        ));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let at = tempfile::tempdir().unwrap();
        let path = at.path().join("key.pem");
        create_key_file(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            chmod(&path, mode);
            let error = read_key_file(&path).unwrap_err();
            assert!(
                matches!(error, KeyFileError::ReadableByOthers { mode: found, .. } if found == mode),
                "{mode:o}"
            );
        }
        chmod(&path, 0o400);
        assert!(read_key_file(&path).is_ok());
    }

    #[test]
    fn what_is_no_key_is_said_so() {
        let at = tempfile::tempdir().unwrap();
        let path = at.path().join("key.pem");
        assert!(matches!(
            read_key_file(&path),
            Err(KeyFileError::Missing(_))
        ));
        assert!(matches!(
            read_key_file(at.path()),
            Err(KeyFileError::NotAFile(_))
        ));
        for content in [b"hello".as_slice(), b"", b"\xff\xfe"] {
            std::fs::write(&path, content).unwrap();
            chmod(&path, 0o600);
            assert!(matches!(
                read_key_file(&path),
                Err(KeyFileError::Key { .. })
            ));
        }
    }

    #[test]
    fn a_folder_that_others_can_write_to_keeps_no_key() {
        let at = tempfile::tempdir().unwrap();
        chmod(at.path(), 0o777);
        assert!(matches!(
            prepare_folder(at.path()),
            Err(KeyFileError::FolderWritableByOthers { .. })
        ));
        chmod(at.path(), 0o755);
        prepare_folder(at.path()).unwrap();
    }

    #[test]
    fn a_key_that_was_left_behind_is_found_and_half_of_one_removed() {
        let at = tempfile::tempdir().unwrap();
        let key = LocalKey::generate().unwrap();
        let id = key.public().id();
        let path = key_path(at.path(), &id);
        assert!(left_behind(at.path(), &id).unwrap().is_none());
        write_key(&path, &key).unwrap();
        let (found, at_path) = left_behind(at.path(), &id).unwrap().unwrap();
        assert_eq!((found.public(), at_path), (key.public(), path.clone()));
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(left_behind(at.path(), &id).unwrap().is_none());
        assert!(!path.exists());
        // Something else that has the name is somebody's.
        std::fs::write(&path, "-----BEGIN NOTHING-----\n-----END NOTHING-----\n").unwrap();
        chmod(&path, 0o600);
        assert!(left_behind(at.path(), &id).unwrap().is_none());
        assert!(path.exists());
    }
}
