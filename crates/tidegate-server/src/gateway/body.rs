//! Streams that are given up when nothing moves.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::headers::strip_trailers;
use super::io::Progress;
use super::pool::Lease;

/// Why a streamed body ended early. It is the source of [`tidegate::body::BodyError::Broken`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The other side broke off, or what it sent was no HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// Nothing arrived for this long.
    #[error("nothing arrived for {0:?}")]
    Stalled(Duration),
}

/// A deadline for the next frame. It costs nothing while frames are there when asked for.
struct Stall {
    limit: Duration,
    armed: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    fn new(limit: Duration) -> Self {
        Self { limit, armed: false, sleep: None }
    }

    fn moved(&mut self) {
        self.armed = false;
    }

    /// Ready once nothing has moved for as long as is allowed.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<StreamError> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.limit)));
        if !self.armed {
            self.armed = true;
            sleep.as_mut().reset(Instant::now() + self.limit);
        }
        sleep.as_mut().poll(cx).map(|()| StreamError::Stalled(self.limit))
    }
}

/// A body as it arrives; with a lease on the connection that it arrives on, for an upstream's.
pub(super) struct Streamed {
    incoming: Incoming,
    stall: Stall,
    lease: Option<Lease>,
    client: Option<Arc<Progress>>,
}

impl Streamed {
    /// A request body that a client sends.
    pub(super) fn request(incoming: Incoming, limit: Duration, client: Arc<Progress>) -> Self {
        Self { incoming, stall: Stall::new(limit), lease: None, client: Some(client) }
    }

    /// An upstream's response body. The connection goes back to its pool once the body has ended
    /// in order, and is closed when it has not.
    pub(super) fn response(incoming: Incoming, limit: Duration, lease: Lease) -> Self {
        Self { incoming, stall: Stall::new(limit), lease: Some(lease), client: None }
    }

    fn ended(&mut self) {
        self.client = None;
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        if let Some(client) = &self.client {
            client.left_unread();
        }
    }
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Pending => match this.stall.poll_waiting(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(error) => {
                    this.lease = None;
                    Poll::Ready(Some(Err(error)))
                }
            },
            Poll::Ready(Some(Ok(mut frame))) => {
                this.stall.moved();
                if let Some(trailers) = frame.trailers_mut() {
                    strip_trailers(trailers);
                }
                // Whoever reads may ask no more after the last frame.
                if this.incoming.is_end_stream() {
                    this.ended();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.lease = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                this.ended();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
