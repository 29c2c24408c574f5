//! The part of a limit that one of several instances may use on its own, while the store that they share
//! does not answer.
//!
//! The parts of all instances add up to the limit and to no more: a count is divided, and what remains
//! goes one each to those that come first; a rate is divided exactly, by making its period longer.

use std::num::NonZeroU32;

use super::check;
use crate::rule::model::{Algorithm, Limit, LimitOverride, Rate};

/// One instance among those that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// How many there are.
    pub instances: NonZeroU32,
    /// Its place among them, from 0. `None` where nobody knows: what remains is then nobody's.
    pub rank: Option<u32>,
}

/// A limit divided for one instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The rule with its part of each number.
    pub limit: Limit,
    /// By variant (0 the rule's own numbers, i + 1 those of override i), whether the part is nothing at all;
    /// the numbers of such a variant mean nothing.
    pub nothing: Vec<bool>,
}

impl Member {
    /// Alone, with the whole of each limit.
    pub const ALONE: Self = Self { instances: NonZeroU32::MIN, rank: Some(0) };

    /// The part of a limit.
    pub fn share(self, limit: &Limit) -> Share {
        let mut nothing = Vec::with_capacity(limit.overrides.len() + 1);
        let mut part = |algorithm: &Algorithm| {
            let part = self.part(algorithm);
            nothing.push(part.is_none());
            part.unwrap_or_else(|| algorithm.clone())
        };
        let algorithm = part(&limit.algorithm);
        let overrides = limit
            .overrides
            .iter()
            .map(|other| LimitOverride { algorithm: part(&other.algorithm), ..other.clone() })
            .collect();
        Share { limit: Limit { algorithm, overrides, ..limit.clone() }, nothing }
    }

    /// The part of an algorithm's numbers; `None` when it is nothing.
    pub fn part(self, algorithm: &Algorithm) -> Option<Algorithm> {
        let part = match *algorithm {
            Algorithm::TokenBucket { capacity, refill } => {
                Algorithm::TokenBucket { capacity: self.count(capacity)?, refill: self.slower(refill) }
            }
            Algorithm::LeakyBucket { rate, queue } => {
                let places = self.count(queue.saturating_add(1))?;
                Algorithm::LeakyBucket { rate: self.slower(rate), queue: places - 1 }
            }
            Algorithm::FixedWindow { limit, window } => {
                Algorithm::FixedWindow { limit: self.count(limit)?, window }
            }
            Algorithm::SlidingWindow { limit, window } => {
                Algorithm::SlidingWindow { limit: self.count(limit)?, window }
            }
            Algorithm::SlidingLog { limit, window } => {
                Algorithm::SlidingLog { limit: self.count(limit)?, window }
            }
            Algorithm::Concurrency { max } => Algorithm::Concurrency { max: self.count(max)? },
        };
        // A period that grows past what an algorithm takes is a part too small to be counted.
        check(&part).is_ok().then_some(part)
    }

    fn count(self, whole: u64) -> Option<u64> {
        let instances = u64::from(self.instances.get());
        let first = self.rank.is_some_and(|rank| u64::from(rank) < whole % instances);
        Some(whole / instances + u64::from(first)).filter(|part| *part > 0)
    }

    fn slower(self, rate: Rate) -> Rate {
        Rate { per: rate.per.saturating_mul(self.instances.get()), ..rate }
    }
}

#[cfg(test)]
mod tests;
