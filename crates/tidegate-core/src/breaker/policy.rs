//! A breaker's rule, ready for use: what counts as a failure, what is slow, what trips.

use std::time::Duration;

use smallvec::SmallVec;

use crate::breaker::window::Counts;
use crate::rule::model::{Breaker, FailureKind, Trip};

/// The most probes that one recovery waits for; a rule that asks for more gets this many.
pub const MAX_PROBES: u32 = 1024;

/// How a call to the dependency ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallResult {
    /// A response with this status, whoever made it: an error that middleware turned into a 500 is one.
    Status(u16),
    /// No connection.
    Connect,
    /// No answer in time, also when the waiting was cut short by a cancellation at that time.
    Timeout,
    /// The connection broke.
    Reset,
}

/// What one result means to one breaker: 0 for a quick success, then odd for failures, and two more
/// for each slow threshold that the call exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(usize);

impl Class {
    /// Neither a failure nor slow.
    pub const GOOD: Self = Self(0);

    /// Its place in a [`Window`](crate::breaker::Window).
    pub const fn index(self) -> usize {
        self.0
    }

    /// Whether it is a failure.
    pub const fn failed(self) -> bool {
        self.0 % 2 == 1
    }

    /// Whether it was slower than at least one threshold.
    pub const fn slow(self) -> bool {
        self.0 >= 2
    }
}

/// The counts of one window, as trips are judged by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Results in the window.
    pub calls: u64,
    /// Failures among them.
    pub failures: u64,
    /// Calls slower than each threshold, the shortest threshold first.
    pub slow: SmallVec<[u64; 4]>,
}

/// A breaker's rule, ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Length of the sliding window.
    pub window: Duration,
    /// Nothing trips before so many results stand in the window.
    pub min_requests: u64,
    /// How long the first opening lasts.
    pub open_for: Duration,
    /// The longest opening, before jitter.
    pub max_open: Duration,
    /// Calls that must all succeed, 1 to [`MAX_PROBES`].
    pub probes: u32,
    /// A probe that is silent for so long is a failure.
    pub probe_timeout: Duration,
    /// Distinct slow thresholds, the shortest first.
    thresholds: SmallVec<[Duration; 2]>,
    failure: SmallVec<[FailureKind; 4]>,
    trip: SmallVec<[Trip; 3]>,
}

impl Policy {
    /// Prepares a rule.
    pub fn new(rule: &Breaker) -> Self {
        let mut thresholds: SmallVec<[Duration; 2]> = rule
            .trip
            .iter()
            .filter_map(|trip| match trip {
                Trip::SlowRatio { slower_than, .. } => Some(*slower_than),
                Trip::ErrorRatio { .. } | Trip::ErrorCount { .. } => None,
            })
            .collect();
        thresholds.sort_unstable();
        thresholds.dedup();
        Self {
            window: rule.window,
            min_requests: rule.min_requests,
            open_for: rule.open_for,
            max_open: rule.max_open,
            probes: rule.half_open.probes.clamp(1, MAX_PROBES),
            probe_timeout: rule.half_open.probe_timeout,
            thresholds,
            failure: rule.failure.iter().copied().collect(),
            trip: rule.trip.iter().cloned().collect(),
        }
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        (self.thresholds.len() + 1).saturating_mul(2)
    }

    /// Whether counts that were taken under `other` mean the same here: the same window, failures and
    /// slow thresholds.
    pub fn counts_like(&self, other: &Self) -> bool {
        let fails_all = |of: &Self, kinds: &Self| kinds.failure.iter().all(|kind| of.failure.contains(kind));
        self.window == other.window
            && self.thresholds == other.thresholds
            && fails_all(self, other)
            && fails_all(other, self)
    }

    /// What a result means. Slower than a threshold is strictly longer; a failure can be slow too.
    #[inline]
    pub fn class(&self, result: CallResult, elapsed: Duration) -> Class {
        let slow = self.thresholds.iter().take_while(|threshold| elapsed > **threshold).count();
        let failed = match result {
            CallResult::Status(status) => {
                // A healthy call pays one comparison, unless the rule lists statuses below 500.
                (status >= 500 || self.failure.iter().any(|kind| matches!(kind, FailureKind::Status(_))))
                    && self.failure.iter().any(|kind| match kind {
                        FailureKind::ServerError => (500..=599).contains(&status),
                        FailureKind::Status(listed) => *listed == status,
                        FailureKind::Connect | FailureKind::Timeout | FailureKind::Reset => false,
                    })
            }
            CallResult::Connect => self.failure.contains(&FailureKind::Connect),
            CallResult::Timeout => self.failure.contains(&FailureKind::Timeout),
            CallResult::Reset => self.failure.contains(&FailureKind::Reset),
        };
        Class(slow * 2 + usize::from(failed))
    }

    /// What is certainly [`Class::GOOD`], for a thread that has no policy at hand: an answer with a status
    /// below the first, after no longer than the second.
    pub fn certainly_good(&self) -> (u16, Duration) {
        let listed = self.failure.iter().filter_map(|kind| match kind {
            FailureKind::Status(listed) => Some(*listed),
            _ => None,
        });
        let below = listed.min().map_or(500, |least| least.min(500));
        (below, self.thresholds.first().copied().unwrap_or(Duration::MAX))
    }

    /// Adds up a window's counts.
    pub fn tally(&self, counts: &Counts) -> Tally {
        let mut tally = Tally { slow: SmallVec::from_elem(0, self.thresholds.len()), ..Tally::default() };
        for (class, count) in counts.iter().enumerate() {
            tally.calls = tally.calls.saturating_add(*count);
            if Class(class).failed() {
                tally.failures = tally.failures.saturating_add(*count);
            }
            for slow in tally.slow.iter_mut().take(class / 2) {
                *slow = slow.saturating_add(*count);
            }
        }
        tally
    }

    /// Which entry of `trip` the counts reach, the first one listed; `None` while all is well.
    ///
    /// `at_least` means ≥, compared in integers. A trip needs a bad result, so a share of 0 % never
    /// opens a breaker whose calls are all fine.
    pub fn tripped(&self, tally: &Tally) -> Option<usize> {
        if tally.calls < self.min_requests.max(1) {
            return None;
        }
        let reaches = |bad: u64, hundredths: u16| {
            bad > 0 && u128::from(bad) * 10_000 >= u128::from(hundredths) * u128::from(tally.calls)
        };
        self.trip.iter().position(|trip| match trip {
            Trip::SlowRatio { slower_than, at_least } => self
                .thresholds
                .iter()
                .position(|threshold| threshold == slower_than)
                .and_then(|level| tally.slow.get(level))
                .is_some_and(|slow| reaches(*slow, at_least.hundredths())),
            Trip::ErrorRatio { at_least } => reaches(tally.failures, at_least.hundredths()),
            Trip::ErrorCount { at_least } => tally.failures >= (*at_least).max(1),
        })
    }
}

#[cfg(test)]
mod tests;
