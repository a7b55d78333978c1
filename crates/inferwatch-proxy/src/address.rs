//! Where the model server is: `host:port` or a plain `http://` URL, checked before anything starts.

use std::fmt;
use std::str::FromStr;

/// Address of a model server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamAddr {
    host: String,
    port: u16,
}

/// Why a text is not the address of a model server, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddrError {
    /// TLS towards the model server is not spoken.
    #[error(
        "https is not supported: the model server is expected on this box; write http://host:port"
    )]
    Https,
    /// Another scheme than http.
    #[error("unknown scheme {0:?}: write host:port or http://host:port")]
    Scheme(String),
    /// A path, query or user name that would change what is asked.
    #[error("{0:?} is more than a host and a port: requests keep their own path, write host:port")]
    Surplus(String),
    /// No port, and none can be guessed.
    #[error(
        "no port: write host:port, for instance {0}:8080 for llama.cpp or {0}:11434 for Ollama"
    )]
    NoPort(String),
    /// The port is no number from 1 to 65535.
    #[error("{0:?} is not a port (1 to 65535)")]
    Port(String),
    /// The host is empty or holds characters that no host has.
    #[error("{0:?} is not a host name or address")]
    Host(String),
}

impl UpstreamAddr {
    /// Host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for UpstreamAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for UpstreamAddr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let (authority, http) = strip_scheme(text.trim())?;
        let (host, port) = split_port(authority)?;
        let port = match port {
            Some(digits) => parse_port(digits)?,
            None if http => 80,
            None => return Err(AddrError::NoPort(host.to_owned())),
        };
        Ok(UpstreamAddr { host: host.to_owned(), port })
    }
}

fn strip_scheme(text: &str) -> Result<(&str, bool), AddrError> {
    let (rest, http) = match text.split_once("://") {
        None => (text, false),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (rest, true),
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => return Err(AddrError::Https),
        Some((scheme, _)) => return Err(AddrError::Scheme(scheme.to_owned())),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    match authority.find(['/', '?', '#', '@']) {
        Some(at) => Err(AddrError::Surplus(authority[at..].to_owned())),
        None => Ok((authority, http)),
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), AddrError> {
    let bad_host = || AddrError::Host(authority.to_owned());
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').ok_or_else(bad_host)?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| bad_host())?;
        return match tail.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if tail.is_empty() => Ok((host, None)),
            None => Err(bad_host()),
        };
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.is_empty() || !host.chars().all(fits) {
        return Err(bad_host());
    }
    Ok((host, port))
}

fn parse_port(digits: &str) -> Result<u16, AddrError> {
    match digits.parse() {
        Ok(port) if port != 0 && digits.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(AddrError::Port(digits.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let good = [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://localhost:11434/", "localhost:11434"),
            ("HTTP://box.lan", "box.lan:80"),
            ("[::1]:80", "[::1]:80"),
            ("http://[fe80::1]", "[fe80::1]:80"),
            (" ollama:11434 ", "ollama:11434"),
        ];
        for (text, expected) in good {
            assert_eq!(text.parse::<UpstreamAddr>().map(|a| a.to_string()), Ok(expected.into()));
        }
    }

    #[test]
    fn mistakes_are_named() {
        let bad = [
            ("localhost", AddrError::NoPort("localhost".into())),
            ("https://localhost:8080", AddrError::Https),
            ("ftp://x:1", AddrError::Scheme("ftp".into())),
            ("http://x:1/v1", AddrError::Surplus("/v1".into())),
            ("http://u:p@x:1", AddrError::Surplus("@x:1".into())),
            ("x:0", AddrError::Port("0".into())),
            ("x:65536", AddrError::Port("65536".into())),
            ("x:+80", AddrError::Port("+80".into())),
            ("x:", AddrError::Port(String::new())),
            (":80", AddrError::Host(":80".into())),
            ("", AddrError::Host(String::new())),
            ("::1:80", AddrError::Host("::1:80".into())),
            ("[::g]:80", AddrError::Host("[::g]:80".into())),
            ("a b:80", AddrError::Host("a b:80".into())),
        ];
        for (text, expected) in bad {
            assert_eq!(text.parse::<UpstreamAddr>(), Err(expected), "{text}");
        }
    }
}
