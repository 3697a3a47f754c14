//! A module uses only what stands to its left (DESIGN.md §3).

use std::fs;
use std::path::{Path, PathBuf};

const ORDER: [&str; 6] = ["trust", "diff", "rules", "document", "report", "cli"];

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

fn place(module: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == module)
}

#[test]
fn modules_use_only_what_stands_to_their_left() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut uses = 0;
    for file in &files {
        let inside = file.strip_prefix(&root).unwrap();
        let first = inside.components().next().unwrap().as_os_str();
        let module = first.to_str().unwrap().trim_end_matches(".rs");
        if module == "lib" || module == "main" {
            continue;
        }
        let own = place(module).unwrap_or_else(|| panic!("{module} has no place in the order"));
        let text = fs::read_to_string(file).unwrap();
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for rest in code.flat_map(|line| line.split("crate::").skip(1)) {
            let name = rest
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or("");
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
    assert!(uses >= 3, "only {uses} uses found: the test reads nothing");
}
