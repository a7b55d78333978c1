//! `inferwatch config`: the settings in force.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::args::ProxyArgs;
use crate::config;
use crate::settings::{self, Settings};

/// Prints the settings as TOML.
pub(crate) fn run(args: &ProxyArgs) -> Result<()> {
    let settings = load(args)?;
    Ok(io::stdout().write_all(settings::to_toml(&settings).as_bytes())?)
}

/// Settings from the file, then the flags, which beat it; all mistakes of both in one error.
pub(crate) fn load(args: &ProxyArgs) -> Result<Settings> {
    let (mut said, mut mistakes) = match &args.config {
        Some(path) => read(path)?,
        None => (Vec::new(), Vec::new()),
    };
    said.extend(config::from_flags(args));
    match settings::resolve(&said) {
        Ok(settings) if mistakes.is_empty() => return Ok(settings),
        Ok(_) => {}
        Err(more) => mistakes.extend(more),
    }
    match mistakes.as_slice() {
        [one] => bail!("{one}\nTry: inferwatch proxy --help"),
        many => {
            bail!("{} mistakes:\n  {}\nTry: inferwatch proxy --help", many.len(), many.join("\n  "))
        }
    }
}

fn read(path: &Path) -> Result<(Vec<config::Saying>, Vec<String>)> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the settings file {}", path.display()))?;
    Ok(config::from_toml(path, &text))
}
