//! `runner completions` and `runner man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, FAILED, report};

/// What `completions` takes.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// What `man` takes.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The folder; made where there is none
    folder: PathBuf,
}

pub(super) fn completions(args: &CompletionsArgs) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "runner", &mut script);
    report::print(&String::from_utf8_lossy(&script));
    0
}

pub(super) fn man(args: &ManArgs) -> u8 {
    let made = match std::fs::create_dir(&args.folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    match made.and_then(|()| clap_mangen::generate_to(Cli::command(), &args.folder)) {
        Ok(()) => 0,
        Err(error) => {
            report::error_line(&format!(
                "cannot write man pages into {}: {error}",
                args.folder.display()
            ));
            FAILED
        }
    }
}
