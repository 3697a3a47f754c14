//! Builds the two programs that are executed inside sandboxes, static, so that they run in a root that holds nothing else: the
//! probe program, which `measure::program` carries, and the gate, which `init::launcher` does.

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
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let probes = here.join("../probes");
    for name in ["src", "suite.json"] {
        println!("cargo::rerun-if-changed={}", probes.join(name).display());
    }
    println!("cargo::rerun-if-changed=gate");
    println!("cargo::rerun-if-changed=build.rs");
    compile(
        "probe",
        &probes,
        "src/main.rs",
        &["-C", "target-feature=+crt-static"],
    )?;
    // It has nothing but system calls: no C library, and nothing to relocate.
    let mut bare = vec![
        "-C",
        "relocation-model=static",
        "-C",
        "link-arg=-nostartfiles",
        "-C",
        "link-arg=-nostdlib",
        "-C",
        "link-arg=-static",
    ];
    if variable("TARGET")?.to_string_lossy().contains("musl") {
        // Else rustc adds a beginning of its own.
        bare.extend(["-C", "link-self-contained=no"]);
    }
    compile("gate", &here.join("gate"), "main.rs", &bare)
}

fn compile(name: &str, sources: &Path, main: &str, how: &[&str]) -> Result<(), String> {
    let target = variable("TARGET")?;
    let into = PathBuf::from(variable("OUT_DIR")?).join(name);
    let mut compile = Command::new(variable("RUSTC")?);
    compile
        .args(["--edition", "2024", "--crate-name", name])
        .args(["--crate-type", "bin", "--cap-lints", "allow", "-O"])
        .args(["-C", "panic=abort", "-C", "strip=symbols"])
        .args(["-C", "codegen-units=1"])
        .args(how)
        .arg("--target")
        .arg(&target)
        // The bytes say nothing about where they were built.
        .arg("--remap-path-prefix")
        .arg(prefix(sources, name))
        .arg("-o")
        .arg(&into)
        .arg(sources.join(main));
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
        "{}the program {name} could not be built for {target}:\n{said}",
        hint(&said, &target)
    ))
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("cargo did not set {name}"))
}

fn prefix(sources: &Path, name: &str) -> OsString {
    let mut text = sources.as_os_str().to_owned();
    text.push("=");
    text.push(if name == "probe" { "probes" } else { name });
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
