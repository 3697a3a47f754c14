//! The command line of `runner`.

fn main() {}
