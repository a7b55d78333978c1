//! Where the bytes go: whole lines in one write, a torn line mended before the next one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Somebody else may have made the shared stdout non-blocking; wait as a blocking write would.
const WOULD_BLOCK_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Sink {
    out: Box<dyn Write + Send>,
    path: Option<PathBuf>,
    /// The last byte written was not a newline.
    torn: bool,
}

/// A write that ended early.
pub(crate) struct Broken {
    pub(crate) written_bytes: usize,
    pub(crate) error: io::Error,
}

impl Sink {
    /// The process's stdout, through a descriptor of its own: a blocked write must not hold the
    /// lock of `std::io::Stdout`, on which any `println!` of the caller would wait.
    pub(crate) fn stdout() -> io::Result<Sink> {
        let own = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Sink::writer(Box::new(File::from(own))))
    }

    pub(crate) fn writer(out: Box<dyn Write + Send>) -> Sink {
        Sink { out, path: None, torn: false }
    }

    /// Appends to the file at `path`, which is made if it is not there.
    pub(crate) fn file(path: &Path) -> io::Result<Sink> {
        let torn = ends_torn(path);
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Sink { out: Box::new(file), path: Some(path.to_owned()), torn })
    }

    /// Opens the path anew; any other sink stays as it is. On an error the old file stays.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            *self = Sink::file(path)?;
        }
        Ok(())
    }

    /// Writes whole lines, in one write(2) if the sink takes them so.
    pub(crate) fn write_lines(&mut self, lines: &[u8]) -> Result<(), Broken> {
        if self.torn {
            self.write_all(b"\n").map_err(|broken| Broken { written_bytes: 0, ..broken })?;
        }
        self.write_all(lines)?;
        self.out.flush().map_err(|error| {
            // Nobody knows what a buffering sink has passed on.
            self.torn = true;
            Broken { written_bytes: 0, error }
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let mut written_bytes = 0;
        while written_bytes < bytes.len() {
            let error = match self.out.write(&bytes[written_bytes..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    written_bytes = bytes.len().min(written_bytes + count);
                    self.torn = bytes[written_bytes - 1] != b'\n';
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => thread::sleep(WOULD_BLOCK_PAUSE),
                _ => return Err(Broken { written_bytes, error }),
            }
        }
        Ok(())
    }
}

/// Whether an earlier process died in the middle of a line. Only a regular file is looked at: to
/// open a pipe for reading would wait for its writer.
fn ends_torn(path: &Path) -> bool {
    let last_byte = || -> io::Result<u8> {
        if !path.metadata()?.is_file() {
            return Ok(b'\n');
        }
        let mut file = File::open(path)?;
        let mut last = [b'\n'];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        Ok(last[0])
    };
    last_byte().is_ok_and(|byte| byte != b'\n')
}
