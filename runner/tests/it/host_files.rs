//! The host's tree read-only, a folder as root, and the kernel's own files: SANDBOX.md §2.

use crate::world::{World, ready, skip};

/// A world with a home on a file system of its own at /srv, where no policy hides it.
fn world_with_a_home_in_srv(test: &str) -> Option<World> {
    let mut world = World::new();
    let script = r#"umask 022; mount -t tmpfs -o mode=0755 none /srv; mkdir -p /srv/home/.ssh /srv/home/.config/gcloud
        echo SEEN >/srv/home/.ssh/id; echo SEEN >/srv/home/.config/gcloud/token; echo SEEN >/srv/home/.netrc
        echo plain >/srv/home/file; chmod -R a+rwX /srv/home; export HOME=/srv/home"#;
    match world.mounted(script) {
        Ok(()) => Some(world),
        Err(reason) => {
            skip(test, reason);
            None
        }
    }
}

#[test]
fn a_read_only_host_hides_secrets_and_sockets() {
    let Some(world) = world_with_a_home_in_srv("a_read_only_host_hides_secrets_and_sockets") else {
        return;
    };
    let policy = world.policy(|policy| policy["filesystem"]["root"] = "host-readonly".into());
    let ran = world.sh(
        &format!("-P {}", policy.display()),
        r#"cat /srv/home/file; cd /srv/home
           for path in .ssh/id .config/gcloud/token .netrc /etc/shadow; do grep -c . "$path" 2>/dev/null; done
           for path in file new .ssh/new /usr/x /x; do (: >>"$path") 2>/dev/null && echo "wrote $path"; done
           find /run -type s 2>/dev/null; [ -e /sys/class ] && echo sys; ls -A /tmp"#,
        &[],
    );
    // A covered file reads as empty: grep counts 0 lines.
    assert_eq!(ran.ended(0).out, "plain\n0\n0\n");
    assert!(world.last().declares("filesystem"));
}

#[test]
fn secrets_behind_links_are_hidden_where_they_lie() {
    const TEST: &str = "secrets_behind_links_are_hidden_where_they_lie";
    let mut world = World::new();
    let script = r#"umask 022; mount -t tmpfs -o mode=0755 none /srv; cd /srv; mkdir -p home/dot/ssh home/.aws
        echo SEEN >home/dot/ssh/id; echo SEEN >home/dot/netrc; echo SEEN >home/dot/aws; echo plain >home/dot/file
        ln -s dot/ssh home/.ssh; ln -s dot/netrc home/.netrc; ln -s ../dot/aws home/.aws/credentials
        ln -s /usr/bin/env home/.aws/tool; chmod -R a+rwX home; export HOME=/srv/home"#;
    if let Err(reason) = world.mounted(script) {
        return skip(TEST, reason);
    }
    let policy = world.policy(|policy| policy["filesystem"]["root"] = "host-readonly".into());
    let ran = world.sh(
        &format!("-P {}", policy.display()),
        r#"cd /srv/home; cat dot/ssh/id .ssh/id dot/netrc .netrc dot/aws .aws/credentials dot/file 2>/dev/null
           readlink .ssh .netrc; env true && [ -s /usr/bin/env ] && echo env"#,
        &[],
    );
    assert_eq!(ran.ended(0).out, "plain\ndot/ssh\ndot/netrc\nenv\n");
    assert!(world.last().declares("filesystem"));
}

