//! What a guarded call knows of the guarded calls inside it, in the same task.
//!
//! An inner guard that says no is neither a success nor a failure of what surrounds it: the dependency
//! outside was not at fault, and nobody knows what it would have done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderValue;

tokio::task_local! {
    static AROUND: Nest;
}

/// One guarded call, seen from inside.
#[derive(Clone)]
pub(crate) struct Nest {
    request_id: HeaderValue,
    blocked: Arc<AtomicBool>,
}

impl Nest {
    /// For a request.
    pub(crate) fn new(request_id: HeaderValue) -> Self {
        Self { request_id, blocked: Arc::default() }
    }

    /// For a call inside whatever runs now.
    pub(crate) fn inner() -> Self {
        let around = AROUND.try_with(|around| around.request_id.clone());
        Self::new(around.unwrap_or(HeaderValue::from_static("-")))
    }

    /// Runs `work` as the inside of this call.
    pub(crate) async fn around<F: Future>(&self, work: F) -> F::Output {
        AROUND.scope(self.clone(), work).await
    }

    /// The request that it belongs to; `-` outside of any.
    pub(crate) fn request_id(&self) -> &HeaderValue {
        &self.request_id
    }

    /// Whether the last guarded call inside was blocked.
    pub(crate) fn last_was_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }
}

/// Tells the surrounding call, if there is one, how a call inside it ended.
pub(crate) fn tell(blocked: bool) {
    // Outside of any guarded call nobody asks.
    let _ = AROUND.try_with(|around| around.blocked.store(blocked, Ordering::Release));
}
