//! `inferwatch`: parse, run, say what went wrong. Exit status 0, or 2 when it could not be done.
#![expect(clippy::print_stderr, reason = "this is the program")]

mod args;
mod cmd;
mod config;
mod settings;
mod tokenizer;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Proxy(args) => cmd::proxy::run(&args),
        Command::Config(args) => cmd::config::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inferwatch: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// `inferwatch config | head` is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
