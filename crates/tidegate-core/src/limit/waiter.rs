//! Waiting for a permit: when to ask again, and when to give up.
//!
//! A waiter holds no place: each time it wakes it asks anew, and the answer counts. Of nine that wait
//! for a window of three, three pass in each of the next three windows.

use std::time::Duration;

use super::{Answer, Decision, Retry};
use crate::Timestamp;

/// The patience of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    until: Timestamp,
}

/// What a caller does after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTry {
    /// It is admitted, and its turn comes at this time.
    Go(Timestamp),
    /// Ask again at this time.
    At(Timestamp),
    /// Ask again whenever a call in flight ends, and give up at this time.
    OnRelease {
        /// The end of the caller's patience.
        give_up: Timestamp,
    },
    /// Waiting is of no use: it can never pass, or not before the patience is over.
    GiveUp,
}

impl Waiter {
    /// Waits at most `patience` from `now`.
    pub fn new(now: Timestamp, patience: Duration) -> Self {
        Self { until: now + patience }
    }

    /// What to do after `decision` was made at `now`.
    ///
    /// An admitted call has been charged, so it goes whatever its patience says.
    pub fn next(&self, decision: &Decision, now: Timestamp) -> NextTry {
        match decision.answer {
            Answer::Admitted { wait } => NextTry::Go(now + wait),
            Answer::Denied(Retry::After(wait)) => {
                let at = now + wait;
                if at <= self.until { NextTry::At(at) } else { NextTry::GiveUp }
            }
            Answer::Denied(Retry::OnRelease) if now < self.until => {
                NextTry::OnRelease { give_up: self.until }
            }
            Answer::Denied(Retry::OnRelease | Retry::Never) => NextTry::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Concurrency, Counter, FixedWindow};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn l18_a_waiter_decides_anew_when_it_wakes() {
        let rule = FixedWindow::new(3, 10 * SECOND);
        let start = Timestamp::from_secs(1000);
        let mut state = rule.fresh(start);
        let mut asleep = vec![(start, Waiter::new(start, 60 * SECOND)); 9];
        let mut passed = Vec::new();
        while let Some(now) = asleep.iter().map(|(at, _)| *at).min() {
            let mut count = 0;
            asleep.retain_mut(|(at, waiter)| {
                if *at > now {
                    return true;
                }
                let (decision, next) = rule.decide(state, 1, now);
                state = next;
                match waiter.next(&decision, now) {
                    NextTry::Go(_) => count += 1,
                    NextTry::At(again) => {
                        *at = again;
                        return true;
                    }
                    other => panic!("{other:?}"),
                }
                false
            });
            passed.push((now.since(start), count));
        }
        assert_eq!(passed, [(Duration::ZERO, 3), (10 * SECOND, 3), (20 * SECOND, 3)]);
    }

    #[test]
    fn patience_is_bounded() {
        let now = Timestamp::from_secs(10);
        let decision = |answer| Decision { answer, limit: 1, remaining: 0, reset: 0 };
        let later = decision(Answer::Denied(Retry::After(2 * SECOND)));
        for (patience, expected) in [
            (2 * SECOND, NextTry::At(now + 2 * SECOND)),
            (Duration::from_nanos(1_999_999_999), NextTry::GiveUp),
            (Duration::ZERO, NextTry::GiveUp),
        ] {
            assert_eq!(Waiter::new(now, patience).next(&later, now), expected, "{patience:?}");
        }
        let waiter = Waiter::new(now, SECOND);
        assert_eq!(waiter.next(&Decision::NEVER, now), NextTry::GiveUp);
        let rule = Concurrency::new(1);
        let (_, busy) = rule.decide(rule.fresh(now), 1, now);
        let denied = rule.peek(&busy, 1, now);
        assert_eq!(waiter.next(&denied, now), NextTry::OnRelease { give_up: now + SECOND });
        assert_eq!(waiter.next(&denied, now + SECOND), NextTry::GiveUp);
        assert_eq!(
            waiter.next(&decision(Answer::Admitted { wait: 3 * SECOND }), now),
            NextTry::Go(now + 3 * SECOND)
        );
    }
}
