//! The numbers that limits accept.

use std::time::Duration;

use crate::rule::model::{Algorithm, Rate};

/// Largest capacity, limit, queue, rate count and cost: 10¹⁵ − 1, the largest integer that a
/// structured HTTP field can carry (RFC 9651, section 3.3.1), which the `RateLimit` fields are.
pub const MAX_COUNT: u64 = 999_999_999_999_999;

/// Longest window, and longest period of a rate: 366 days.
pub const MAX_PERIOD: Duration = Duration::from_hours(366 * 24);

/// Why an algorithm's numbers are refused. `Display` is the problem and a way to mend it, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.problem(), self.help())]
#[non_exhaustive]
pub enum AlgorithmError {
    /// A count is zero.
    ZeroCount {
        /// The field of the document.
        field: &'static str,
    },
    /// A count is too large.
    CountTooLarge {
        /// The field of the document.
        field: &'static str,
        /// What it says.
        value: u64,
    },
    /// A duration is zero.
    ZeroPeriod {
        /// The field of the document.
        field: &'static str,
    },
    /// A duration is too long.
    PeriodTooLong {
        /// The field of the document.
        field: &'static str,
    },
    /// A rate gives more than one unit each nanosecond, finer than the clock.
    RateTooFast {
        /// The field of the document.
        field: &'static str,
    },
}

impl AlgorithmError {
    /// What is wrong, in one line.
    pub fn problem(&self) -> String {
        match self {
            Self::ZeroCount { field } => format!("{field} is 0, which would refuse every call"),
            Self::CountTooLarge { field, value } => format!("{field} is {value}, more than {MAX_COUNT}"),
            Self::ZeroPeriod { field } => format!("{field} is zero"),
            Self::PeriodTooLong { field } => format!("{field} is longer than 366d"),
            Self::RateTooFast { field } => {
                format!("{field} is more than 1000000000/s, which no clock can tell from no limit")
            }
        }
    }

    /// A way to mend it, in one line.
    pub fn help(&self) -> &'static str {
        match self {
            Self::ZeroCount { .. } => "give at least 1",
            Self::CountTooLarge { .. } => "give a smaller number",
            Self::ZeroPeriod { .. } => "give at least 1us",
            Self::PeriodTooLong { .. } => "give a shorter one",
            Self::RateTooFast { .. } => "give a lower rate",
        }
    }
}

/// Whether the compiled form of `algorithm` counts exactly what it says.
///
/// Every capacity up to [`MAX_COUNT`] with every rate up to 10⁹ a second and period up to
/// [`MAX_PERIOD`] does. The compiled forms are total all the same: numbers outside are brought to the
/// nearest one inside, towards admitting less.
pub fn check(algorithm: &Algorithm) -> Result<(), AlgorithmError> {
    match algorithm {
        Algorithm::TokenBucket { capacity, refill } => {
            count("capacity", *capacity)?;
            check_rate("refill", *refill)
        }
        Algorithm::FixedWindow { limit, window }
        | Algorithm::SlidingLog { limit, window }
        | Algorithm::SlidingWindow { limit, window } => {
            count("limit", *limit)?;
            period("window", *window)
        }
        Algorithm::LeakyBucket { rate, queue } => {
            check_rate("rate", *rate)?;
            // The call whose turn it is has a place beside the queue.
            if *queue >= MAX_COUNT {
                return Err(AlgorithmError::CountTooLarge { field: "queue", value: *queue });
            }
            Ok(())
        }
        Algorithm::Concurrency { max } => count("max", *max),
    }
}

/// The same for a rate alone, which errors call `field`.
pub fn check_rate(field: &'static str, value: Rate) -> Result<(), AlgorithmError> {
    count(field, value.count)?;
    period(field, value.per)?;
    if u128::from(value.count) > value.per.as_nanos() {
        return Err(AlgorithmError::RateTooFast { field });
    }
    Ok(())
}

fn count(field: &'static str, value: u64) -> Result<(), AlgorithmError> {
    match value {
        0 => Err(AlgorithmError::ZeroCount { field }),
        1..=MAX_COUNT => Ok(()),
        _ => Err(AlgorithmError::CountTooLarge { field, value }),
    }
}

