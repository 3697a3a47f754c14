//! What bubblewrap is told: names are words whatever they look like, values and evidence are not among them.

use super::with_bwrap;
use crate::world::{contains, until};

#[test]
fn hostile_names_are_words() {
    let world = with_bwrap!();
    let arguments = [
        "--unshare-net",
        "--",
        "a b",
        "\n",
        "",
        "\u{1b}[31m",
        "--bind",
    ];
    let mut workload = vec!["sh", "-c", "printf '<%s>' \"$@\"", "sh"];
    workload.extend(arguments);
    let ran = world.exec("--runtime bwrap", &workload).ended(0);
    let expected: String = arguments.iter().map(|word| format!("<{word}>")).collect();
    assert_eq!(ran.out, expected);
    for name in ["--dev-bind", "-", "new\nline", "--ro-bind-try x", "é"] {
        let folder = world.folder(&format!("names/{name}"));
        std::fs::write(folder.join("f"), name).unwrap();
        let mut command = world.command(["exec", "--runtime", "bwrap", "--read"]);
        command.arg(format!("{}:/r/{name}", folder.display()));
        command
            .args(["--write"])
            .arg(&folder)
            .args(["--", "sh", "-c"]);
        command.args(["cat \"$1/f\" \"$2/f\"", "sh"]);
        command.arg(format!("/r/{name}")).arg(&folder);
        let ran = crate::world::Ran::of(command.output().unwrap());
        assert_eq!(ran.ended(0).out, format!("{name}{name}"));
    }
}

#[test]
fn values_are_in_no_command_line_and_variables_do_not_reach_bubblewrap() {
    let world = with_bwrap!();
    let value = format!("value-{}-of-nobody-else", std::process::id());
    let folder = world.folder("w");
    let world = world.with("SECRET", &value).with("VARIABLE", &value);
    // What the dynamic linker reads works on the workload alone.
    let flags = format!(
        "--runtime bwrap --secret SECRET --env VARIABLE --env LD_PRELOAD=/no/such.so --write {}",
        folder.display()
    );
    let script = "cat /run/secrets/SECRET > \"$1/ready.new\"; printf %s $VARIABLE >> \"$1/ready.new\"; mv \"$1/ready.new\" \"$1/ready\"
        while [ ! -e \"$1/go\" ]; do sleep 0.05; done; ls -l /run/secrets";
    let path = folder.to_str().unwrap();
    let runner = world
        .exec_command(&flags, &["sh", "-c", script, "sh", path])
        .spawn()
        .unwrap();
    until("the workload runs", || folder.join("ready").exists());
    let ready = std::fs::read_to_string(folder.join("ready")).unwrap();
    assert_eq!(ready, format!("{value}{value}"));
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        assert!(
            !contains(&line, &value),
            "{}",
            String::from_utf8_lossy(&line)
        );
        if contains(&line, "--block-fd") {
            seen += 1;
            let environment = std::fs::read(entry.path().join("environ"));
            // Of a process that nobody may look into nothing is known.
            if let Ok(environment) = environment {
                assert!(!contains(&environment, &value));
                assert!(!contains(&environment, "LD_PRELOAD"));
            }
        }
    }
    assert!(seen > 0, "no bubblewrap was looked at");
    std::fs::write(folder.join("go"), "").unwrap();
    let ran = crate::world::Ran::of(runner.wait_with_output().unwrap());
    let ran = ran.ended(0);
    assert!(ran.out.contains("-r--------"), "{}", ran.out);
    assert!(!contains(&world.ledger_bytes(), &value));
}

