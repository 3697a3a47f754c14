//! Measuring what a runtime really contains: probes under every arm, what is planted and listened for outside, and the
//! matrix that comes of it.

pub mod cells;
pub mod gate;
pub mod suite;
