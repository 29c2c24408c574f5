//! Windows aligned to the UTC epoch.

use std::time::Duration;

use super::{MAX_PERIOD, REORDER};
use crate::Timestamp;
use crate::time::nanos;

/// The length of a window in nanoseconds, brought inside the accepted range.
pub(super) fn length(window: Duration) -> u64 {
    nanos(window).clamp(1, nanos(MAX_PERIOD))
}

/// Where the window that holds `now` starts.
#[inline]
pub(super) fn start_of(now: Timestamp, window: u64) -> u64 {
    let now = now.as_nanos();
    now - now.checked_rem(window).unwrap_or(0)
}

/// `now`, or the start of the state's window when that lies ahead by a reordered call's lag.
#[inline]
pub(super) fn not_before(now: Timestamp, start: u64) -> Timestamp {
    let ahead = start.saturating_sub(now.as_nanos());
    if ahead > 0 && ahead <= nanos(REORDER) { Timestamp::from_nanos(start) } else { now }
}
