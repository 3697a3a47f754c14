//! What may only be read stays as it is, and holds nobody up, whatever is asked of its descriptor.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{policy, worlds};
use crate::world::{World, program, sandboxes, skip};

/// Prints for each line of `asked` what came of it: `ioctl NUMBER`, `fcntl NUMBER ARGUMENT` (of the folder `$1`, of `$1/file`, and of a
/// pipe), `call NUMBER` (of the path `$1/file`).
const SCRIPT: &str = r#"
import ctypes, errno, fcntl, os, sys
libc = ctypes.CDLL(None, use_errno=True)
folder, file = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[1] + '/file', os.O_RDONLY)
pipe, _ = os.pipe()
def said(result):
    return 'done' if result >= 0 else errno.errorcode[ctypes.get_errno()]
for asked in sys.argv[2:]:
    kind, number, *rest = asked.split()
    number = int(number, 0)
    room = ctypes.create_string_buffer(256)
    if kind == 'call':
        path = (sys.argv[1] + '/file').encode()
        print(asked, said(libc.syscall(number, -100, path, room, 24, 0)))
        continue
    call = libc.ioctl if kind == 'ioctl' else libc.fcntl
    third = ctypes.c_long(int(rest[0])) if rest else room
    on = {'folder': folder, 'file': file, 'pipe': pipe}
    for name, descriptor in on.items():
        print(asked, name, said(call(descriptor, ctypes.c_ulong(number), third)))
"#;

/// A folder with a file, both the caller's, and open to all.
fn shown(world: &World) -> std::path::PathBuf {
    for place in ["", "home"] {
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(world.path(place), open).unwrap();
    }
    let folder = world.folder("home/shown");
    world.file("home/shown/file", "content");
    let owner = std::fs::metadata(world.path("home")).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&owner);
    for path in [&folder, &folder.join("file")] {
        std::os::unix::fs::chown(path, Some(owner), Some(owner)).unwrap();
    }
    folder
}

/// What the workload was told, a line for each question.
fn asked(world: &World, flags: &str, python: &Path, folder: &Path, all: &[&str]) -> Vec<String> {
    let flags = format!("{flags} --read {}", folder.display());
    let (python, folder) = (python.to_str().unwrap(), folder.to_str().unwrap());
    let workload = [&[python, "-c", SCRIPT, folder], all].concat();
    let ran = world.exec(&flags, &workload).ended(0);
    ran.out.lines().map(str::to_owned).collect()
}

/// Numbers by which file systems change what is behind a descriptor, and some that nobody knows.
const CHANGING: [&str; 14] = [
    "ioctl 0x5000940e", // BTRFS_IOC_SUBVOL_CREATE
    "ioctl 0x800c6613", // FS_IOC_SET_ENCRYPTION_POLICY
    "ioctl 0x40086604", // EXT4_IOC_SETVERSION
    "ioctl 0x660c",     // EXT4_IOC_ALLOC_DA_BLKS
    "ioctl 0x40806685", // FS_IOC_ENABLE_VERITY
    "ioctl 0x40086602", // FS_IOC_SETFLAGS
    "ioctl 0x401c5820", // FS_IOC_FSSETXATTR
    "ioctl 0x40087602", // FS_IOC_SETVERSION
    "ioctl 0xc0189436", // FIDEDUPERANGE
    "ioctl 0x40047211", // FAT_IOCTL_SET_ATTRIBUTES
    "ioctl 0xc0045877", // FIFREEZE
    "ioctl 0x5412",     // TIOCSTI
    "ioctl 0x8912",     // SIOCGIFCONF
    "ioctl 0x12345678",
];

