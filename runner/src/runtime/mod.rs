//! Runtimes: what isolates. Each answers for every control and builds one sandbox per launch.

pub mod embedded;
mod groups;
mod launch;
pub mod native;
mod read_back;
pub mod template;

use crate::plan::Runtime;

/// Every runtime of this version, by preference.
#[must_use]
pub fn all() -> Vec<Box<dyn Runtime>> {
    vec![
        Box::new(embedded::Embedded::default()),
        Box::new(native::Native),
    ]
}

/// Runtimes that are designed and not part of this version, with what they need.
pub const LATER: &[(&str, &str)] = &[
    (
        "bwrap",
        "needs the bwrap runtime, which comes with a later version",
    ),
    (
        "unshare",
        "needs runtime templates, which come with a later version",
    ),
    (
        "wasi",
        "needs runner-wasi, which comes with a later version",
    ),
];
