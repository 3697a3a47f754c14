//! Ledgers of real executions, made here by the runner.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ledger::file::source::Source;
use ledger::file::walk::{Walked, walk};

use crate::world::{World, no_sandbox, skip};

/// The only segment of a ledger.
pub(crate) const SEGMENT: &str = "records/00000000.jsonl";
const OPENING: &[u8] = b"{\"open\":";

/// A ledger, file by file and line by line, and the lines of another one by the same key.
pub(crate) struct Real {
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(crate) lines: Vec<Vec<u8>>,
    pub(crate) sibling: Vec<Vec<u8>>,
}

pub(crate) fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.map(<[u8]>::to_vec).collect()
}

pub(crate) fn is_opening(line: &[u8]) -> bool {
    line.starts_with(OPENING)
}

pub(crate) fn gather(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_owned();
            files.insert(name, fs::read(&path).unwrap());
        }
    }
}

/// The ledgers; `None`, said on stderr, where no sandbox can be made.
pub(crate) fn real(test: &str) -> Option<&'static Real> {
    static MADE: OnceLock<Real> = OnceLock::new();
    if let Some(reason) = no_sandbox() {
        skip(test, reason);
        return None;
    }
    Some(MADE.get_or_init(make))
}

pub(crate) fn make() -> Real {
    let world = World::new();
    let key = world.path("shared.pem");
    world.run(&format!("key new {}", key.display())).ended(0);
    let out = world.folder("out");
    let run = |ledger: &Path, flags: &str, script: &str, code: i32| {
        let (ledger, key) = (ledger.display(), key.display());
        let line = format!("-q --ledger {ledger} --key {key} exec {flags} -- sh -c");
        let arguments = line.split_whitespace().chain([script]);
        let ended = world.command(arguments).output().unwrap().status.code();
        assert_eq!(ended, Some(code), "{script}");
    };
    let (one, other) = (world.path("one"), world.path("other"));
    let many = "i=0; while [ $i -lt 900 ]; do echo line $i; i=$((i+1)); done";
    for ledger in [&one, &other] {
        run(ledger, "", "echo words", 0);
        run(ledger, "--clear", "echo seen; echo told >&2; exit 3", 3);
        run(ledger, "", many, 0);
        run(
            ledger,
            &format!("--clear --write {}", out.display()),
            "echo > \"$PWD/x\" || :",
            0,
        );
        run(ledger, "--timeout 300ms", "while :; do :; done", 124);
        run(ledger, "", "exec /no/such/program", 127);
    }
    let note = format!(
        "--ledger {} --key {} note last",
        one.display(),
        key.display()
    );
    world.run(&note).ended(0);
    let mut files = BTreeMap::new();
    gather(&one, &one, &mut files);
    let lines = split(&files[Path::new(SEGMENT)]);
    let sibling = split(&fs::read(other.join(SEGMENT)).unwrap());
    let openings = lines.iter().filter(|line| is_opening(line)).count();
    assert_eq!((lines.len() - openings, openings), (15, 8));
    assert!(of_lines(&lines).findings.exit_code(15) == 0);
    Real {
        files,
        lines,
        sibling,
    }
}

pub(crate) fn of_lines(lines: &[Vec<u8>]) -> Walked {
    let bytes = Cursor::new(lines.concat());
    let mut source = Source::from_reader("-", Box::new(bytes));
    walk(&mut source, None, &mut ()).unwrap()
}

impl Real {
    /// The ledger with other lines, as a folder.
    pub(crate) fn folder(&self, lines: &[Vec<u8>]) -> tempfile::TempDir {
        self.folder_with(Path::new(SEGMENT), &lines.concat())
    }

    /// The ledger with one file that has other content.
    pub(crate) fn folder_with(&self, name: &Path, content: &[u8]) -> tempfile::TempDir {
        let at = tempfile::tempdir().unwrap();
        for (path, bytes) in &self.files {
            let path = at.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fs::write(at.path().join(name), content).unwrap();
        at
    }

    pub(crate) fn blobs(&self) -> Vec<&PathBuf> {
        self.files
            .keys()
            .filter(|path| path.starts_with("blobs"))
            .collect()
    }
}

/// A line without its newline.
pub(crate) fn content(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap()
}
