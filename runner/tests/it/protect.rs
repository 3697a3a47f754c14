//! Paths below a written folder that run later on the host stay as they are: SANDBOX.md §2, `filesystem.protect`.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::world::{World, ready, until};

/// Every path below a folder with its content.
fn listing(folder: &Path) -> BTreeMap<String, String> {
    fn walk(root: &Path, folder: &Path, into: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_symlink() {
                into.insert(
                    name,
                    format!("-> {}", std::fs::read_link(&path).unwrap().display()),
                );
            } else if path.is_dir() {
                into.insert(format!("{name}/"), String::new());
                walk(root, &path, into);
            } else {
                into.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut into = BTreeMap::new();
    walk(folder, folder, &mut into);
    into
}

/// Ways to plant something that runs later; each prints its own words where it succeeds.
const ATTACK: &str = r#"cd "$1" || exit 9
for try in 'mkdir -p .git/hooks && echo x >.git/hooks/pre-commit' 'echo x >.git/hooks/pre-commit.sample' \
  'rm -r .git/hooks' 'rmdir .git/hooks' 'mv .git/hooks .git/h' 'mv .git other' 'rm -rf .git && mkdir -p .git/hooks' \
  'echo x >>.git' 'echo x >.git/config' 'echo x >>.envrc' 'rm .envrc' 'mv .envrc e' 'echo x >new && mv new .envrc' \
  'ln -sf /tmp .vscode' 'mkdir .vscode/x' 'echo x >.bashrc' 'chmod 777 .envrc' 'mkdir -p .github/workflows'; do
  (eval "$try") >/dev/null 2>&1 && echo "done: $try"
done
[ ! -d .git ] || { echo free >.git/free && rm .git/free && echo 'the rest is free'; }"#;

#[test]
fn hooks_that_exist_stay_as_they_are() {
    let world = ready!();
    let folder = world.folder("out");
    world.file("out/.git/hooks/pre-commit.sample", "theirs\n");
    world.file("out/.git/config", "[core]\n");
    world.file("out/.envrc", "export A=1\n");
    let before = listing(&folder);
    let ran = world.sh(&format!("--write {}", folder.display()), ATTACK, &[&folder]);
    assert_eq!(ran.ended(0).out, "the rest is free\n");
    assert_eq!(remove(listing(&folder), "new"), before);
    assert!(world.last().declares("filesystem"));
}

/// `new` is the attack's own.
fn remove(mut listing: BTreeMap<String, String>, name: &str) -> BTreeMap<String, String> {
    listing.remove(name);
    listing
}

#[test]
fn hooks_that_do_not_exist_cannot_be_made_and_nothing_is_left_behind() {
    let world = ready!();
    let folder = world.folder("out");
    world.file("out/main.c", "int main;\n");
    let before = listing(&folder);
    let ran = world.sh(&format!("--write {}", folder.display()), ATTACK, &[&folder]);
    assert_eq!(ran.ended(0).out, "the rest is free\n");
    assert_eq!(remove(listing(&folder), "new"), before);
    // Nor are placeholders artifacts of the workload.
    let artifacts = world.last().execution.artifacts.unwrap();
    assert_eq!(artifacts.count(), 1, "{artifacts:?}");
}

#[test]
fn a_git_file_stays_as_it_is() {
    let world = ready!();
    let folder = world.folder("out");
    world.file("out/.git", "gitdir: ../elsewhere\n");
    let before = listing(&folder);
    let ran = world.sh(&format!("--write {}", folder.display()), ATTACK, &[&folder]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(ran.out, "");
    assert_eq!(remove(listing(&folder), "new"), before);
    assert!(world.last().declares("filesystem"));
}

#[test]
fn a_git_link_cannot_be_protected_and_is_refused() {
    let world = ready!();
    let folder = world.folder("out");
    world.folder("elsewhere");
    symlink("../elsewhere", folder.join(".git")).unwrap();
    let before = listing(&folder);
    let flags = format!("--write {}", folder.display());
    let ran = world.exec(&flags, &["true"]).ended(126);
    assert!(ran.err.contains("protect-failed"), "{}", ran.err);
    let run = world.last();
    assert!(
        run.reason("filesystem")
            .unwrap()
            .starts_with("protect-failed")
    );
    world
        .exec(&format!("{flags} --best-effort"), &["true"])
        .ended(0);
    let run = world.last();
    assert!(!run.declares("filesystem"));
    assert!(
        run.reason("filesystem")
            .unwrap()
            .starts_with("protect-failed")
    );
    assert_eq!(listing(&folder), before);
}

#[test]
fn placeholders_are_gone_after_a_refused_run_and_after_a_killed_workload() {
    let world = ready!();
    let folder = world.folder("out");
    let flags = format!("--write {}", folder.display());
    world.exec(&flags, &["no-such-program"]).ended(127);
    assert!(listing(&folder).is_empty());
    world.sh(&flags, "kill -9 $$", &[]).ended(137);
    assert!(listing(&folder).is_empty());
    world
        .sh(&format!("{flags} --timeout 200ms"), "sleep 600", &[])
        .ended(124);
    assert!(listing(&folder).is_empty());
}

#[test]
fn a_policy_names_what_is_protected() {
    let world = ready!();
    let folder = world.folder("out");
    world.file("out/keep/file", "theirs\n");
    let policy = world.policy(|policy| {
        policy["filesystem"]["protect"] = serde_json::json!(["keep"]);
    });
    let ran = world.sh(
        &format!("-P {} --write {}", policy.display(), folder.display()),
        r#"cd "$1"; (echo x >keep/file) 2>/dev/null || echo kept; mkdir -p .git/hooks && echo hook >.git/hooks/x"#,
        &[&folder],
    );
    assert_eq!(ran.ended(0).out, "kept\n");
    assert_eq!(
        std::fs::read_to_string(folder.join(".git/hooks/x")).unwrap(),
        "hook\n"
    );
    assert_eq!(
        std::fs::read_to_string(folder.join("keep/file")).unwrap(),
        "theirs\n"
    );
}

/// Starts a workload that waits until a file beside it is there, and returns once it runs.
fn waiting(world: &World, flags: &str, folder: &Path, name: &str) -> std::process::Child {
    let script = format!(
        r#"cd "$1" && echo x >{name}.up && until [ -e {name}.go ]; do sleep 0.02; done
        mkdir -p .git/hooks; echo x >.git/hooks/pre-commit; echo x >.git/config; echo x >.envrc; true"#
    );
    let workload = ["sh", "-c", &script, "sh", &folder.display().to_string()];
    let child = world.exec_command(flags, &workload).spawn().unwrap();
    until("the workload runs", || {
        folder.join(format!("{name}.up")).exists()
    });
    child
}

/// What is there beside the files that [`waiting`] is steered with.
fn planted(folder: &Path) -> Vec<String> {
    let names = listing(folder).into_keys();
    names
        .filter(|name| !name.ends_with(".up") && !name.ends_with(".go"))
        .collect()
}

#[test]
fn a_run_that_ends_leaves_the_protection_of_another_alone() {
    let mut worlds = vec![ready!()];
    worlds.extend(World::of_user("guard", &[]));
    for world in worlds {
        // The caller's, whoever that is.
        let folder = world.path("home/work");
        let flags = format!("--write {}", folder.display());
        let mut first = waiting(&world, &flags, &folder, "a");
        let mut second = waiting(&world, &flags, &folder, "b");
        std::fs::write(folder.join("a.go"), "").unwrap();
        assert!(first.wait().unwrap().success());
        let between = planted(&folder);
        assert!(between.contains(&".git/hooks/".to_owned()), "{between:?}");
        std::fs::write(folder.join("b.go"), "").unwrap();
        assert!(second.wait().unwrap().success());
        assert_eq!(planted(&folder), Vec::<String>::new());
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    let world = ready!();
    let folder = world.folder("out");
    let flags = format!("--write {}", folder.display());
    let mut killed = waiting(&world, &flags, &folder, "a");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(planted(&folder).contains(&".git/hooks/".to_owned()));
    // What the user filled in the meantime is no placeholder any more.
    std::fs::write(folder.join(".envrc"), "mine\n").unwrap();
    // The kernel ends the killed run's workload on its own time; until then its journal may be held.
    until("the rest is swept", || {
        world.exec("", &["true"]).ended(0);
        planted(&folder) == [".envrc"]
    });
    let journals = world.path("state/containment-ledger/placeholders");
    assert_eq!(std::fs::read_dir(journals).unwrap().count(), 0);
}

#[test]
fn nobody_inside_reaches_the_journals() {
    let world = ready!();
    let state = world.folder("state");
    let ran = world.sh(
        &format!("--write {}", state.display()),
        r#"cd "$1/containment-ledger" && (echo x >placeholders/x) 2>/dev/null && echo written
        (mv placeholders p) 2>/dev/null && echo moved; ls placeholders"#,
        &[&state],
    );
    assert_eq!(ran.ended(0).out, "");
}

#[test]
fn mount_points_below_a_written_folder_are_gone_afterwards() {
    let world = ready!();
    let (outer, inner) = (world.folder("n1"), world.folder("n2"));
    world.file("n2/seen", "seen\n");
    let file = world.file("file", "file\n");
    let flags = format!(
        "--write {}:/n1 --read {}:/n1/a/b --read {}:/n1/c/d",
        outer.display(),
        inner.display(),
        file.display()
    );
    let ran = world.sh(&flags, "cat /n1/a/b/seen /n1/c/d", &[]);
    assert_eq!(ran.ended(0).out, "seen\nfile\n");
    assert!(listing(&outer).is_empty(), "{:?}", listing(&outer));
}

#[test]
fn what_decides_for_git_and_a_home_folder_stays_as_it_is() {
    let world = ready!();
    let folder = world.folder("home/repo");
    world.file("home/repo/.git/HEAD", "ref: refs/heads/main\n");
    world.file("home/repo/.bashrc", "# mine\n");
    let before = listing(&folder);
    let script = r#"cd "$1"; for file in .git/commondir .git/config.worktree .git/info/attributes \
        .git/modules/x .git/worktrees/x .gitconfig .config/git/config .config/systemd/x .config/autostart/x .ssh/rc \
        .bash_aliases .zlogout .xprofile .idea/x .husky/x; do
        (mkdir -p "${file%/*}"; echo x >"$file") 2>/dev/null && echo "$file"; done; cat .git/commondir"#;
    let flags = format!("--write {}", folder.display());
    let ran = world.sh(&flags, script, &[&folder]);
    // Git refuses a repository whose commondir is empty.
    assert_eq!(ran.ended(0).out, ".\n");
    assert_eq!(listing(&folder), before);
}
