//! Reports: the result as others read it.

pub mod human;
