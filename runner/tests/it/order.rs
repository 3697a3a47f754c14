//! The modules of `runner` use only what stands to their left (DESIGN.md §3), and `unsafe` stands below `sys` alone.

use std::fs;
use std::path::{Path, PathBuf};

const ORDER: [&str; 9] = [
    "sys",
    "host",
    "mechanism",
    "plan",
    "init",
    "runtime",
    "run",
    "measure",
    "cli",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every source with the module of the crate it belongs to, comments left out.
fn modules() -> Vec<(PathBuf, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 30, "only {} sources found", files.len());
    files
        .into_iter()
        .map(|file| {
            let inside = file.strip_prefix(&root).unwrap();
            let first = inside
                .components()
                .next()
                .unwrap()
                .as_os_str()
                .to_str()
                .unwrap();
            let module = first.trim_end_matches(".rs").to_owned();
            let text = fs::read_to_string(&file).unwrap();
            let code: Vec<&str> = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            (file, module, code.join("\n"))
        })
        .collect()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Modules that a text names through `crate::`, alone or in braces.
fn named(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let listed = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let list = listed.map_or(rest, |(list, _)| list);
        let parts = if listed.is_some() {
            list.split(',').collect()
        } else {
            vec![list]
        };
        names.extend(parts.into_iter().map(|part| {
            part.trim_start()
                .split(|c| !is_name(c))
                .next()
                .unwrap_or("")
        }));
    }
    names.retain(|name| !name.is_empty());
    names
}

fn place(module: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == module)
}

#[test]
fn modules_use_only_what_stands_to_their_left() {
    let mut uses = 0;
    for (file, module, code) in modules() {
        if module == "lib" || module == "main" {
            continue;
        }
        let own = place(&module).unwrap_or_else(|| panic!("{module} has no place in the order"));
        for name in named(&code) {
            let used = place(name)
                .unwrap_or_else(|| panic!("{}: crate::{name} has no place", file.display()));
            assert!(
                used <= own,
                "{}: {module} uses {name}, which stands to its right",
                file.display()
            );
            uses += 1;
        }
    }
    assert!(uses > 50, "only {uses} uses found: the test reads nothing");
}

#[test]
fn names_are_found_in_every_form() {
    assert_eq!(
        named("use crate::sys;\ncrate::host::now()"),
        ["sys", "host"]
    );
    assert_eq!(named("use crate::{sys::mount, plan};"), ["sys", "plan"]);
}

#[test]
fn unsafe_code_stands_below_sys_alone() {
    let mut inside = 0;
    for (file, module, code) in modules() {
        // The lint's name is no use of it.
        let code = code.replace("unsafe_code", "");
        let uses = code
            .split(|c| !is_name(c))
            .filter(|word| *word == "unsafe")
            .count();
        if module == "sys" {
            inside += uses;
        } else {
            assert_eq!(uses, 0, "{}: unsafe outside runner/src/sys", file.display());
        }
    }
    assert!(
        inside > 20,
        "only {inside} uses found: the test reads nothing"
    );
}
