//! What costs time: writing and reading a line, hashes, the walk, appending.
//!
//! ```text
//! cargo bench -p ledger --bench hot             all of it
//! cargo bench -p ledger --bench hot -- walk     what has "walk" in its name
//! ```
//!
//! The lines are those of a made ledger, of the shape that `runner exec` writes. How appending to a ledger of a
//! million records compares with an empty one is the example `append_cost`.

mod append;
mod lines;
mod made;
mod walk;

use std::error::Error;

use criterion::Criterion;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    lines::bench(&mut criterion)?;
    walk::bench(&mut criterion)?;
    append::bench(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}
