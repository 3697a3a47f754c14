//! x
pub mod arms;
pub mod cells;
pub mod gate;
pub mod matrix;
pub mod program;
pub mod record;
pub mod suite;
