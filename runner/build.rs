//! Builds the probe program for the target, static, so that it runs in a root that holds nothing else, and leaves it where
//! `measure::program` takes it from.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let sources = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../probes");
    for name in ["src", "suite.json"] {
        println!("cargo::rerun-if-changed={}", sources.join(name).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let target = variable("TARGET")?;
    let into = PathBuf::from(variable("OUT_DIR")?).join("probe");
    let mut compile = Command::new(variable("RUSTC")?);
    compile
        .args([
            "--edition",
            "2024",
            "--crate-name",
            "probe",
            "--crate-type",
            "bin",
        ])
        .args([
            "--cap-lints",
            "allow",
            "-C",
            "target-feature=+crt-static",
            "-O",
        ])
        .args([
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
            "-C",
            "codegen-units=1",
        ])
        .arg("--target")
        .arg(&target)
        // The bytes say nothing about where they were built.
        .arg("--remap-path-prefix")
        .arg(prefix(&sources))
        .arg("-o")
        .arg(&into)
        .arg(sources.join("src/main.rs"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = OsString::from("linker=");
        argument.push(linker);
        compile.arg("-C").arg(argument);
    }
    let output = compile.output().map_err(|error| {
        format!(
            "failed to start {}: {error}",
            compile.get_program().display()
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let target = target.to_string_lossy();
    Err(format!(
        "{}the probe program could not be built for {target}:\n{said}",
        hint(&said, &target)
    ))
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("cargo did not set {name}"))
}

fn prefix(sources: &Path) -> OsString {
    let mut text = sources.as_os_str().to_owned();
    text.push("=probes");
    text
}

/// What to install, where the linker found no C library to put in.
fn hint(said: &str, target: &str) -> String {
    // As ld, lld and gcc name it.
    let missing = [
        "cannot find -lc",
        "unable to find library -lc",
        "cannot find crt1.o",
        "cannot open crt1.o",
    ];
    if said.contains("can't find crate for `std`") {
        format!("the standard library of the target is missing: type rustup target add {target}\n")
    } else if missing.iter().any(|text| said.contains(text)) {
        "the static C library is missing: install libc6-dev (Debian, Ubuntu), glibc-static (Fedora, RHEL) or musl-dev (Alpine)\n".to_owned()
    } else {
        String::new()
    }
}
