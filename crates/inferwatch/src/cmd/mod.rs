//! One file per command: the shell around the crates.

pub(crate) mod config;
pub(crate) mod proxy;
