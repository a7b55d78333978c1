//! Carries out a script on a connection while watching whether the peer leaves.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{sleep, sleep_until, timeout};

use crate::observed::{CloseKind, PeerClosed};
use crate::script::{Script, Step};

/// A peer that does not answer our FIN is dropped after this time.
const LINGER: Duration = Duration::from_secs(10);
/// What a peer may send ahead (pipelining) before it is no longer read.
const MAX_AHEAD_BYTES: usize = 1 << 20;

/// How a script ended.
#[derive(Debug)]
pub(crate) enum Played {
    /// Every step is done and the connection is open.
    Open,
    /// We closed.
    Closed,
    /// The peer closed first.
    PeerClosed(PeerClosed),
}

#[derive(Debug, PartialEq, Eq)]
enum Written {
    Open,
    Fin,
    Reset,
}

/// Carries out `script`; what the peer sends meanwhile is appended to `ahead`.
pub(crate) async fn play(stream: &mut TcpStream, ahead: &mut Vec<u8>, script: Script) -> Played {
    let written = {
        let (mut reader, mut writer) = stream.split();
        tokio::select! {
            biased;
            written = write_steps(&mut writer, script.0) => written,
            kind = watch(&mut reader, ahead) => return Played::PeerClosed(closed(kind)),
        }
    };
    match written {
        Ok(Written::Open) => Played::Open,
        Ok(Written::Fin) => finish(stream).await,
        Ok(Written::Reset) => {
            // Failure means that the peer has closed already.
            let _ = stream.set_zero_linger();
            Played::Closed
        }
        Err(_) => Played::PeerClosed(closed(CloseKind::Reset)),
    }
}

fn closed(kind: CloseKind) -> PeerClosed {
    PeerClosed { at: Instant::now(), kind, mid_request: true }
}

async fn watch(reader: &mut ReadHalf<'_>, ahead: &mut Vec<u8>) -> CloseKind {
    loop {
        if ahead.len() >= MAX_AHEAD_BYTES {
            std::future::pending::<()>().await;
        }
        match reader.read_buf(ahead).await {
            Ok(0) => return CloseKind::Fin,
            Ok(_) => {}
            Err(_) => return CloseKind::Reset,
        }
    }
}

// Closing with unread data makes the kernel send RST, so a good FIN has to read on.
async fn finish(stream: &mut TcpStream) -> Played {
    let drain = async {
        let mut sink = [0; 4096];
        loop {
            match stream.read(&mut sink).await {
                Ok(0) => return CloseKind::Fin,
                Ok(_) => {}
                Err(_) => return CloseKind::Reset,
            }
        }
    };
    match timeout(LINGER, drain).await {
        Ok(kind) => Played::PeerClosed(PeerClosed { mid_request: false, ..closed(kind) }),
        Err(_) => Played::Closed,
    }
}

async fn write_steps(writer: &mut WriteHalf<'_>, steps: Vec<Step>) -> io::Result<Written> {
    for step in steps {
        let written = match step {
            Step::Relay(mut relayed) => relay(writer, &mut relayed).await?,
            step => write_step(writer, step).await?,
        };
        if written != Written::Open {
            return Ok(written);
        }
    }
    Ok(Written::Open)
}

async fn relay(
    writer: &mut WriteHalf<'_>,
    relayed: &mut tokio::sync::mpsc::Receiver<Step>,
) -> io::Result<Written> {
    while let Some(step) = relayed.recv().await {
        let written = write_step(writer, step).await?;
        if written != Written::Open {
            return Ok(written);
        }
    }
    Ok(Written::Open)
}

async fn write_step(writer: &mut WriteHalf<'_>, step: Step) -> io::Result<Written> {
    match step {
        Step::Send(bytes) => writer.write_all(&bytes).await?,
        Step::SendInPieces { bytes, size, gap } => in_pieces(writer, bytes, size, gap).await?,
        Step::Repeat { bytes, count, gap } => repeat(writer, &bytes, count, gap).await?,
        Step::Wait(time) => sleep(time).await,
        Step::Hang => std::future::pending().await,
        Step::Reset => return Ok(Written::Reset),
        Step::Fin => {
            writer.shutdown().await?;
            return Ok(Written::Fin);
        }
        Step::Relay(_) => {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a relay inside a relay"));
        }
    }
    Ok(Written::Open)
}

async fn in_pieces(
    writer: &mut WriteHalf<'_>,
    bytes: Bytes,
    size: usize,
    gap: Duration,
) -> io::Result<()> {
    for (index, piece) in bytes.chunks(size.max(1)).enumerate() {
        if index > 0 {
            pause(gap).await;
        }
        writer.write_all(piece).await?;
    }
    Ok(())
}

async fn pause(gap: Duration) {
    if gap.is_zero() { tokio::task::yield_now().await } else { sleep(gap).await }
}

async fn repeat(
    writer: &mut WriteHalf<'_>,
    bytes: &[u8],
    count: u64,
    gap: Duration,
) -> io::Result<()> {
    let mut due = tokio::time::Instant::now();
    for _ in 0..count {
        if !gap.is_zero() {
            due += gap;
            sleep_until(due).await;
        }
        writer.write_all(bytes).await?;
    }
    Ok(())
}
