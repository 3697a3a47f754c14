//! Reading mounts back (proc_pid_mountinfo(5)).

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// File systems that show the kernel, its devices or other processes, and not files.
const KERNEL: [&str; 21] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "mqueue",
    "nsfs",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "bpf",
    "configfs",
    "efivarfs",
    "pstore",
    "fusectl",
    "binfmt_misc",
    "rpc_pipefs",
    "nfsd",
];

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted, below the reader's root.
    pub target: PathBuf,
    /// Per-mount options (`ro`, `nosuid`, `idmapped`).
    pub options: Vec<String>,
    /// File system type.
    pub kind: String,
    /// Which part of the file system is mounted.
    pub root: PathBuf,
    /// `major:minor` of the file system.
    pub device: String,
    /// Its `size=` in bytes, where it has one (tmpfs(5)).
    pub size: Option<u64>,
}

impl Mount {
    /// Whether a per-mount option is set.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|set| set == option)
    }

    /// Whether it shows the kernel instead of files.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        KERNEL.contains(&self.kind.as_str())
    }
}

/// The mounts in a mountinfo file, in the kernel's order (a later one covers an earlier one).
///
/// # Errors
/// The file cannot be read, or a line is not as proc_pid_mountinfo(5) says.
pub fn read(path: &Path) -> io::Result<Vec<Mount>> {
    let text = crate::sys::pseudo::read(path)?;
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse(line).ok_or_else(|| {
                let line = String::from_utf8_lossy(line);
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}: not a mount: {line}", path.display()),
                )
            })
        })
        .collect()
}

/// The mount that answers at `target`, which is the last one there.
#[must_use]
pub fn at<'a>(mounts: &'a [Mount], target: &Path) -> Option<&'a Mount> {
    // The kernel writes paths in one form: there bytes tell them apart, which is quicker than their parts.
    let target: PathBuf = target.components().collect();
    let mut last_first = mounts.iter().rev();
    last_first.find(|mount| mount.target.as_os_str() == target.as_os_str())
}

/// Every mount at or below `target` that is not covered by another at the same place.
pub fn below<'a>(mounts: &'a [Mount], target: &'a Path) -> impl Iterator<Item = &'a Mount> {
    let mut last = HashMap::with_capacity(mounts.len());
    for (index, mount) in mounts.iter().enumerate() {
        last.insert(mount.target.as_os_str(), index);
    }
    mounts
        .iter()
        .enumerate()
        .filter(move |(index, mount)| {
            last.get(mount.target.as_os_str()) == Some(index) && mount.target.starts_with(target)
        })
        .map(|(_, mount)| mount)
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let root = unescape(fields.next()?);
    let target = unescape(fields.next()?);
    let options = String::from_utf8_lossy(fields.next()?)
        .split(',')
        .map(str::to_owned)
        .collect();
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = fields.next()?;
    let size = fields.nth(1).and_then(size);
    Some(Mount {
        target,
        options,
        kind: String::from_utf8_lossy(kind).into_owned(),
        root,
        device: String::from_utf8_lossy(device).into_owned(),
        size,
    })
}

/// `size=65536k` among a file system's options; the kernel writes KiB.
fn size(options: &[u8]) -> Option<u64> {
    let options = std::str::from_utf8(options).ok()?;
    let size = options
        .split(',')
        .find_map(|option| option.strip_prefix("size="))?;
    size.strip_suffix('k')?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// Space, tab, newline and backslash stand as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| {
                digits.iter().try_fold(0u8, |value, digit| {
                    matches!(digit, b'0'..=b'7')
                        .then(|| value.wrapping_mul(8).wrapping_add(digit - b'0'))
                })
            });
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_its_optional_fields() {
        let mount = parse(br"36 35 98:0 /mnt1 /a\040b\134 rw,noatime,idmapped master:1 shared:2 - ext3 /dev/root rw").unwrap();
        assert_eq!(mount.target, Path::new("/a b\\"));
        assert_eq!(mount.kind, "ext3");
        assert_eq!(mount.root, Path::new("/mnt1"));
        assert!(mount.has("idmapped") && !mount.has("ro"));
        assert_eq!(
            parse(b"36 35 98:0 / / rw - tmpfs none rw").unwrap().kind,
            "tmpfs"
        );
        let size = |line: &[u8]| parse(line).unwrap().size;
        assert_eq!(
            size(b"36 35 0:9 / /tmp rw - tmpfs tmpfs rw,size=64k,nr_inodes=9,inode64"),
            Some(65_536)
        );
        assert_eq!(
            size(b"36 35 0:9 / /tmp rw - tmpfs tmpfs rw,nr_inodes=9"),
            None
        );
        assert!(parse(b"nonsense").is_none());
    }

    #[test]
    fn this_process_has_mounts() {
        let mounts = read(Path::new("/proc/self/mountinfo")).unwrap();
        assert!(at(&mounts, Path::new("/")).is_some());
        assert_eq!(
            below(&mounts, Path::new("/proc")).next().unwrap().kind,
            "proc"
        );
    }
}
