//! `runner-wasi` runs one WebAssembly module (WASI preview 1) for `runner`, which finds this program beside itself.
//!
//! It is a program of its own because it holds a compiler: `runner` executes itself again inside each sandbox, and must stay
//! small. What they say to each other stands in [`talk`]:
//!
//! ```text
//! descriptor 3  a file: what is to be run, and under what
//! descriptor 4  a pipe: this program writes what stands ready, once, and a byte when the module begins
//! descriptor 5  a pipe: a byte lets the module begin; its end means that nobody waits any more, and ends this program
//! from 6 on     the folders that the module sees, opened by the runner
//! ```
//! Everything is compiled, opened and limited before the report; of the module not one instruction runs before the byte.

#![forbid(unsafe_code)]

mod limits;
mod run;
mod talk;

use std::process::ExitCode;

/// Status of a module that trapped: that of a program that aborted, as a shell would tell it.
const TRAPPED: u8 = 134;
/// Room on the stack for compiling and for the module, whatever limit this program was started with: the engine lets a module
/// have half a MiB, and finds out at that and not at the stack's end.
const STACK: usize = 16 << 20;
/// Status when this program could not do its work.
const FAILED: u8 = 97;

const HELP: &str = "usage: runner-wasi is started by runner, for `runner exec --runtime wasi -- MODULE.wasm ARGUMENTS…`

  --version   its version
  --help      this";

fn main() -> ExitCode {
    let argument = std::env::args_os().nth(1);
    match argument.as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("--version") => {
            println!("runner-wasi {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some("--help") => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let failed = |error: &dyn std::fmt::Display| {
        eprintln!("runner-wasi: {error}");
        ExitCode::from(FAILED)
    };
    let serving = std::thread::Builder::new().stack_size(STACK);
    let served = match serving.spawn(run::serve) {
        Ok(serving) => serving.join(),
        Err(error) => return failed(&format_args!("cannot make a thread: {error}")),
    };
    match served {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(error)) => failed(&error),
        // What it panicked at is printed.
        Err(_) => ExitCode::from(FAILED),
    }
}
