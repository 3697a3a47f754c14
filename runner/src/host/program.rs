//! The runner's own version and program hash.
//!
//! Hashing 8 MiB costs milliseconds, too much for each run, and a cache in a folder could be written by a workload
//! that runs without isolation. So the cache is the ledger itself: a host record says which file had which
//! hash, under the ledger's signature, and holds for the boot it names. It is believed for a file of the same
//! device, inode, size and ctime. Nobody but the kernel sets a ctime, every write, rename or link moves it to
//! now, and a running program cannot be written to (ETXTBSY); what remains is somebody who sets the clock back,
//! who is root and need not bother.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ledger::bytes::hash::{Hash, Hasher};
use ledger::facts::host::RunnerFacts;
use nix::sys::statfs::{self, FsType};

use super::GatherHostError;

const OWN_PROGRAM: &str = "/proc/self/exe";

/// A change within this time before the hashing could bear the same ctime as one after it.
const SETTLED: Duration = Duration::from_secs(2);

/// File systems of this kernel alone, which stamp every change themselves. Others (network, FUSE, shared
/// folders of virtual machines) show what a server says.
const STAMPING: &[FsType] = &[
    statfs::EXT4_SUPER_MAGIC,
    statfs::BTRFS_SUPER_MAGIC,
    statfs::XFS_SUPER_MAGIC,
    statfs::F2FS_SUPER_MAGIC,
    statfs::OVERLAYFS_SUPER_MAGIC,
    statfs::TMPFS_MAGIC,
];

/// This program's facts; `known` are those of a verified host record of this boot.
pub(super) fn runner(known: Option<&RunnerFacts>) -> Result<RunnerFacts, GatherHostError> {
    let path = Path::new(OWN_PROGRAM);
    let facts = || -> io::Result<RunnerFacts> {
        let mut file = File::open(path)?;
        let identity = identity(&file, SystemTime::now())?;
        let sha256 = match known {
            Some(known) if identity.is_some() && known.file == identity => known.sha256,
            _ => hash(&mut file)?,
        };
        Ok(RunnerFacts {
            file: identity,
            sha256,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    };
    facts().map_err(|source| GatherHostError::Program {
        path: std::fs::read_link(path).unwrap_or_else(|_| PathBuf::from(OWN_PROGRAM)),
        source,
    })
}

/// Which file it is, in a text that changes whenever its content does; `None` where nothing promises that.
fn identity(file: &File, now: SystemTime) -> io::Result<Option<String>> {
    let kind = statfs::fstatfs(file)?.filesystem_type();
    let is = file.metadata()?;
    let changed = u64::try_from(is.ctime())
        .ok()
        .map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let settled = changed
        .and_then(|changed| now.duration_since(changed).ok())
        .is_some_and(|age| age > SETTLED);
    let identity = || {
        format!(
            "{:x}:{}:{}:{}.{:09}",
            is.dev(),
            is.ino(),
            is.size(),
            is.ctime(),
            is.ctime_nsec()
        )
    };
    Ok((STAMPING.contains(&kind) && settled).then(identity))
}

fn hash(file: &mut File) -> io::Result<Hash> {
    let mut hasher = Hasher::plain();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => hasher.update(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn the_hash_is_that_of_the_file() {
        let facts = runner(None).unwrap();
        assert_eq!(facts.sha256, Hash::of(&std::fs::read(OWN_PROGRAM).unwrap()));
    }

    #[test]
    fn a_known_hash_is_believed_for_the_very_same_file_only() {
        let facts = runner(None).unwrap();
        let planted = RunnerFacts {
            sha256: Hash::of(b"planted"),
            ..facts.clone()
        };
        if facts.file.is_some() {
            assert_eq!(runner(Some(&planted)).unwrap(), planted, "not hashed again");
        }
        let other = RunnerFacts {
            file: Some("0:0:0:0.0".into()),
            ..planted.clone()
        };
        assert_eq!(runner(Some(&other)).unwrap(), facts);
        let none = RunnerFacts {
            file: None,
            ..planted
        };
        assert_eq!(runner(Some(&none)).unwrap(), facts);
    }

    #[test]
    fn every_change_gives_another_identity_and_a_fresh_one_gives_none() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a").unwrap();
        let later = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(
            identity(&file, SystemTime::now()).unwrap(),
            None,
            "too fresh to be told from the next change"
        );
        let before = identity(&file, later).unwrap();
        file.write_all(b"b").unwrap();
        let after = identity(&file, later).unwrap();
        assert!(before != after || before.is_none());
        let long_ago = SystemTime::UNIX_EPOCH;
        assert_eq!(
            identity(&file, long_ago).unwrap(),
            None,
            "a change in the future tells nothing"
        );
    }
}
