//! What the scripts are told of an algorithm, and what their answers mean.
//!
//! Scripts count in whole microseconds, in doubles that hold integers below 2⁵³ exactly. A bucket's
//! interval between two tokens is `b/c` µs in lowest terms and its debt is kept as whole tokens and
//! `b`ths of one, so that every rate over a whole number of microseconds is exact, whatever the capacity.

use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_core::limit::concurrency::InFlight;
use tidegate_core::limit::fixed_window::Used;
use tidegate_core::limit::sliding_window::Pair;
use tidegate_core::limit::{
    Answer, Concurrency, Counter, Decision, FixedWindow, MAX_COUNT, MAX_PERIOD, Retry, SlidingWindow,
};
use tidegate_core::rule::model::{Algorithm, Rate};

/// Instants that one sliding log remembers at most. Beyond it the newest are merged, which admits less
/// and never more.
pub const MAX_LOG_RUNS: u64 = 100_000;

/// Largest numerator of an interval that the scripts' divisions take exactly.
const MAX_PARTS: u64 = 1 << 50;
/// Integers up to it are exact in a double.
const MAX_WHOLE: u64 = (1 << 53) - 1;

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Algorithm::TokenBucket`].
    TokenBucket,
    /// [`Algorithm::LeakyBucket`].
    LeakyBucket,
    /// [`Algorithm::FixedWindow`].
    FixedWindow,
    /// [`Algorithm::SlidingWindow`].
    SlidingWindow,
    /// [`Algorithm::SlidingLog`].
    SlidingLog,
    /// [`Algorithm::Concurrency`].
    Concurrency,
}

impl Kind {
    /// Its letter in the scripts.
    pub const fn letter(self) -> &'static str {
        match self {
            Self::TokenBucket => "t",
            Self::LeakyBucket => "l",
            Self::FixedWindow => "f",
            Self::SlidingWindow => "s",
            Self::SlidingLog => "g",
            Self::Concurrency => "c",
        }
    }

    /// How many numbers of the reply are its state.
    pub const fn state_len(self) -> usize {
        match self {
            Self::Concurrency => 1,
            Self::TokenBucket | Self::LeakyBucket | Self::FixedWindow | Self::SlidingLog => 2,
            Self::SlidingWindow => 3,
        }
    }
}

/// An algorithm's compiled numbers, each below 2⁵³.
///
/// | kind | a | b | c |
/// |---|---|---|---|
/// | token bucket | capacity | interval in µs: numerator | denominator |
/// | leaky bucket | places: queue and one | interval in µs: numerator | denominator |
/// | windows | limit | window in µs | 0 |
/// | sliding log | limit | window in µs | [`MAX_LOG_RUNS`] |
/// | concurrency | max | life of a permit in µs | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// How it counts.
    pub kind: Kind,
    /// See the table.
    pub a: u64,
    /// See the table.
    pub b: u64,
    /// See the table.
    pub c: u64,
}

impl Numbers {
    /// Compiles an algorithm. `permit_life` is after how long a silent holder of a concurrency permit
    /// counts as gone.
    ///
    /// Spans that are no whole number of microseconds (documents cannot have them) are rounded up, and
    /// numbers that [`check`](tidegate_core::limit::check) refuses are brought inside its bounds,
    /// towards admitting less.
    pub fn new(algorithm: &Algorithm, permit_life: Duration) -> Self {
        let count = |limit: u64| limit.clamp(1, MAX_COUNT);
        let (kind, a, (b, c)) = match *algorithm {
            Algorithm::TokenBucket { capacity, refill } => {
                (Kind::TokenBucket, count(capacity), interval(refill))
            }
            Algorithm::LeakyBucket { rate, queue } => {
                (Kind::LeakyBucket, count(queue.saturating_add(1)), interval(rate))
            }
            Algorithm::FixedWindow { limit, window } => {
                (Kind::FixedWindow, count(limit), (micros(window), 0))
            }
            Algorithm::SlidingWindow { limit, window } => {
                (Kind::SlidingWindow, count(limit), (micros(window), 0))
            }
            Algorithm::SlidingLog { limit, window } => {
                (Kind::SlidingLog, count(limit), (micros(window), MAX_LOG_RUNS))
            }
            Algorithm::Concurrency { max } => (Kind::Concurrency, count(max), (micros(permit_life), 0)),
        };
        Self { kind, a, b, c }
    }

    /// How it counts.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What its counters' keys end with. Another algorithm or window is another counter.
    pub fn suffix(&self) -> String {
        match self.kind {
            Kind::TokenBucket => "token_bucket".to_owned(),
            Kind::LeakyBucket => "leaky_bucket".to_owned(),
            Kind::Concurrency => "concurrency".to_owned(),
            Kind::FixedWindow => format!("fixed_window:{}", span(self.b)),
            Kind::SlidingWindow => format!("sliding_window:{}", span(self.b)),
            Kind::SlidingLog => format!("sliding_log:{}", span(self.b)),
        }
    }

    /// What a call of `cost` gets from a counter in this state.
    pub fn test(&self, state: &State, cost: u64, now: Timestamp) -> Decision {
        match *state {
            State::Debt { tokens, parts } => self.test_bucket(tokens, parts, cost),
            State::Fixed { start, used } => {
                FixedWindow::new(self.a, self.window()).test(&Used::new(start, used), cost, now)
            }
            State::Pair { start, current, previous } => {
                let state = Pair::new(start, current, previous);
                SlidingWindow::new(self.a, self.window()).test(&state, cost, now)
            }
            State::Log { used, newest, room } => self.test_log(used, newest, room, cost, now),
            State::InFlight { used } => Concurrency::new(self.a).test(&InFlight::new(used), cost, now),
        }
    }

    fn window(&self) -> Duration {
        Duration::from_micros(self.b)
    }

    fn test_bucket(&self, tokens: u64, parts: u64, cost: u64) -> Decision {
        let token = u128::from(self.b);
        let debt = u128::from(tokens) * token + u128::from(parts);
        let full = u128::from(self.a) * token;
        let after = debt + u128::from(cost) * token;
        let (answer, debt) = if cost > self.a {
            (Answer::Denied(Retry::Never), debt)
        } else if after <= full {
            // A call that takes several turns leaves with the last of them.
            let ahead = if self.kind == Kind::LeakyBucket {
                debt + u128::from(cost.saturating_sub(1)) * token
            } else {
                0
            };
            (Answer::Admitted { wait: self.until_paid(ahead) }, after)
        } else {
            (Answer::Denied(Retry::After(self.until_paid(after - full))), debt)
        };
        let remaining = full.saturating_sub(debt).checked_div(token).unwrap_or(0);
        Decision::new(answer, self.a, saturate(remaining), self.until_paid(debt))
    }

    fn test_log(&self, used: u64, newest: Timestamp, room: Timestamp, cost: u64, now: Timestamp) -> Decision {
        let after = used.saturating_add(cost);
        let leaves = |run: Timestamp| (run + self.window()).since(now);
        let (answer, used, newest) = if after <= self.a {
            (
                Answer::Admitted { wait: Duration::ZERO },
                after,
                if cost > 0 { newest.max(now) } else { newest },
            )
        } else if cost > self.a {
            (Answer::Denied(Retry::Never), used, newest)
        } else {
            (Answer::Denied(Retry::After(leaves(room))), used, newest)
        };
        let reset = if used == 0 { Duration::ZERO } else { leaves(newest) };
        Decision::new(answer, self.a, self.a.saturating_sub(used), reset)
    }

    /// The shortest time in which so many parts of a token are paid, rounded up to nanoseconds.
    fn until_paid(&self, parts: u128) -> Duration {
        let nanos = parts.saturating_mul(1000).div_ceil(u128::from(self.c.max(1)));
        Duration::from_nanos(saturate(nanos))
    }
}

/// What a counter held when a call came, brought to that call's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a bucket: whole tokens, and parts of one.
    Debt {
        /// Whole ones.
        tokens: u64,
        /// Of which `b` make a token.
        parts: u64,
    },
    /// Of a fixed window.
    Fixed {
        /// Of the window.
        start: Timestamp,
        /// In it.
        used: u64,
    },
    /// Of a sliding window.
    Pair {
        /// Of the current window.
        start: Timestamp,
        /// Used in it.
        current: u64,
        /// Used in the one before.
        previous: u64,
    },
    /// Of a sliding log; `room` is the run that a denied call waits for.
    Log {
        /// In the window that ends now.
        used: u64,
        /// When the latest call was admitted.
        newest: Timestamp,
        /// When the run was admitted that must leave the window first.
        room: Timestamp,
    },
    /// Of a concurrency limit.
    InFlight {
        /// By live permits.
        used: u64,
    },
}

impl State {
    /// From a reply's numbers, of which there are [`Kind::state_len`].
    pub fn read(kind: Kind, numbers: &[u64]) -> Option<Self> {
        let at = |micros: u64| Timestamp::from_nanos(micros.saturating_mul(1000));
        match (kind, numbers) {
            (Kind::TokenBucket | Kind::LeakyBucket, &[tokens, parts]) => Some(Self::Debt { tokens, parts }),
            (Kind::FixedWindow, &[start, used]) => Some(Self::Fixed { start: at(start), used }),
            (Kind::SlidingWindow, &[start, current, previous]) => {
                Some(Self::Pair { start: at(start), current, previous })
            }
            (Kind::SlidingLog, &[used, newest]) => {
                Some(Self::Log { used, newest: at(newest), room: Timestamp::EPOCH })
            }
            (Kind::Concurrency, &[used]) => Some(Self::InFlight { used }),
            _ => None,
        }
    }

    /// The same after a call was charged.
    pub fn charge(&mut self, cost: u64, now: Timestamp) {
        let (Self::Debt { tokens: used, .. }
        | Self::Fixed { used, .. }
        | Self::Pair { current: used, .. }
        | Self::Log { used, .. }
        | Self::InFlight { used }) = self;
        *used = used.saturating_add(cost);
        if let Self::Log { newest, .. } = self
            && cost > 0
        {
            *newest = now.max(*newest);
        }
    }

    /// The window that it counts, by its start.
    pub fn window(&self) -> Option<Timestamp> {
        match self {
            Self::Fixed { start, .. } | Self::Pair { start, .. } => Some(*start),
            _ => None,
        }
    }
}

/// The interval between two tokens in microseconds, in lowest terms.
fn interval(rate: Rate) -> (u64, u64) {
    let per = nanos(rate.per);
    let count = rate.count.clamp(1, MAX_COUNT).min(per);
    if !per.is_multiple_of(1000) {
        let exact = reduced(per, u128::from(count) * 1000);
        if let Some(exact) = exact.filter(|(b, _)| *b <= MAX_PARTS) {
            return exact;
        }
    }
    // At most 3.2 × 10¹³ over at most 10¹⁵: both fit.
    reduced(per.div_ceil(1000), u128::from(count)).unwrap_or((MAX_PARTS, 1))
}

fn reduced(b: u64, c: u128) -> Option<(u64, u64)> {
    let (mut x, mut y) = (u128::from(b), c);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    let c = u64::try_from(c.checked_div(x)?).ok().filter(|c| *c <= MAX_WHOLE)?;
    Some((saturate(u128::from(b).checked_div(x)?), c))
}

fn nanos(span: Duration) -> u64 {
    saturate(span.min(MAX_PERIOD).as_nanos()).max(1)
}

/// A span in whole microseconds, rounded up; from 1, and at most a limit's longest period.
pub fn micros(span: Duration) -> u64 {
    nanos(span).div_ceil(1000)
}

/// Microseconds in the grammar of rule documents, by the largest unit that they are a multiple of.
fn span(micros: u64) -> String {
    for (unit, name) in
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1000, "ms")]
    {
        if micros.is_multiple_of(unit) {
            return format!("{}{name}", micros / unit);
        }
    }
    format!("{micros}us")
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