#[test]
fn evidence_is_out_of_reach_below_a_writable_folder() {
    let world = with_bwrap!();
    world.exec("--runtime bwrap", &["true"]).ended(0);
    let key = std::fs::read_dir(world.keys()).unwrap().next();
    let key = key.unwrap().unwrap().path();
    let base = world.path("");
    let base = base.to_str().unwrap().trim_end_matches('/');
    let script = "ls -A \"$1\" \"$2\"; cat \"$3\"; echo x > \"$1/x\"; mv \"$1\" \"$1.moved\"; rmdir \"$1\"; cat /proc/mounts > /dev/null; echo end";
    let (ledger, keys) = (world.ledger(), world.keys());
    let ran = world.sh(
        &format!("--runtime bwrap --write {base}"),
        script,
        &[&ledger, &keys, &key],
    );
    let ran = ran.ended(0);
    // In the order of ls.
    let expected = format!("{}:\n\n{}:\nend\n", keys.display(), ledger.display());
    assert_eq!(ran.out, expected, "{}", ran.err);
    let run = world.last();
    assert!(run.declares("filesystem"));
    assert_eq!(run.start.key_reachable, None);
    assert!(ledger.join("records").exists());
}

#[test]
fn protected_paths_stay_as_they_are() {
    let world = with_bwrap!();
    let folder = world.folder("project");
    std::fs::create_dir_all(folder.join(".git/hooks")).unwrap();
    let script = "cd \"$1\"; echo x > .git/hooks/pre-commit; mv .git old; ln -s /tmp .vscode/x; echo ok > file; cat file";
    let flags = format!("--runtime bwrap --write {}", folder.display());
    let ran = world.sh(&flags, script, &[&folder]).ended(0);
    assert_eq!(ran.out, "ok\n", "{}", ran.err);
    let left: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        left.len() == 2 && left.contains(&".git".to_owned()),
        "{left:?}"
    );
    assert_eq!(
        std::fs::read_dir(folder.join(".git/hooks"))
            .unwrap()
            .count(),
        0
    );
    // The caller's file, with the caller's owner.
    use std::os::unix::fs::MetadataExt as _;
    let owner = std::fs::metadata(folder.join("file")).unwrap().uid();
    assert_eq!(owner, nix::unistd::geteuid().as_raw());
}

#[test]
fn a_protected_path_that_is_a_link_is_not_followed() {
    let world = with_bwrap!();
    let folder = world.folder("project/.git");
    let elsewhere = world.folder("elsewhere");
    std::fs::write(elsewhere.join("f"), "of the host").unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.join("hooks")).unwrap();
    let project = world.path("project");
    let flags = format!("--runtime bwrap --write {}", project.display());
    let ran = world.exec(&flags, &["true"]).ended(126);
    assert!(
        ran.err.contains("filesystem: protect-failed"),
        "{}",
        ran.err
    );
    let script = "cat \"$1/.git/hooks/f\"; true";
    let ran = world.sh(&format!("{flags} --best-effort"), script, &[&project]);
    assert_eq!(ran.ended(0).out, "");
    let run = world.last();
    assert!(!run.declares("filesystem"));
    assert_eq!(run.execution.verdict.as_str(), "controls-missing");
}

#[test]
fn input_is_passed_on() {
    let world = with_bwrap!();
    let input = world.file("input", "from outside");
    let mut command = world.exec_command("--runtime bwrap", &["cat"]);
    command.stdin(std::fs::File::open(input).unwrap());
    let ran = crate::world::Ran::of(command.output().unwrap());
    assert_eq!(ran.ended(0).out, "from outside");
}

/// The workload can write to its memory (`/proc/1/mem`) where nothing but ids keeps them apart.
#[test]
fn bubblewraps_own_process_inside_is_under_the_same() {
    let world = with_bwrap!();
    let script = "for n in Uid Gid Groups CapBnd CapEff NoNewPrivs Seccomp Seccomp_filters; do
        grep ^$n: /proc/1/status > /tmp/1; grep ^$n: /proc/self/status > /tmp/2; cmp /tmp/1 /tmp/2 || echo $n; done
        grep '^Max open files' /proc/1/limits | tr -s ' '
        [ $(cat /proc/self/oom_score_adj) -gt $(cat /proc/1/oom_score_adj) ] && echo killed first";
    let policy = world.policy(|_| {});
    let flags = format!("--runtime bwrap -P {}", policy.display());
    let ran = world.sh(&flags, script, &[]).ended(0);
    assert_eq!(ran.out, "Max open files 128 128 files \nkilled first\n");
}
