//! What answers while a breaker is open: the layers of its `fallback`, in order, then fail fast.

use std::time::Duration;

use crate::rule::model::{Fallback, FallbackBody};

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer<'a> {
    /// The last good answer from the cache.
    Cached {
        /// The entry of `fallback`.
        layer: usize,
        /// The age it may have.
        ttl: Duration,
    },
    /// The configured answer.
    Respond {
        /// The entry of `fallback`.
        layer: usize,
        /// 200 to 599.
        status: u16,
        /// Body and content type.
        body: &'a FallbackBody,
    },
    /// 503 `breaker-open`.
    FailFast,
}

impl Answer<'_> {
    /// Its name in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cached { .. } => "cache",
            Self::Respond { .. } => "respond",
            Self::FailFast => "fail_fast",
        }
    }
}

/// The answers to try, best first. Each layer comes up at most once and [`Answer::FailFast`] is
/// always the last, so a layer that fails leads on, and never back.
#[derive(Clone, Debug)]
pub struct Layers<'a> {
    fallback: &'a [Fallback],
    cached: Option<Duration>,
    next: Option<usize>,
}

/// The answers to try for a refused call; `cached` is the age of the last good answer, if there is
/// one that may be used. A layer `cache` whose answer is older than its `ttl` is left out.
pub fn layers(fallback: &[Fallback], cached: Option<Duration>) -> Layers<'_> {
    Layers { fallback, cached, next: Some(0) }
}

impl<'a> Iterator for Layers<'a> {
    type Item = Answer<'a>;

    fn next(&mut self) -> Option<Answer<'a>> {
        let from = self.next?;
        for (layer, fallback) in self.fallback.iter().enumerate().skip(from) {
            let answer = match fallback {
                Fallback::Cache { ttl } if self.cached.is_some_and(|age| age <= *ttl) => {
                    Answer::Cached { layer, ttl: *ttl }
                }
                Fallback::Cache { .. } => continue,
                Fallback::Respond { status, body } => Answer::Respond { layer, status: *status, body },
            };
            self.next = Some(layer + 1);
            return Some(answer);
        }
        self.next = None;
        Some(Answer::FailFast)
    }
}

impl std::iter::FusedIterator for Layers<'_> {}

#[cfg(test)]
mod tests;
