//! Embeds the pages of `docs/codes`, so that `verify explain` works offline from the same text as the
//! documentation.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let pages = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../docs/codes");
    println!("cargo:rerun-if-changed={}", pages.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut names = Vec::new();
    if pages.is_dir() {
        for entry in fs::read_dir(&pages)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                names.push(path);
            }
        }
    }
    names.sort();
    let mut table = String::from("&[\n");
    for path in names {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = path.canonicalize()?;
        writeln!(table, "    ({stem:?}, include_str!({path:?})),")?;
    }
    table.push_str("]\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("pages.rs"), table)?;
    Ok(())
}
