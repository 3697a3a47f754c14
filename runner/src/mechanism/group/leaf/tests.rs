use super::*;

/// A folder with files as a kernel would have them: what is written is there, and nothing more.
fn made_up(version: u8, files: &[(&str, &str)]) -> (tempfile::TempDir, Leaf) {
    let parent = tempfile::tempdir().unwrap();
    let leaf = Leaf::make(version, parent.path(), "/a", "leaf", String::new()).unwrap();
    for (name, text) in files {
        fs::write(leaf.folder.join(name), text).unwrap();
    }
    (parent, leaf)
}

#[test]
fn quotas_stay_above_the_kernels_least() {
    assert_eq!(quota(500), (50_000, 100_000));
    assert_eq!(quota(2_000), (200_000, 100_000));
    assert_eq!(quota(10), (1_000, 100_000));
    assert_eq!(quota(9), (9_000, 1_000_000));
    assert_eq!(quota(1), (1_000, 1_000_000));
    assert_eq!(
        (cpus(500), cpus(2_000), cpus(25)),
        ("0.5".into(), "2".into(), "0.025".into())
    );
    assert_eq!(cpus(12_050), "12.05");
}

#[test]
fn limits_of_version_2_are_written_and_read_back() {
    // The files of a test keep what was longer before.
    let (_parent, leaf) = made_up(
        2,
        &[
            ("memory.max", ""),
            ("memory.swap.max", ""),
            ("pids.max", ""),
            ("cpu.max", ""),
        ],
    );
    let limits = Limits {
        memory_bytes: Some(64 << 20),
        tasks: Some(8),
        cpu_millis: Some(500),
        beside: 1,
    };
    let of = |resource| leaf.limit(resource, &limits).unwrap().unwrap();
    let (memory, tasks, cpu) = (of(Resource::Memory), of(Resource::Tasks), of(Resource::Cpu));
    assert_eq!(
        (memory.mechanism, memory.value.as_str()),
        ("cgroup-v2 memory.max", "64 MiB")
    );
    assert_eq!(
        (tasks.mechanism, tasks.value.as_str()),
        ("cgroup-v2 pids.max", "8 tasks")
    );
    assert_eq!(cpu.value, "0.5 of a CPU, 50 ms in 100 ms");
    let text = |name| fs::read_to_string(leaf.folder.join(name)).unwrap();
    assert_eq!(text("memory.swap.max"), "0");
    assert_eq!(
        text("pids.max"),
        "9",
        "the sandbox's own pid 1 has its place"
    );
    assert_eq!(text("cpu.max"), "50000 100000");
    assert_eq!(leaf.limit(Resource::Cpu, &Limits::default()).unwrap(), None);
}

#[test]
fn a_limit_that_reads_back_otherwise_is_none() {
    // A file that takes nothing: what is read is not what was asked for.
    let (_parent, leaf) = made_up(2, &[]);
    std::os::unix::fs::symlink("/dev/null", leaf.folder.join("pids.max")).unwrap();
    let failure = leaf.limit_tasks(5, 1).unwrap_err();
    assert!(failure.attempt.contains("pids.max"), "{failure}");
    // A file that is not there is the kernel's answer.
    let failure = leaf.limit_memory(1 << 20).unwrap_err();
    assert_eq!(failure.error, "ENOENT", "{failure}");
}

#[test]
fn members_are_known_by_hierarchy_and_name() {
    let (_parent, mut leaf) = made_up(2, &[]);
    assert!(leaf.holds("4:memory:/x\n0::/a/leaf\n"));
    assert!(!leaf.holds("0::/a\n0::/a/leaf2\n4:memory:/a/leaf\n"));
    leaf.controllers = "cpu,cpuacct".to_owned();
    assert!(leaf.holds("3:cpu,cpuacct:/a/leaf\n"));
    assert!(!leaf.holds("3:cpu:/a/leaf\n0::/a/leaf\n"));
    leaf.name = "/with:colon/leaf".to_owned();
    assert!(leaf.holds("3:cpu,cpuacct:/with:colon/leaf\n"));
}

#[test]
fn what_is_gone_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    remove(&folder.path().join("gone")).unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    remove(&inner).unwrap();
    assert!(!inner.exists());
}
