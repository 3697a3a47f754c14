//! Reports: the result as others read it.

pub mod comparison;
pub mod human;
