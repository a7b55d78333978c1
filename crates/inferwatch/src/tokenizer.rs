//! Loads the model's own tokenizer from a `tokenizer.json` or from the vocabulary in a GGUF.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use inferwatch_proxy::CountTokens;
use shimmytok::EncodeOptions;

const GGUF_MAGIC: &[u8] = b"GGUF";

/// Reads `path` and checks that it can count.
///
/// # Errors
/// The file cannot be read, or is neither a GGUF with a vocabulary nor a tokenizer.json.
pub(crate) fn load(path: &Path) -> Result<CountTokens> {
    let in_file = || format!("--tokenizer {}", path.display());
    let head = first_bytes(path).with_context(in_file)?;
    if head == GGUF_MAGIC {
        return from_gguf(path).with_context(in_file);
    }
    if head.trim_ascii_start().starts_with(b"{") {
        return from_json(path).with_context(in_file);
    }
    bail!(
        "{}: neither a GGUF nor a tokenizer.json (begins with {:?})",
        in_file(),
        head.escape_ascii().to_string()
    )
}

fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let file =
        File::open(path).context("cannot open it; name a tokenizer.json or the model's GGUF")?;
    file.take(GGUF_MAGIC.len() as u64).read_to_end(&mut head).context("cannot read it")?;
    Ok(head)
}

fn from_gguf(path: &Path) -> Result<CountTokens> {
    let tokenizer = shimmytok::Tokenizer::from_gguf_file(path)
        .map_err(|error| anyhow!("no vocabulary can be read from this GGUF: {error}"))?;
    // As llama-server counts a prompt: special tokens in the text are tokens.
    let options = EncodeOptions::with_parse_special(false, true);
    Ok(Box::new(move |text| Some(tokenizer.encode_with_options(text, &options).ok()?.len() as u64)))
}

fn from_json(path: &Path) -> Result<CountTokens> {
    let tokenizer = tokenizers::Tokenizer::from_file(path)
        .map_err(|error| anyhow!("not a tokenizer.json: {error}"))?;
    Ok(Box::new(move |text| Some(tokenizer.encode_fast(text, false).ok()?.len() as u64)))
}
