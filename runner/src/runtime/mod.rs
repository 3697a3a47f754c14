//! Runtimes: what isolates. Each answers for every control and builds one sandbox per launch.

pub mod auto;
mod beside;
pub mod bwrap;
pub mod document;
pub mod embedded;
mod groups;
mod launch;
pub mod native;
mod program;
mod read_back;
pub(crate) mod scratch;
pub mod template;
pub mod unshare;
pub mod wasi;

use crate::plan::Runtime;

/// Every runtime of this version, by preference.
#[must_use]
pub fn all() -> Vec<Box<dyn Runtime>> {
    vec![
        Box::new(embedded::Embedded::default()),
        Box::new(bwrap::Bwrap::default()),
        Box::new(unshare::Unshare::default()),
        Box::new(wasi::Wasi::default()),
        Box::new(native::Native),
    ]
}
