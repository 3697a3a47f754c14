//! Writing a result to every place where it was asked for.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use super::arguments::{Cli, Format};
use super::error::WriteResultError;

/// Writes a text to every place where it was asked for.
pub(super) fn give(
    cli: &Cli,
    text: impl Fn(Format, bool) -> Result<String, serde_json::Error>,
) -> Result<(), WriteResultError> {
    for output in &cli.output {
        let error = |source| WriteResultError::File {
            path: output.file.clone(),
            source,
        };
        replace(&output.file, &text(output.format, false)?).map_err(error)?;
    }
    let format = if cli.json { Format::Json } else { cli.format };
    print(&text(format, cli.color.on_stdout())?)
}

/// Writes a file whole or not at all: under another name, which is then given to it. What is no regular
/// file (a device, a pipe) is written to.
pub(super) fn replace(file: &Path, text: &str) -> io::Result<()> {
    let (file, permissions) = match fs::metadata(file) {
        Ok(found) if found.is_file() => (fs::canonicalize(file)?, Some(found.permissions())),
        Ok(_) => return fs::write(file, text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (file.to_owned(), None),
        Err(error) => return Err(error),
    };
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = file.with_file_name(name);
    let mut made = fs::File::create_new(&temporary)?;
    let written = made
        .write_all(text.as_bytes())
        .and_then(|()| permissions.map_or(Ok(()), |it| made.set_permissions(it)))
        .and_then(|()| made.sync_all())
        .and_then(|()| fs::rename(&temporary, &file));
    if written.is_err() {
        // What could not be written is told; the name beside it is only tidied up.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Writes to standard output; a reader that went away is no error.
pub(super) fn print(text: &str) -> Result<(), WriteResultError> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(WriteResultError::Stdout(error))
        }
        _ => Ok(()),
    }
}
