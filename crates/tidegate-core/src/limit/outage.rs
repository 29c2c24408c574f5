//! Whether the store that instances share is asked at all.
//!
//! A breaker around it: the first failure opens it, so that a silent store costs one wait and not one for
//! each call. Then nobody but a probe in the background asks. How many probes must succeed in a row grows
//! while the store keeps failing soon after it came back, so that one that flaps is not believed each time.

use std::time::Duration;

use crate::Timestamp;

/// A failure within this time of the last return counts as flapping.
pub const SETTLED: Duration = Duration::from_secs(10);
/// Most probes that must succeed in a row.
pub const MAX_PROBES: u32 = 16;

/// What is known of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    state: State,
    /// Probes that must succeed in a row before it is asked again.
    needed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up { since: Timestamp },
    Down { good: u32 },
}

impl StoreHealth {
    /// Nothing is known: it is asked once a probe has succeeded.
    pub const UNKNOWN: Self = Self { state: State::Down { good: 0 }, needed: 1 };

    /// Whether it is asked.
    pub const fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Probes that are still missing until it is asked again; 0 while it is.
    pub const fn missing(&self) -> u32 {
        match self.state {
            State::Up { .. } => 0,
            State::Down { good } => self.needed.saturating_sub(good),
        }
    }

    /// A call or a probe failed. Whether that closed the store.
    pub fn failed(&mut self, now: Timestamp) -> bool {
        match self.state {
            State::Up { since } => {
                let settled = now.since(since) >= SETTLED;
                self.needed = if settled { 1 } else { self.needed.saturating_mul(2).min(MAX_PROBES) };
                self.state = State::Down { good: 0 };
                true
            }
            State::Down { .. } => {
                self.state = State::Down { good: 0 };
                false
            }
        }
    }

    /// A probe succeeded. Whether that opened the store again.
    pub fn probed(&mut self, now: Timestamp) -> bool {
        let State::Down { good } = self.state else { return false };
        if good + 1 < self.needed {
            self.state = State::Down { good: good + 1 };
            return false;
        }
        self.state = State::Up { since: now };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + secs)
    }

    #[test]
    fn the_first_failure_closes_it_and_the_first_good_probe_opens_it() {
        let mut health = StoreHealth::UNKNOWN;
        assert!(!health.is_up() && health.missing() == 1);
        assert!(!health.failed(at(0)), "it was not open");
        assert!(health.probed(at(1)) && health.is_up() && health.missing() == 0);
        assert!(!health.probed(at(2)), "it is open already");
        assert!(health.failed(at(60)) && !health.is_up());
        assert!(!health.failed(at(60)), "said once");
        assert!(health.probed(at(61)));
    }

    #[test]
    fn one_that_flaps_is_believed_later_each_time_and_forgiven_when_it_has_settled() {
        let mut health = StoreHealth::UNKNOWN;
        health.probed(at(0));
        let mut now = 1;
        for needed in [2, 4, 8, 16, 16] {
            assert!(health.failed(at(now)));
            for _ in 1..needed {
                assert!(!health.probed(at(now)), "after {needed}");
            }
            assert_eq!(health.missing(), 1);
            assert!(health.probed(at(now)), "after {needed}");
            now += 9;
        }
        assert!(health.failed(at(now + 10)));
        assert!(health.probed(at(now + 11)), "it had been up for more than ten seconds");
    }

    #[test]
    fn a_failed_probe_begins_anew() {
        let mut health = StoreHealth { state: State::Down { good: 2 }, needed: 4 };
        health.failed(at(0));
        assert_eq!(health.missing(), 4);
    }
}
