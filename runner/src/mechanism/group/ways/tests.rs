//! Made-up trees of groups, as other hosts have them.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::unified::is_socket_of;
use super::*;

const UID: u32 = 1000;

/// A tree below a folder; a group is ours where it has `cgroup.procs`.
struct Tree {
    base: tempfile::TempDir,
    runtime: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        Self {
            base: tempfile::tempdir().unwrap(),
            runtime: tempfile::tempdir().unwrap(),
        }
    }

    /// A group with these controllers, those that are on for the groups below it, and whether it is writable.
    fn group(&self, path: &str, controllers: &str, below: &str, writable: bool) -> &Self {
        let folder = self.base.path().join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.controllers"), controllers).unwrap();
        fs::write(folder.join("cgroup.subtree_control"), below).unwrap();
        if writable {
            fs::write(folder.join("cgroup.procs"), "").unwrap();
        }
        self
    }

    /// What systemd has of the user's: groups of the system's, and a manager whose subtree is delegated.
    fn systemd(delegated: &str) -> Self {
        let tree = Self::new();
        tree.group("", "cpuset cpu io memory pids", "cpu memory pids", false)
            .group("user.slice", "cpu memory pids", "cpu memory pids", false)
            .group(
                "user.slice/user-1000.slice",
                "cpu memory pids",
                "memory pids",
                false,
            )
            .group(
                "user.slice/user-1000.slice/session-3.scope",
                "memory pids",
                "",
                false,
            )
            .group(
                "user.slice/user-1000.slice/user@1000.service",
                delegated,
                delegated,
                true,
            )
            .group(
                "user.slice/user-1000.slice/user@1000.service/app.slice",
                delegated,
                "",
                true,
            )
            .group(
                "user.slice/user-1000.slice/user@1000.service/app.slice/x.service",
                "",
                "",
                true,
            );
        tree
    }

    fn unified(&self, own: &str) -> Hierarchy {
        let point = self.base.path().to_owned();
        Hierarchy {
            version: 2,
            controllers: Vec::new(),
            own: point.join(own),
            point,
            name: format!("/{own}"),
        }
    }

    fn version_1(&self, controllers: &[&str], own: &str) -> Hierarchy {
        let point = self.base.path().join(controllers.join(","));
        Hierarchy {
            version: 1,
            controllers: controllers.iter().map(ToString::to_string).collect(),
            own: point.join(own),
            point,
            name: format!("/{own}"),
        }
    }

    fn caller(&self, uid: u32) -> Caller {
        Caller {
            uid,
            manager: Some(self.runtime.path().to_owned()),
            given_to_root: |_| false,
        }
    }

    /// A socket of a manager; it belongs to whoever runs the test.
    fn manager(&self) -> UnixListener {
        let folder = self.runtime.path().join("systemd");
        fs::create_dir_all(&folder).unwrap();
        UnixListener::bind(folder.join("private")).unwrap()
    }
}

const SESSION: &str = "user.slice/user-1000.slice/session-3.scope";
const SERVICE: &str = "user.slice/user-1000.slice/user@1000.service/app.slice/x.service";

fn said(ways: &Ways, resource: Resource) -> String {
    match (ways.version_of(resource), ways.lacking.get(&resource)) {
        (Some(version), None) => format!("v{version}"),
        (None, Some(lack)) => format!("{:?}: {}", lack.kind, lack.detail),
        both => panic!("{both:?}"),
    }
}

#[test]
fn below_the_users_manager_leaves_are_made_in_its_own_group() {
    let tree = Tree::systemd("cpu memory pids");
    let ways = Ways::among(&[tree.unified(SERVICE)], &tree.caller(UID));
    let [place] = ways.places.as_slice() else {
        panic!("{ways:?}");
    };
    assert!(place.parent.ends_with("user@1000.service"), "{place:?}");
    assert_eq!(place.name, "/user.slice/user-1000.slice/user@1000.service");
    assert_eq!(place.resources, Resource::ALL);
    assert!(ways.manager.is_none() && ways.lacking.is_empty());
}

#[test]
fn what_is_not_delegated_is_named_with_what_is() {
    let tree = Tree::systemd("memory pids");
    let ways = Ways::among(&[tree.unified(SERVICE)], &tree.caller(UID));
    assert_eq!(said(&ways, Resource::Memory), "v2");
    let cpu = said(&ways, Resource::Cpu);
    assert!(
        cpu.starts_with("NotDelegated") && cpu.ends_with("has memory, pids and not cpu"),
        "{cpu}"
    );
}

