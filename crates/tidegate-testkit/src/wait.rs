//! Waiting on conditions, with a deadline.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen, unless it says otherwise: far longer than needed, so
/// that a machine that does much else, or stands still for some seconds, does not fail it.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// The pause between two looks at a condition that cannot be waited on.
const POLL: Duration = Duration::from_millis(2);

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within [`DEADLINE`]; the message names `what`.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Waits until `probe` gives a value.
///
/// # Panics
/// When it does not within [`DEADLINE`]; the message names `what`.
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(DEADLINE);
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(!deadline.passed(), "not within {DEADLINE:?}: {what}");
        std::thread::sleep(POLL);
    }
}

/// A point in time by which something must have happened.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// `span` from now.
    #[expect(clippy::disallowed_methods, reason = "the kit watches real processes on the real clock")]
    pub fn after(span: Duration) -> Self {
        Self(Instant::now() + span)
    }

    /// What is left of it; zero once it has passed.
    #[expect(clippy::disallowed_methods, reason = "the kit watches real processes on the real clock")]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        self.remaining().is_zero()
    }
}

/// Holds threads until it is opened, for good.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everyone through, now and later.
    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is open.
    ///
    /// # Panics
    /// When nobody opens it within [`DEADLINE`].
    pub fn wait(&self) {
        let closed = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (open, _) = self
            .0
            .1
            .wait_timeout_while(closed, DEADLINE, |open| !*open)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(*open, "nobody opened the gate within {DEADLINE:?}");
    }
}