fn period(field: &'static str, value: Duration) -> Result<(), AlgorithmError> {
    if value.is_zero() {
        Err(AlgorithmError::ZeroPeriod { field })
    } else if value > MAX_PERIOD {
        Err(AlgorithmError::PeriodTooLong { field })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let rate = |count, per| Rate { count, per };
        let second = Duration::from_secs(1);
        for (algorithm, expected) in [
            (Algorithm::TokenBucket { capacity: 1, refill: rate(1_000_000_000, second) }, Ok(())),
            (Algorithm::TokenBucket { capacity: MAX_COUNT, refill: rate(1, MAX_PERIOD) }, Ok(())),
            (
                Algorithm::TokenBucket { capacity: 0, refill: rate(1, second) },
                Err(AlgorithmError::ZeroCount { field: "capacity" }),
            ),
            (
                Algorithm::TokenBucket { capacity: 1, refill: rate(0, second) },
                Err(AlgorithmError::ZeroCount { field: "refill" }),
            ),
            (
                Algorithm::TokenBucket { capacity: 1, refill: rate(1_000_000_001, second) },
                Err(AlgorithmError::RateTooFast { field: "refill" }),
            ),
            (
                Algorithm::FixedWindow { limit: u64::MAX, window: second },
                Err(AlgorithmError::CountTooLarge { field: "limit", value: u64::MAX }),
            ),
            (
                Algorithm::SlidingLog { limit: 1, window: Duration::ZERO },
                Err(AlgorithmError::ZeroPeriod { field: "window" }),
            ),
            (
                Algorithm::SlidingWindow { limit: 1, window: Duration::MAX },
                Err(AlgorithmError::PeriodTooLong { field: "window" }),
            ),
            (Algorithm::LeakyBucket { rate: rate(1, 5 * second), queue: 0 }, Ok(())),
            (
                Algorithm::LeakyBucket { rate: rate(1, second), queue: MAX_COUNT },
                Err(AlgorithmError::CountTooLarge { field: "queue", value: MAX_COUNT }),
            ),
            (Algorithm::Concurrency { max: 0 }, Err(AlgorithmError::ZeroCount { field: "max" })),
        ] {
            assert_eq!(check(&algorithm), expected, "{algorithm:?}");
        }
    }

    #[test]
    fn refusals_say_how_to_mend_them() {
        let field = "limit";
        for (error, text) in [
            (
                AlgorithmError::ZeroCount { field },
                "limit is 0, which would refuse every call; give at least 1",
            ),
            (
                AlgorithmError::CountTooLarge { field, value: MAX_COUNT + 1 },
                "limit is 1000000000000000, more than 999999999999999; give a smaller number",
            ),
            (AlgorithmError::ZeroPeriod { field }, "limit is zero; give at least 1us"),
            (AlgorithmError::PeriodTooLong { field }, "limit is longer than 366d; give a shorter one"),
            (
                AlgorithmError::RateTooFast { field },
                "limit is more than 1000000000/s, which no clock can tell from no limit; give a lower rate",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn the_largest_numbers_are_accepted_and_the_next_refused() {
        let nanosecond = Duration::from_nanos(1);
        let one = Rate { count: 1, per: MAX_PERIOD };
        for (limit, window, good) in [
            (MAX_COUNT, MAX_PERIOD, true),
            (MAX_COUNT + 1, MAX_PERIOD, false),
            (1, MAX_PERIOD + nanosecond, false),
            (1, nanosecond, true),
        ] {
            let algorithm = Algorithm::FixedWindow { limit, window };
            assert_eq!(check(&algorithm).is_ok(), good, "{algorithm:?}");
        }
        for (queue, good) in [(MAX_COUNT - 1, true), (MAX_COUNT, false)] {
            assert_eq!(check(&Algorithm::LeakyBucket { rate: one, queue }).is_ok(), good, "{queue}");
        }
        assert_eq!(MAX_PERIOD.as_secs(), 31_622_400);
    }
}
