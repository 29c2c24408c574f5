//! The one body type that requests and responses have on their way through the gates.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

/// Any error, as the ecosystem's bodies have it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The other side broke off.
    #[error("the body was cut off: {0}")]
    Broken(BoxError),
    /// It is longer than it may be.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// Bytes.
        limit: u64,
    },
}

/// Nothing, bytes in memory, or a stream.
pub struct Body(Kind);

enum Kind {
    Empty,
    Full(Option<Bytes>),
    Stream(UnsyncBoxBody<Bytes, BodyError>),
}

impl Body {
    /// A body without a byte.
    pub const fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// Bytes in memory.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() { Self::empty() } else { Self(Kind::Full(Some(bytes))) }
    }

    /// A stream, which is passed on frame by frame.
    pub fn stream<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::empty();
        }
        Self(Kind::Stream(body.map_err(|error| BodyError::Broken(error.into())).boxed_unsync()))
    }

    /// Reads up to `limit` bytes into memory; a longer body goes on as a stream behind what was read.
    pub(crate) async fn collect_prefix(self, limit: u64) -> Result<Prefix, BodyError> {
        let mut stream = match self.0 {
            Kind::Empty | Kind::Full(None) => return Ok(Prefix::Whole(Bytes::new())),
            Kind::Full(Some(bytes)) if bytes.len() as u64 <= limit => return Ok(Prefix::Whole(bytes)),
            Kind::Full(Some(bytes)) => return Ok(Prefix::Longer { read: bytes, rest: Self::empty() }),
            Kind::Stream(stream) => stream,
        };
        let mut read = Vec::new();
        while let Some(frame) = stream.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            read.extend_from_slice(&data);
            if read.len() as u64 > limit {
                return Ok(Prefix::Longer { read: read.into(), rest: Self(Kind::Stream(stream)) });
            }
        }
        Ok(Prefix::Whole(read.into()))
    }

    /// Hands the whole body to `seen` once it has ended well and is not longer than `limit` bytes.
    pub(crate) fn observed(self, limit: usize, seen: impl FnOnce(Bytes) + Send + 'static) -> Self {
        Self(Kind::Stream(
            Observed { body: self, limit, read: Some(Vec::new()), seen: Some(Box::new(seen)) }.boxed_unsync(),
        ))
    }

    /// Keeps `guard` until the body has ended or was dropped.
    pub(crate) fn guarded<G: Send + Unpin + 'static>(self, guard: G) -> Self {
        Self(Kind::Stream(Guarded { body: self, _guard: guard }.boxed_unsync()))
    }

    /// All of it, if it is not longer than `limit` bytes.
    ///
    /// An error leaves the body half read: only an answer that closes the exchange may follow.
    pub async fn collect(self, limit: u64) -> Result<Bytes, BodyError> {
        match self.0 {
            Kind::Empty | Kind::Full(None) => Ok(Bytes::new()),
            Kind::Full(Some(bytes)) if bytes.len() as u64 <= limit => Ok(bytes),
            Kind::Full(Some(_)) => Err(BodyError::TooLarge { limit }),
            Kind::Stream(mut stream) => {
                if http_body::Body::size_hint(&stream).lower() > limit {
                    return Err(BodyError::TooLarge { limit });
                }
                let mut collected = Vec::new();
                while let Some(frame) = stream.frame().await {
                    let Ok(data) = frame?.into_data() else { continue };
                    if collected.len() as u64 + data.len() as u64 > limit {
                        return Err(BodyError::TooLarge { limit });
                    }
                    collected.extend_from_slice(&data);
                }
                Ok(collected.into())
            }
        }
    }
}

/// A body as far as it was read.
pub(crate) enum Prefix {
    /// All of it.
    Whole(Bytes),
    /// More than was asked for.
    Longer {
        /// What was read.
        read: Bytes,
        /// What comes after it.
        rest: Body,
    },
}

impl Prefix {
    /// The body as it was.
    pub(crate) fn into_body(self) -> Body {
        match self {
            Self::Whole(bytes) => Body::full(bytes),
            Self::Longer { read, rest } => {
                Body(Kind::Stream(Chained { first: Some(read), rest }.boxed_unsync()))
            }
        }
    }
}

struct Chained {
    first: Option<Bytes>,
    rest: Body,
}

impl http_body::Body for Chained {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}

struct Observed {
    body: Body,
    limit: usize,
    /// `None` once it is longer than the limit.
    read: Option<Vec<u8>>,
    seen: Option<Box<dyn FnOnce(Bytes) + Send>>,
}

impl Observed {
    fn finish(&mut self) {
        if let (Some(read), Some(seen)) = (self.read.take(), self.seen.take()) {
            seen(read.into());
        }
    }
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(data), Some(read)) = (frame.data_ref(), &mut self.read) {
                    read.extend_from_slice(data);
                    if read.len() > self.limit {
                        self.read = None;
                    }
                }
                // A server that knows the length does not ask again after the last byte.
                if self.body.is_end_stream() {
                    self.finish();
                }
            }
            Poll::Ready(None) => self.finish(),
            Poll::Ready(Some(Err(_))) => self.read = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        // An empty body ends without a frame; it must be polled once to be seen.
        self.seen.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct Guarded<G> {
    body: Body,
    _guard: G,
}

impl<G: Unpin> http_body::Body for Guarded<G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(stream) => Pin::new(stream).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty | Kind::Full(None) => true,
            Kind::Full(Some(_)) => false,
            Kind::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty | Kind::Full(None) => SizeHint::with_exact(0),
            Kind::Full(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(stream) => stream.size_hint(),
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hint = http_body::Body::size_hint(self);
        write!(f, "Body({}..{:?})", hint.lower(), hint.upper())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::full(text)
    }
}
