//! `runner matrix`.

mod table;
