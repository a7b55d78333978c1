//! Bad input to the real binary: one clear message that says what, where and what to try; status 2.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs to its end; `timeout` ends (with status 124) what should not have started to serve.
fn inferwatch(args: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_inferwatch");
    Command::new("timeout").args(["60", binary]).args(args).output().expect("it starts")
}

/// Every part of `says` stands in the message; nothing goes to stdout.
#[track_caller]
fn refuses(args: &[&str], says: &[&str]) {
    let out = inferwatch(args);
    let message = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{args:?}: {message}");
    for part in says {
        assert!(message.contains(part), "{args:?}: {part:?} is not in {message:?}");
    }
    assert!(!message.contains("panicked"), "{message}");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "", "{args:?}");
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("inferwatch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch folder");
        Scratch(dir)
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::File::create(&path).and_then(|mut f| f.write_all(content)).expect("a file");
        text(&path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("an ASCII path").to_owned()
}

#[test]
fn flags() {
    refuses(&["proxy", "127.0.0.1:1", "--lissten", "x:1"], &["--lissten", "--listen"]);
    refuses(&["proxy"], &["UPSTREAM is missing", "127.0.0.1:8080"]);
    refuses(&["proxy", "https://x:1"], &["UPSTREAM \"https://x:1\"", "http://host:port"]);
    refuses(&["proxy", "x:1", "--listen", "9080"], &["--listen \"9080\"", "127.0.0.1:9080"]);
    refuses(&["serve"], &["serve"]);
    refuses(
        &["proxy", "x", "--on-abort", "no", "--max-tokens", "many"],
        &["3 mistakes", "no port", "cancel or drain", "--max-tokens"],
    );
}

#[test]
fn settings_files() {
    let scratch = Scratch::new("settings");
    let bad = scratch
        .file("bad.toml", b"upstream = \"x:1\"\nlissten = \"y:1\"\nmax_inflight = \"many\"\n");
    refuses(
        &["config", "--config", &bad],
        &["bad.toml:2: lissten", "did you mean listen?", "bad.toml:3: max_inflight"],
    );
    refuses(
        &["config", "--config", "/nonexistent/x.toml"],
        &["/nonexistent/x.toml", "No such file"],
    );

    let good = scratch.file("good.toml", b"upstream = \"x:1\"\nmax_inflight = 3\n");
    let out = inferwatch(&["config", "--config", &good, "--max-queue", "7", "y:2"]);
    let printed = String::from_utf8(out.stdout).expect("UTF-8");
    assert_eq!(out.status.code(), Some(0));
    for line in ["upstream = \"y:2\"", "max_inflight = 3", "max_queue = 7", "# tokenizer is off"] {
        assert!(printed.lines().any(|printed| printed == line), "{line} not in {printed}");
    }
}

#[test]
fn places() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    refuses(
        &["proxy", "x:1", "--listen", &address],
        &[&address, "Address already in use", "--listen"],
    );
    refuses(&["proxy", "x:1", "--listen", "192.0.2.1:9"], &["192.0.2.1:9", "--listen"]);
    refuses(
        &["proxy", "x:1", "--log", "/nonexistent/lines"],
        &["/nonexistent/lines", "No such file", "--log"],
    );
    refuses(&["proxy", "x:1", "--log", "/"], &["the log /", "directory", "--log"]);
}

#[test]
fn tokenizers() {
    let scratch = Scratch::new("tokenizers");
    let files = [
        ("text", b"hello".as_slice(), "neither a GGUF nor a tokenizer.json"),
        ("empty", b"", "neither a GGUF nor a tokenizer.json"),
        (
            "torn.gguf",
            b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f",
            "no vocabulary can be read",
        ),
        ("other.json", b"{\"a\": 1}", "not a tokenizer.json"),
    ];
    for (name, content, why) in files {
        let path = scratch.file(name, content);
        refuses(&["proxy", "x:1", "--listen", "127.0.0.1:0", "--tokenizer", &path], &[&path, why]);
    }
    refuses(&["proxy", "x:1", "--tokenizer", "/nonexistent/t"], &["/nonexistent/t", "cannot open"]);
}

#[test]
fn help_teaches() {
    let out = inferwatch(&["proxy", "--help"]);
    let help = String::from_utf8(out.stdout).expect("UTF-8");
    for flag in
        ["--listen", "--log", "--on-abort", "--max-inflight", "--max-tokens", "Examples:", "SIGHUP"]
    {
        assert!(help.contains(flag), "{flag} is not in {help}");
    }
}