#[test]
fn without_namespaces_no_control_changes_what_may_only_be_read() {
    let test = "without_namespaces_no_control_changes_what_may_only_be_read";
    let Some(python) = program("python3") else {
        return skip(test, "no python3");
    };
    for world in worlds(test, "landlock") {
        let flags = policy(&world, |_| {});
        let folder = shown(&world);
        let told = asked(&world, &flags, &python, &folder, &CHANGING);
        assert_eq!(told.len(), 3 * CHANGING.len());
        let passed: Vec<_> = told.iter().filter(|it| !it.ends_with(" EPERM")).collect();
        assert_eq!(passed, [""; 0]);
        // Watching a folder, a hint about a file; attributes by a path.
        let all = ["fcntl 1026 0", "fcntl 1036", "call 468", "call 469"];
        let told = asked(&world, &flags, &python, &folder, &all);
        for (at, told) in told.iter().enumerate() {
            let end = if told.starts_with("call 468") {
                " ENOTSUP"
            } else {
                " EPERM"
            };
            assert!(told.ends_with(end), "{at}: {told}");
        }
        // What programs need passes: what is behind it answers.
        let all = [
            "ioctl 0x541b",
            "ioctl 0x5421",
            "ioctl 0x5451",
            "ioctl 0x5401",
            "ioctl 0x5413",
            "ioctl 0x40049409 0",
            "fcntl 1 0",
            "fcntl 1025 0",
        ];
        let told = asked(&world, &flags, &python, &folder, &all);
        assert_eq!(told.len(), 3 * all.len());
        assert!(told.iter().all(|it| !it.ends_with(" EPERM")), "{told:?}");
        assert!(told.contains(&"ioctl 0x541b pipe done".to_owned()));
        assert!(told.contains(&"ioctl 0x5401 pipe ENOTTY".to_owned()));
        assert!(world.last().declares("filesystem"));
    }
}

#[test]
fn without_namespaces_a_device_among_files_costs_the_declaration_and_works() {
    let test = "without_namespaces_a_device_among_files_costs_the_declaration_and_works";
    for world in worlds(test, "landlock") {
        let allow = |path: &str| {
            policy(&world, |policy| {
                policy["devices"] = serde_json::json!({ "allow": [path] });
            })
        };
        super::refused(&world, &allow("/dev/no-such-device"), "controls (ioctl)");
        // It is one that every workload has.
        world.exec(&allow("/dev/null"), &["true"]).ended(0);
        assert!(world.last().declares("filesystem"));
        let Some(python) = program("python3") else {
            skip(test, "no python3");
            continue;
        };
        let flags = format!("{} --best-effort", allow("/dev/no-such-device"));
        let folder = shown(&world);
        let all = ["ioctl 0x40086602", "ioctl 0xae01"];
        let told = asked(&world, &flags, &python, &folder, &all);
        assert!(
            told[..3].iter().all(|it| it.ends_with(" EPERM")),
            "{told:?}"
        );
        assert!(
            told[3..].iter().all(|it| it.ends_with(" ENOTTY")),
            "{told:?}"
        );
        assert!(!world.last().declares("filesystem"));
    }
}

#[test]
fn nobody_takes_a_lease_in_any_tier() {
    let test = "nobody_takes_a_lease_in_any_tier";
    let Some(python) = program("python3") else {
        return skip(test, "no python3");
    };
    let mut all = Vec::new();
    for (name, flags) in sandboxes(test) {
        all.push((name, flags, World::new()));
        all.extend(World::of_user(test, &[]).map(|world| (name, flags, world)));
    }
    for tier in ["no-proc", "landlock"] {
        let worlds = worlds(test, tier);
        all.extend(
            worlds
                .into_iter()
                .map(|world| (tier, "--runtime embedded", world)),
        );
    }
    for (name, flags, world) in all {
        if name != "landlock" && world.run("--json doctor").json()["ready"] != true {
            skip(test, format!("{name}: no namespaces"));
            continue;
        }
        let folder = shown(&world);
        // F_SETLEASE with F_WRLCK and F_RDLCK, F_SETDELEG.
        let commands = ["fcntl 1024 1", "fcntl 1024 0", "fcntl 1040"];
        let flags = format!("--best-effort {flags}");
        let told = asked(&world, &flags, &python, &folder, &commands);
        assert_eq!(told.len(), 9);
        let passed: Vec<_> = told.iter().filter(|it| !it.ends_with(" EPERM")).collect();
        assert_eq!(passed, [""; 0], "{name}");
        // To ask which lease there is holds nobody up.
        let told = asked(&world, &flags, &python, &folder, &["fcntl 1025 0"]);
        assert_eq!(told[1], "fcntl 1025 0 file done", "{name}");
    }
}
