//! Points in time, always passed in.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point in time: nanoseconds since the UTC epoch, enough until the year 2554.
///
/// The core never asks for it. Whoever calls promises that `now` does not run backwards for one
/// piece of state; the decision functions stay bounded (no panic, no wait longer than one period)
/// even if it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The UTC epoch, 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The latest representable time.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds since the UTC epoch.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From milliseconds since the UTC epoch; saturates.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From whole seconds since the UTC epoch; saturates.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the UTC epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the UTC epoch, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The time from `earlier` to `self`; zero when `earlier` is not earlier.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved back by `span`; stops at the epoch.
    #[inline]
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

/// Later by `span`; stops at [`Timestamp::MAX`].
impl Add<Duration> for Timestamp {
    type Output = Self;
    #[inline]
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A duration in nanoseconds; saturates after 584 years.
#[inline]
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole seconds, rounded up: what `Retry-After` and the `RateLimit` fields carry, so that a call at
/// that moment passes.
pub fn ceil_secs(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.before(Duration::from_secs(1)), Timestamp::EPOCH);
        assert_eq!(Timestamp::from_secs(1).since(Timestamp::from_secs(2)), Duration::ZERO);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_timestamp_shows_seconds_and_nanoseconds() {
        assert_eq!(format!("{:?}", Timestamp::EPOCH), "0.000000000s");
        assert_eq!(format!("{:?}", Timestamp::from_nanos(12_000_000_345)), "12.000000345s");
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (span, seconds) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(1900), 2),
            (Duration::from_secs(2), 2),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(ceil_secs(span), seconds, "{span:?}");
        }
    }
}
