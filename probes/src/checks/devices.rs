//! Device nodes that reach the machine.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::writing::{own_path, writable_folders};
use crate::cause::Cause;
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys;
use crate::tally::Tally;

pub(crate) const DENIED: &[&str] = &["ENOENT", "EPERM", "EACCES"];

/// Opened for reading, without waiting, and closed. Never one whose opening does something (watchdog, tapes).
const NODES: [&str; 24] = [
    "mem",
    "kmem",
    "port",
    "kmsg",
    "kvm",
    "fuse",
    "loop-control",
    "loop0",
    "sda",
    "sdb",
    "vda",
    "vdb",
    "xvda",
    "nvme0",
    "nvme0n1",
    "mmcblk0",
    "dm-0",
    "mapper/control",
    "btrfs-control",
    "net/tun",
    "vhost-net",
    "uinput",
    "dri/card0",
    "dri/renderD128",
];

pub(crate) fn nodes(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    for name in NODES {
        let path = Path::new("/dev").join(name);
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(sys::O_NONBLOCK)
            .open(&path);
        tally.attempt(name, opened);
    }
    // Disks by any other name, as far as names are listed.
    for entry in fs::read_dir("/dev").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let disk = entry.file_type().is_ok_and(|kind| kind.is_block_device());
        if disk && !NODES.contains(&name.as_str()) {
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(sys::O_NONBLOCK)
                .open(entry.path());
            if opened.is_ok() {
                tally.escaped(name);
            }
        }
    }
    if let Some(folder) = writable_folders(parameters).first() {
        let path = own_path(folder, parameters);
        let made = sys::make_device(&path, 0x103);
        if made.is_ok()
            && let Err(error) = fs::remove_file(&path)
        {
            tally.note(format!("{} stays: {}", path.display(), Cause::from(error)));
        }
        tally.attempt("mknod", made);
    }
    let null = OpenOptions::new().write(true).open("/dev/null");
    tally.finish(Twin::of(
        null.and_then(|mut null| null.write_all(b"twin")).is_ok(),
    ))
}