#[test]
fn from_a_login_session_nothing_can_be_moved_and_the_manager_is_asked() {
    let tree = Tree::systemd("cpu memory pids");
    let own = nix::unistd::geteuid().as_raw();
    // Nobody to ask.
    let ways = Ways::among(&[tree.unified(SESSION)], &tree.caller(UID));
    let memory = said(&ways, Resource::Memory);
    assert!(memory.starts_with("NotWritable"), "{memory}");
    assert!(
        memory.contains("session-3.scope") && memory.contains("no service manager at"),
        "{memory}"
    );

    // A socket that somebody else listens on is not asked.
    let _listener = tree.manager();
    if own != UID {
        let ways = Ways::among(&[tree.unified(SESSION)], &tree.caller(UID));
        assert_eq!(ways.manager, None);
    }
    let group = format!("user.slice/user-{own}.slice/user@{own}.service");
    let offered = if own == 0 { "" } else { group.as_str() };
    tree.group(offered, "cpu memory", "", false);
    // Root's is asked for what the whole tree has.
    let caller = tree.caller(own);
    let ways = Ways::among(&[tree.unified(SESSION)], &caller);
    let manager = ways.manager.clone().unwrap();
    assert_eq!(manager.resources, [Resource::Memory, Resource::Cpu]);
    assert_eq!(said(&ways, Resource::Cpu), "v2");
    assert!(said(&ways, Resource::Tasks).starts_with("NotWritable") || own == 0);
}

#[test]
fn root_has_the_nearest_group_with_as_much_as_any() {
    let tree = Tree::new();
    tree.group("", "cpu memory pids", "cpu memory pids", true)
        .group("a", "cpu memory pids", "memory pids", true)
        .group("a/b", "memory pids", "", true);
    let mut caller = tree.caller(0);
    let ways = Ways::among(&[tree.unified("a/b")], &caller);
    assert_eq!(ways.places[0].parent, tree.base.path());
    assert_eq!(ways.places[0].name, "");
    // Where systemd gave it away, that is taken.
    caller.given_to_root = |path| path.ends_with("a");
    let ways = Ways::among(&[tree.unified("a/b")], &caller);
    assert!(ways.places[0].parent.ends_with("a"));
    assert!(said(&ways, Resource::Cpu).starts_with("NotDelegated"));
}

#[test]
fn a_group_that_is_there_and_not_writable_is_said_so() {
    // As under WSL2: version 2, root's, and no user manager.
    let tree = Tree::new();
    tree.group("", "cpu memory pids", "", false);
    let ways = Ways::among(&[tree.unified("")], &tree.caller(UID));
    assert!(ways.places.is_empty());
    for resource in Resource::ALL {
        let said = said(&ways, resource);
        assert!(
            said.starts_with("NotWritable") && said.contains("ENOENT"),
            "{said}"
        );
    }
}

#[test]
fn version_1_has_each_controller_in_its_own_hierarchy() {
    let tree = Tree::new();
    // A hybrid layout: version 2 has no controllers.
    tree.group("", "", "", true)
        .group("pids/a", "", "", true)
        .group("cpu,cpuacct/b", "", "", true)
        .group("memory/c", "", "", false);
    let all = [
        tree.unified(""),
        tree.version_1(&["pids"], "a"),
        tree.version_1(&["cpu", "cpuacct"], "b"),
        tree.version_1(&["memory"], "c"),
        tree.version_1(&["name=systemd"], ""),
    ];
    let ways = Ways::among(&all, &tree.caller(0));
    let found: Vec<_> = ways
        .places
        .iter()
        .map(|place| {
            (
                place.name.as_str(),
                place.controllers.as_str(),
                place.resources.as_slice(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("/a", "pids", [Resource::Tasks].as_slice()),
            ("/b", "cpu,cpuacct", [Resource::Cpu].as_slice())
        ]
    );
    let memory = said(&ways, Resource::Memory);
    assert!(
        memory.starts_with("NotWritable") && memory.contains("memory/c"),
        "{memory}"
    );
}

#[test]
fn cpu_time_is_counted_where_its_counter_is_a_hierarchy_of_its_own() {
    let tree = Tree::new();
    tree.group("pids", "", "", true)
        .group("cpuacct", "", "", true);
    let all = [
        tree.version_1(&["pids"], ""),
        tree.version_1(&["cpuacct"], ""),
    ];
    let ways = Ways::among(&all, &tree.caller(0));
    assert_eq!(ways.places.len(), 2);
    assert!(ways.places[1].resources.is_empty());
    // It is not made for itself alone.
    let ways = Ways::among(&all[1..], &tree.caller(0));
    assert!(ways.places.is_empty());
}

#[test]
fn without_groups_each_is_not_mounted() {
    let tree = Tree::new();
    let ways = Ways::among(&[], &tree.caller(UID));
    assert_eq!(said(&ways, Resource::Memory), "NotMounted: memory");
    assert_eq!(said(&ways, Resource::Tasks), "NotMounted: pids");
    assert_eq!(
        ways,
        Ways::among(&[tree.version_1(&["freezer"], "")], &tree.caller(UID))
    );
}

#[test]
fn a_link_in_place_of_a_socket_is_not_asked() {
    let tree = Tree::systemd("memory pids");
    let listener = tree.manager();
    let own = nix::unistd::geteuid().as_raw();
    let path = tree.runtime.path().join("systemd/private");
    assert!(is_socket_of(&path, own) && !is_socket_of(&path, own + 1));
    let link = tree.runtime.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(!is_socket_of(&link, own));
    drop(listener);
}
