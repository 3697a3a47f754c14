//! The program `verify`, asked about a ledger that the runner wrote.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// `verify`: `$VERIFY`, else the one that stands beside the runner. `None` where it was not built.
pub(crate) fn verifier() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let named = std::env::var_os("VERIFY").map(PathBuf::from);
        let beside = || Path::new(env!("CARGO_BIN_EXE_runner")).with_file_name("verify");
        Some(named.unwrap_or_else(beside)).filter(|path| path.is_file())
    });
    found.as_deref()
}

/// Why `verify` cannot be asked here.
pub(crate) const NO_VERIFIER: &str = "verify was not built: cargo build -p verify, or set VERIFY";

/// What `verify` says.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) code: i32,
    pub(crate) document: Value,
}

/// Has a ledger verified; the JSON document is held to what is promised of every one.
#[track_caller]
pub(crate) fn verdict(verify: &Path, ledger: &Path, checkpoint: Option<&Path>) -> Verdict {
    let mut command = Command::new(verify);
    command.arg(ledger).args(["--format", "json"]);
    if let Some(checkpoint) = checkpoint {
        command.arg("--checkpoint").arg(checkpoint);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let code = output.status.code().unwrap();
    assert_eq!(document["schema"], "verify/result/v1");
    assert_eq!(document["exitCode"], code);
    let verdict = Verdict { code, document };
    let classes = ["invalid", "unproven", "disagreement", "observation"];
    let ranks: Vec<_> = verdict
        .findings()
        .map(|finding| {
            classes
                .iter()
                .position(|class| finding["severity"] == *class)
        })
        .collect();
    assert!(ranks.is_sorted(), "the worst is not first: {verdict:#?}");
    assert!(!ranks.contains(&None), "{verdict:#?}");
    verdict
}

/// Runs `examples/verify.py` on a ledger or a bundle; says why not where it cannot be run.
pub(crate) fn by_python(path: &Path) -> Result<std::process::Output, &'static str> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/verify.py");
    let can = |python: &&str| {
        let tried = Command::new(python)
            .args(["-c", "import cryptography"])
            .output();
        tried.is_ok_and(|output| output.status.success())
    };
    let python = ["python3", "/usr/bin/python3"].into_iter().find(can);
    let python = python.ok_or("no python3 with the package cryptography")?;
    Ok(Command::new(python).arg(script).arg(path).output().unwrap())
}

impl Verdict {
    pub(crate) fn findings(&self) -> impl Iterator<Item = &Value> {
        self.document["findings"].as_array().unwrap().iter()
    }

    /// Codes above an observation, in their order.
    pub(crate) fn codes(&self) -> Vec<&str> {
        let failing = self
            .findings()
            .filter(|finding| finding["severity"] != "observation");
        failing
            .map(|finding| finding["code"].as_str().unwrap())
            .collect()
    }

    /// The first finding of a code.
    #[track_caller]
    pub(crate) fn finding(&self, code: &str) -> &Value {
        self.findings()
            .find(|finding| finding["code"] == code)
            .unwrap_or_else(|| panic!("no {code}: {self:#?}"))
    }

    /// Fails unless it ended with this status and names a finding of one of these codes.
    #[track_caller]
    pub(crate) fn is(&self, code: i32, any_of: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:#?}");
        let codes = self.codes();
        assert!(
            any_of.is_empty() || any_of.iter().any(|code| codes.contains(code)),
            "none of {any_of:?}: {self:#?}"
        );
        self
    }
}
