//! The policy document.