#[test]
fn devices_that_the_sandbox_has_itself_or_that_are_none_are_said() {
    let world = ready!();
    let allow = |list: &[&str]| {
        let policy = world.policy(|policy| policy["devices"]["allow"] = serde_json::json!(list));
        format!("-P {}", policy.display())
    };
    let own = [
        "/dev/ptmx",
        "/dev/fd",
        "/dev/stdin",
        "/dev/pts",
        "/dev/shm",
        "/dev/mqueue",
        "/dev/null",
        "/dev/no-such",
    ];
    let ran = world.sh(&allow(&own), "echo x >/dev/null; readlink /dev/ptmx", &[]);
    assert_eq!(ran.ended(0).out, "pts/ptmx\n");
    for path in ["/dev/pts/ptmx", "/dev/shm/x", "/dev/fd/0"] {
        let ran = world.exec(&allow(&[path]), &["true"]).ended(125);
        assert!(
            ran.err.contains(path) && ran.err.contains("of its own"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn a_folder_as_root_shows_that_folder_alone() {
    let world = ready!();
    let root = world.folder("root");
    world.file("root/data/file", "content\n");
    for (name, to) in [
        ("bin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ] {
        std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    }
    let policy = world.policy(|policy| {
        policy["filesystem"]["root"] = "custom".into();
        policy["filesystem"]["path"] = root.to_str().unwrap().into();
        policy["filesystem"]["readOnly"] = serde_json::json!(["/usr"]);
    });
    let ran = world.sh(
        &format!("-P {}", policy.display()),
        r#"cat /data/file; (: >/data/new) 2>/dev/null && echo wrote; ls -d /etc /home /opt /srv /var/lib 2>/dev/null; :"#,
        &[],
    );
    assert_eq!(ran.ended(0).out, "content\n");
    assert!(!root.join("data/new").exists());
}

#[test]
fn the_callers_folder_is_none_where_the_sandbox_has_its_own() {
    let world = ready!();
    let policy = world.policy(|policy| {
        policy["filesystem"] = serde_json::json!({"root": "custom", "path": "/"});
    });
    let policy = policy.display().to_string();
    // The caller's is below /tmp, of which the sandbox has one of its own.
    if !world.path("home/work").starts_with("/tmp") {
        return skip("the_callers_folder_is_none", "TMPDIR is not below /tmp");
    }
    let planned = world.run(&format!("plan -P {policy} -- pwd")).ended(0);
    let ran = world.exec(&format!("-P {policy}"), &["pwd"]).ended(0);
    let folder = ran.out.trim();
    assert!(
        planned.out.contains(&format!("starts in {folder}\n")),
        "{}",
        planned.out
    );
    assert_eq!(folder, "/workspace");
}

#[test]
fn files_that_reach_the_kernel_are_closed_under_every_root() {
    const PATTERN: &str = "/proc/sys/kernel/core_pattern";
    let before = std::fs::read_to_string(PATTERN).unwrap();
    for root in ["ephemeral", "host-readonly"] {
        let world = ready!();
        let policy = world.policy(|policy| policy["filesystem"]["root"] = root.into());
        let ran = world.sh(
            &format!("-P {}", policy.display()),
            r#"for path in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sysrq-trigger \
                 /proc/sys/vm/drop_caches /proc/irq/default_smp_affinity /proc/sys/user/max_user_namespaces; do
                 [ -e "$path" ] && (: >"$path") 2>/dev/null && echo "opened $path"; done
               for path in /proc/kcore /proc/keys /proc/timer_list /proc/sched_debug; do
                 [ -s "$path" ] && echo "size $path"; head -c 1 "$path" 2>/dev/null; done
               ls -A /proc/acpi /proc/scsi 2>/dev/null | grep -v '^/' | grep . ; :"#,
            &[],
        );
        assert_eq!(ran.ended(0).out, "", "{root}");
        assert!(world.last().declares("filesystem"), "{root}");
    }
    assert_eq!(std::fs::read_to_string(PATTERN).unwrap(), before);
}

#[test]
fn devices_are_the_harmless_ones() {
    let world = ready!();
    let ran = world.sh(
        "",
        r#"cd /dev; ls -A | sort | tr '\n' ' '; echo; head -c 4 /dev/zero | wc -c; echo x >/dev/null
           mknod /tmp/sda b 8 0 2>/dev/null && echo made; :"#,
        &[],
    );
    let out = ran.ended(0).out;
    let listed: Vec<&str> = out.lines().next().unwrap().split_whitespace().collect();
    for name in &listed {
        let known = [
            "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
            "stdout", "tty", "urandom", "zero",
        ];
        assert!(known.contains(name), "/dev/{name}");
    }
    assert!(listed.contains(&"null") && listed.contains(&"urandom"));
    assert!(out.ends_with("\n4\n"), "{out}");
    assert!(world.last().declares("devices"));
}
