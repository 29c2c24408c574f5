//! A client's connection as hyper sees it, and what it tells about its own progress.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::interim::{self, Awaited};

/// What HTTP/2 clients with prior knowledge send first (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// The first bytes of a connection.
#[derive(Default)]
pub(super) struct Prefix {
    bytes: [u8; PREFACE.len()],
    length: usize,
    used: usize,
}

impl Prefix {
    /// Reads until it is clear what the client speaks; `None` if it closes before the first byte.
    /// Cancelling loses nothing: what was read is in `self`.
    pub(super) async fn sniff(&mut self, stream: &mut TcpStream) -> io::Result<Option<Protocol>> {
        loop {
            let read = stream.read(&mut self.bytes[self.length..]).await?;
            self.length += read;
            if read == 0 && self.length == 0 {
                return Ok(None);
            }
            if read == 0 || self.bytes[..self.length] != PREFACE[..self.length] {
                return Ok(Some(Protocol::Http1));
            }
            if self.length == PREFACE.len() {
                return Ok(Some(Protocol::Http2));
            }
        }
    }

    /// Whether anything has been read.
    pub(super) fn started(&self) -> bool {
        self.length > 0
    }
}

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests are being answered.
    Busy,
    /// For the first byte of the next request.
    Idle,
    /// For the rest of a request's head.
    Head,
    /// For the client to take what was written.
    Stalled,
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// Nothing more is expected.
    AtOnce,
    /// The client may still be sending, and must read the answer first.
    Linger,
    /// So that a broken answer does not look whole.
    Reset,
}

/// The progress of a connection. Only its own task and those of its requests write it, so plain
/// loads and stores do.
#[derive(Default)]
pub(super) struct Progress {
    in_flight: AtomicUsize,
    read: AtomicBool,
    blocked: AtomicBool,
    ended: AtomicBool,
    unread: AtomicBool,
    broken: AtomicBool,
    reset: AtomicBool,
    /// Moves with every change that starts a phase anew.
    steps: AtomicU32,
}

impl Progress {
    /// A request has arrived; it is over when the value is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.steps.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }

    /// The phase, and a number that differs when it has been left and entered again.
    pub(super) fn phase(&self) -> (Phase, u32) {
        let phase = if self.blocked.load(Relaxed) {
            Phase::Stalled
        } else if self.in_flight.load(Relaxed) > 0 {
            Phase::Busy
        } else if self.read.load(Relaxed) {
            Phase::Head
        } else {
            Phase::Idle
        };
        (phase, self.steps.load(Relaxed))
    }

    /// A request's body was given up before its end.
    pub(super) fn left_unread(&self) {
        self.unread.store(true, Relaxed);
    }

    /// An answer broke off; with `reset` only a reset can tell the client so.
    pub(super) fn broke(&self, reset: bool) {
        self.broken.store(true, Relaxed);
        self.reset.store(reset, Relaxed);
    }

    /// How a connection that has been served to its end is to be closed.
    pub(super) fn closing(&self, refused: bool) -> Closing {
        if self.reset.load(Relaxed) {
            Closing::Reset
        } else if self.broken.load(Relaxed) || self.ended.load(Relaxed) {
            Closing::AtOnce
        } else if refused || self.unread.load(Relaxed) {
            Closing::Linger
        } else {
            Closing::AtOnce
        }
    }
}

/// A request that is being answered.
pub(super) struct InFlight(Arc<Progress>);

impl InFlight {
    /// Of its connection.
    pub(super) fn progress(&self) -> &Progress {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.read.store(false, Relaxed);
        self.0.steps.fetch_add(1, Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// What is written as one piece, although it lies in several: copying this little is cheaper than the
/// system's own gathering.
const JOINED: usize = 2048;

/// Writes pieces; those that are short together in one plain `send`.
fn poll_write_joined(
    stream: &mut TcpStream,
    cx: &mut Context<'_>,
    bufs: &[io::IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if bufs.iter().map(|buf| buf.len()).sum::<usize>() > JOINED {
        return Pin::new(stream).poll_write_vectored(cx, bufs);
    }
    if let [only] = bufs {
        return Pin::new(stream).poll_write(cx, only);
    }
    let mut joined = SmallVec::<[u8; JOINED]>::new();
    for buf in bufs {
        joined.extend_from_slice(buf);
    }
    Pin::new(stream).poll_write(cx, &joined)
}

/// An upstream's stream.
pub(super) struct Joined {
    stream: TcpStream,
    interim: interim::Counter,
}

impl Joined {
    /// `awaited` is set whenever a request is sent; `max_header_size` is the most that a response's head
    /// may take, and all interim responses before it.
    pub(super) fn new(stream: TcpStream, awaited: Awaited, max_header_size: usize) -> Self {
        Self { stream, interim: interim::Counter::new(awaited, max_header_size) }
    }
}

impl AsyncRead for Joined {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.interim.read(&buf.filled()[before..])?;
        }
        read
    }
}

impl AsyncWrite for Joined {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_write_joined(&mut self.stream, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A client's stream, with what was read of it to know its protocol.
pub(super) struct Io {
    stream: TcpStream,
    prefix: Prefix,
    progress: Arc<Progress>,
}

impl Io {
    pub(super) fn new(stream: TcpStream, prefix: Prefix, progress: Arc<Progress>) -> Self {
        Self { stream, prefix, progress }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let blocked = result.is_pending();
        if self.progress.blocked.load(Relaxed) != blocked || blocked {
            self.progress.blocked.store(blocked, Relaxed);
            if !blocked {
                self.progress.steps.fetch_add(1, Relaxed);
            }
        }
        result
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let prefix = &mut this.prefix;
        if prefix.used < prefix.length {
            let take = buf.remaining().min(prefix.length - prefix.used);
            buf.put_slice(&prefix.bytes[prefix.used..prefix.used + take]);
            prefix.used += take;
            this.progress.read.store(true, Relaxed);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = result {
            if buf.filled().len() > before {
                this.progress.read.store(true, Relaxed);
            } else if buf.remaining() > 0 {
                this.progress.ended.store(true, Relaxed);
            }
        }
        result
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = poll_write_joined(&mut self.stream, cx, bufs);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
