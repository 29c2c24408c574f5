//! Counting what must end before a shutdown may.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the tokens that are out.
#[derive(Clone, Debug, Default)]
pub struct Tracker(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    count: AtomicUsize,
    zero: Notify,
}

impl Tracker {
    /// With no token out.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more token: something that a shutdown waits for until the token is dropped.
    pub fn enter(&self) -> Token {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        Token(Arc::clone(&self.0))
    }

    /// One more token unless `max` are out.
    pub fn try_enter(&self, max: usize) -> Option<Token> {
        let token = self.enter();
        // Counted first: two that race for the last place are never both let in.
        (self.count() <= max).then_some(token)
    }

    /// How many tokens are out.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// Waits until no token is out.
    pub async fn idle(&self) {
        loop {
            let changed = self.0.zero.notified();
            if self.count() == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// Something that a shutdown waits for.
#[derive(Debug)]
pub struct Token(Arc<Inner>);

impl Drop for Token {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.zero.notify_waiters();
        }
    }
}
