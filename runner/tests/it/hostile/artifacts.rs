//! What is left in a written folder, of every kind and in every number, and that nothing outside is touched.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ledger::bytes::hash::Hash;
use ledger::facts::execution::FileKind;

use super::{artifacts, misdeeds, outcome, sh, unmeasured};
use crate::world::{World, is_root, ready, skip};

/// A written folder, and the flags that show it as /w.
fn written(world: &World) -> (PathBuf, String) {
    let out = world.folder("out");
    let flags = format!("-q --timeout 50s --write {}:/w", out.display());
    (out, flags)
}

/// Trees that are too deep for a path are removed by a program that can.
fn remove(path: &Path) {
    assert!(
        Command::new("rm")
            .arg("-rf")
            .arg(path)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn every_kind_is_listed_and_nothing_is_followed() {
    let world = ready!();
    let (out, flags) = written(&world);
    let canary = world.file("canary", "outside");
    std::os::unix::fs::symlink(&canary, out.join("link-before")).unwrap();
    let before = std::fs::metadata(&canary).unwrap();
    misdeeds(&world, &flags, &["do:zoo:/w"]).ended(0);
    let run = outcome(&world).0;
    let found: BTreeMap<String, _> = artifacts(&world, &run)
        .into_iter()
        .map(|artifact| (artifact.path.clone(), artifact))
        .collect();
    let kinds: Vec<_> = found
        .iter()
        .map(|(path, artifact)| (path.as_str(), artifact.kind))
        .filter(|(_, kind)| *kind != FileKind::File)
        .collect();
    assert_eq!(
        kinds,
        [
            ("/w/here", FileKind::Symlink),
            ("/w/loop-a", FileKind::Symlink),
            ("/w/loop-b", FileKind::Symlink),
            ("/w/pipe", FileKind::Fifo),
            ("/w/socket", FileKind::Socket),
            ("/w/to-host-file", FileKind::Symlink),
            ("/w/to-proc", FileKind::Symlink),
            ("/w/to-root", FileKind::Symlink),
        ]
    );
    for (path, content) in [
        ("/w/plain", "plain"),
        ("/w/twin", "plain"),
        ("/w/no\\xfftext", "1"),
        ("/w/new\nline", "2"),
        ("/w/\u{1b}[31mred\u{7}", "3"),
    ] {
        let artifact = &found[path];
        assert_eq!(
            artifact.sha256,
            Some(Hash::of(content.as_bytes())),
            "{path}"
        );
        assert_eq!(artifact.bytes.unwrap().value(), content.len() as u64);
    }
    let sparse = &found["/w/sparse"];
    assert_eq!(
        (sparse.bytes.unwrap().value(), sparse.sha256),
        (10 << 40, None)
    );
    let reasons = unmeasured(&run);
    assert!(reasons.contains(&"over-budget: /w/sparse"), "{reasons:?}");
    if is_root() {
        assert_eq!(found["/w/closed/f"].sha256, Some(Hash::of(b"4")));
        assert_eq!(found["/w/secret"].sha256, Some(Hash::of(b"5")));
        assert_eq!(reasons.len(), 1, "{reasons:?}");
    } else {
        assert_eq!(found["/w/secret"].sha256, None);
        for reason in [
            "unreadable: /w/closed (EACCES)",
            "unreadable: /w/secret (EACCES)",
        ] {
            assert!(reasons.contains(&reason), "{reasons:?}");
        }
        assert_eq!(reasons.len(), 3, "{reasons:?}");
    }
    let after = std::fs::metadata(&canary).unwrap();
    let state = |of: &std::fs::Metadata| {
        (
            of.ctime_nsec(),
            of.mtime_nsec(),
            of.atime_nsec(),
            of.mode(),
            of.len(),
        )
    };
    assert_eq!(state(&before), state(&after));
    // What is not looked into stays as it is.
    assert_eq!(
        std::fs::metadata(out.join("closed")).unwrap().mode() & 0o777,
        0
    );
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(out.join("closed"), open).unwrap();
}

#[test]
fn a_device_is_listed_and_not_opened() {
    const TEST: &str = "hostile::artifacts::a_device_is_listed_and_not_opened";
    let world = ready!();
    let (out, flags) = written(&world);
    // Nobody makes one inside.
    let script = "mknod /w/inside c 1 5 2>/dev/null && exit 9; mknod /tmp/inside c 1 5 2>/dev/null && exit 9; \
        : >/w/ready; until [ -e /w/go ]; do sleep 0.01; done; cat /w/device >/w/copy 2>/dev/null; exit 0";
    let mut run = super::Watched::start(&mut super::sh_command(&world, &flags, script, &[]));
    crate::world::until("it waits", || out.join("ready").exists());
    // /dev/zero: reading it has no end.
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
    let made = nix::sys::stat::mknod(
        &out.join("device"),
        nix::sys::stat::SFlag::S_IFCHR,
        mode,
        nix::sys::stat::makedev(1, 5),
    );
    std::fs::write(out.join("go"), "").unwrap();
    assert_eq!(run.wait(), Some(0));
    let run = outcome(&world).0;
    let found = artifacts(&world, &run);
    let device = found.iter().find(|artifact| artifact.path == "/w/device");
    match made {
        Ok(()) => {
            assert_eq!(device.unwrap().kind, FileKind::Device);
            // Nor could the workload open it.
            let copy = found
                .iter()
                .find(|artifact| artifact.path == "/w/copy")
                .unwrap();
            assert_eq!(copy.bytes.unwrap().value(), 0);
            assert_eq!(unmeasured(&run), [""; 0]);
        }
        Err(error) => skip(TEST, format!("no device can be made outside: {error}")),
    }
}

#[test]
fn a_hundred_thousand_files_are_listed_in_flat_memory() {
    const COUNT: usize = 100_000;
    let world = ready!();
    let (out, flags) = written(&world);
    misdeeds(&world, &flags, &[&format!("do:files:/w:{COUNT}")]).ended(0);
    let run = outcome(&world).0;
    let found = artifacts(&world, &run);
    assert_eq!(unmeasured(&run), [""; 0]);
    assert_eq!(found.len(), COUNT);
    for (number, artifact) in found.iter().enumerate() {
        assert_eq!(artifact.path, format!("/w/{number:06}"));
        assert_eq!(artifact.sha256, Some(Hash::of(b"")));
    }
    // The next run finds nothing new among them.
    sh(&world, &flags, "echo new >/w/new", &[]).ended(0);
    let run = outcome(&world).0;
    let found = artifacts(&world, &run);
    assert_eq!((found.len(), unmeasured(&run).len()), (1, 0));
    assert_eq!(found[0].path, "/w/new");
    remove(&out);
}

#[test]
fn folders_deeper_than_any_path_are_walked() {
    const DEPTH: usize = 3000;
    let world = ready!();
    let (out, flags) = written(&world);
    misdeeds(&world, &flags, &[&format!("do:deep:/w:{DEPTH}")]).ended(0);
    let run = outcome(&world).0;
    let found = artifacts(&world, &run);
    remove(&out);
    assert_eq!((found.len(), unmeasured(&run).len()), (1, 0));
    assert_eq!(found[0].path, format!("/w{}/bottom", "/d".repeat(DEPTH)));
    assert_eq!(found[0].sha256, Some(Hash::of(b"deep")));
}

#[test]
fn another_mount_below_is_said_and_not_entered() {
    const TEST: &str = "hostile::artifacts::another_mount_below_is_said_and_not_entered";
    let mut world = ready!();
    let (_, flags) = written(&world);
    world.folder("out/below");
    let mounts = r#"mount -t tmpfs none "$1/out/below"; chmod 777 "$1/out/below"; echo host >"$1/out/below/file""#;
    if let Err(reason) = world.mounted(mounts) {
        return skip(TEST, reason);
    }
    sh(
        &world,
        &flags,
        "echo mine >/w/mine; echo more >>/w/below/new",
        &[],
    )
    .ended(0);
    let run = outcome(&world).0;
    let found = artifacts(&world, &run);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "/w/mine");
    assert_eq!(unmeasured(&run), ["other-mount: /w/below"]);
}
