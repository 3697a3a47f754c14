//! **Measure**: what is needed to attack a sandbox of one's own and to see from outside what came of it.

pub mod program;
