//! Limits that several instances count together: what is asked, and what the store answers.
//!
//! The store decides by its own clock, in one atomic step, test and count together. Whoever asks and gets
//! no answer does not know whether the call was counted; [`SharedFault`] says what is known.

mod key;
pub mod numbers;
mod rule;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::Decision;
use tidegate_core::rule::model::Mode;

pub use key::{CounterKey, KeySpace, MAX_TAG};
pub use numbers::{Kind, MAX_LOG_RUNS, Numbers};
pub use rule::SharedRule;

use crate::traits::BoxFuture;

/// One limit's counter, as a batch asks it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    /// Where it is.
    pub key: CounterKey,
    /// What it is decided by, unless it holds the numbers of a newer version.
    pub numbers: Numbers,
    /// Which version of the rules the numbers are of: grows with each, below 2⁵³.
    pub ordinal: u64,
    /// Whether it refuses, and whether it counts.
    pub mode: Mode,
}

/// What calls are decided for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To say what calls would get, each as if it came alone, and to change nothing.
    Peek,
    /// To charge what is admitted, for good.
    Charge,
    /// To charge what is admitted, and remember it so that it can be given back.
    Reserve,
}

/// One question to one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAsk {
    /// The counter. A request asks it once.
    pub counter: Counter,
    /// From 1. A cost of 0 asks whether the counter is not overdrawn, and takes nothing.
    pub cost: u64,
}

/// What one counter said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedVerdict {
    /// Whether it counts: only an enforced limit refuses.
    pub mode: Mode,
    /// Its decision. When another limit refused the call, what is left is as if it had not been made.
    /// `None`: it was not asked, because another one had refused already.
    pub decision: Option<Decision>,
    /// The start of the window that it counts, by the store's clock; for windows only.
    pub window: Option<Timestamp>,
}

/// The answer to all questions of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedOutcome {
    /// In the order of the asks.
    pub verdicts: SmallVec<[SharedVerdict; 4]>,
    /// Whether every enforced limit admits the request.
    pub admitted: bool,
    /// How long the admitted request must wait for its turn: the longest of its leaky buckets.
    pub wait: Duration,
    /// The concurrency permits it holds, to be renewed and given back.
    pub permits: Vec<Permit>,
    /// Counters that were charged for a refused request and could not be given back.
    pub stranded: usize,
    /// Script calls that it took; 0 when another call's carried it.
    pub commands: usize,
}

/// A place in flight under a concurrency limit. It ends on its own when it is not renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    key: CounterKey,
    /// Its cost and its call.
    member: String,
}

impl Permit {
    /// The one that the call `id` took for `cost` at `key`.
    pub fn new(key: CounterKey, id: &str, cost: u64) -> Self {
        Self { key, member: format!("{cost}:{id}") }
    }

    /// As the store names it.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// The counter that it was taken at.
    pub fn key(&self) -> &CounterKey {
        &self.key
    }
}

/// Why the store did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SharedFault {
    /// Whether what was asked may have been counted all the same.
    pub may_have_run: bool,
    /// For people; without secrets.
    pub message: Arc<str>,
}

/// Where one of several instances stands among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// The store's time.
    pub now: Timestamp,
    /// Instances that gave a sign of life lately, this one among them; from 1.
    pub instances: u32,
    /// Its place among them, from 0: the same for as long as none comes or goes.
    pub rank: u32,
    /// Which life of the store's data this is: another one means that the data was lost.
    pub epoch: u128,
    /// Since when, by the store's time.
    pub since: Timestamp,
    /// Whether an earlier life is known to have been lost.
    pub lost: bool,
    /// Signs of life in this epoch, of all instances: a count that falls back means that writes were lost.
    pub seen: u64,
}

/// Counters that several instances share.
pub trait SharedLimitStore: Send + Sync {
    /// Decides one request on all its counters: each is charged, or none is. `id` names the request, and
    /// no other.
    ///
    /// When the future is dropped before it is done, what was charged stays charged.
    fn decide<'a>(
        &'a self,
        asks: &'a [SharedAsk],
        id: &'a str,
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<SharedOutcome, SharedFault>>;

    /// Gives back what the request `id` was charged with [`Purpose::Reserve`], each counter once, and only in
    /// the window that it was charged in.
    fn give_back<'a>(&'a self, asks: &'a [SharedAsk], id: &'a str) -> BoxFuture<'a, Result<(), SharedFault>>;

    /// Gives permits back. Which of them were still held, in their order.
    fn release<'a>(&'a self, permits: &'a [Permit]) -> BoxFuture<'a, Result<Vec<bool>, SharedFault>>;

    /// Lets permits live for `life` from now on. Which of them are still held, in their order.
    fn renew<'a>(
        &'a self,
        permits: &'a [Permit],
        life: Duration,
    ) -> BoxFuture<'a, Result<Vec<bool>, SharedFault>>;

    /// Gives a sign of life for the instance of this name, which counts as gone after `life`. `known` is what
    /// it was told last: that the data is another now is noted for all.
    fn pulse<'a>(
        &'a self,
        instance: &'a str,
        life: Duration,
        known: Option<Pulse>,
    ) -> BoxFuture<'a, Result<Pulse, SharedFault>>;

    /// The place of the rules with this digest in the order of all that were published. With `publish`, they
    /// become the newest, unless they are already.
    fn ordinal<'a>(&'a self, digest: &'a str, publish: bool) -> BoxFuture<'a, Result<u64, SharedFault>>;

    /// Forgets what a counter has counted. Whether there was anything.
    fn forget<'a>(&'a self, key: &'a CounterKey) -> BoxFuture<'a, Result<bool, SharedFault>>;

    /// Where it is, without secrets.
    fn name(&self) -> String;
}
