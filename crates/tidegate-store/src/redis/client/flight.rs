//! Making something that many callers wait for: once at a time, and not too often.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::fault::{ConnectFault, NotSent};

/// The longest pause after a first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause of all: what recovery waits for at most, once the server is back.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The shortest time between two replacements of a value that still works.
const RENEW_PAUSE: Duration = Duration::from_millis(250);

/// What is made, and may break later.
pub(super) trait Usable: Clone + Send + Sync + 'static {
    /// Whether it is known to be good as soon as it is made, and need not prove itself in use.
    const GOOD_WHEN_MADE: bool = false;

    /// Whether it has not broken yet.
    fn is_usable(&self) -> bool;
}

/// One value, made when it is first asked for and again when it has broken.
#[derive(Debug)]
pub(super) struct Flight<T> {
    state: Mutex<State<T>>,
    /// Counts the attempts that have ended.
    ended: watch::Sender<u64>,
}

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    running: bool,
    /// Attempts since the last value that proved itself.
    unproved: u32,
    /// No attempt is made before.
    not_before: Option<Instant>,
    /// No replacement is made before.
    no_renewal_before: Option<Instant>,
    last_fault: Option<ConnectFault>,
}

impl<T: Usable> Flight<T> {
    pub(super) fn new() -> Arc<Self> {
        let state = State {
            value: None,
            running: false,
            unproved: 0,
            not_before: None,
            no_renewal_before: None,
            last_fault: None,
        };
        Arc::new(Self { state: Mutex::new(state), ended: watch::Sender::new(0) })
    }

    /// The value if it is there and works.
    pub(super) fn current(&self) -> Option<T> {
        self.state.lock().value.clone().filter(T::is_usable)
    }

    /// The value, made by `make` unless it is there. An attempt goes on when its callers have given up at
    /// `deadline`, which is `timeout` after they began.
    pub(super) async fn get<F>(
        self: &Arc<Self>,
        deadline: Instant,
        timeout: Duration,
        make: impl FnOnce() -> F,
    ) -> Result<T, NotSent>
    where
        F: Future<Output = Result<T, ConnectFault>> + Send + 'static,
    {
        let mut ended = {
            let mut state = self.state.lock();
            if let Some(value) = &state.value {
                if value.is_usable() {
                    return Ok(value.clone());
                }
                state.value = None;
            }
            if !state.running {
                if let Some(fault) = state.back_off() {
                    return Err(NotSent::BackOff(fault));
                }
                state.running = true;
                self.start(make());
            }
            // Under the lock: the attempt cannot have ended yet.
            self.ended.subscribe()
        };
        if timeout_at(deadline, ended.changed()).await.is_err() {
            return Err(NotSent::Timeout(timeout));
        }
        let state = self.state.lock();
        match (&state.value, &state.last_fault) {
            (Some(value), _) if value.is_usable() => Ok(value.clone()),
            (None, Some(fault)) => Err(NotSent::Connect(fault.clone())),
            _ => Err(NotSent::Closed),
        }
    }

    /// Makes a new value in the background while the old one goes on serving, unless that happens already or
    /// has just happened.
    pub(super) fn renew<F>(self: &Arc<Self>, make: impl FnOnce() -> F)
    where
        F: Future<Output = Result<T, ConnectFault>> + Send + 'static,
    {
        let mut state = self.state.lock();
        let now = Instant::now();
        let early = state.no_renewal_before.is_some_and(|at| now < at);
        if state.running || early || state.back_off().is_some() {
            return;
        }
        state.no_renewal_before = Some(now + jittered(RENEW_PAUSE));
        state.running = true;
        self.start(make());
    }

    /// The value has done what it is for: the next attempt need not wait.
    pub(super) fn prove(&self) {
        let mut state = self.state.lock();
        state.unproved = 0;
        state.not_before = None;
        state.last_fault = None;
    }

    fn start<F>(self: &Arc<Self>, making: F)
    where
        F: Future<Output = Result<T, ConnectFault>> + Send + 'static,
    {
        let attempt = Attempt { flight: Arc::clone(self), over: false };
        tokio::spawn(async move { attempt.end(making.await) });
    }

    fn end(&self, made: Result<T, ConnectFault>) {
        let mut state = self.state.lock();
        // A value counts as a failure until it proves itself, so that a server which accepts connections
        // only to drop them is not asked again and again.
        if T::GOOD_WHEN_MADE && made.is_ok() {
            state.unproved = 0;
            state.not_before = None;
        } else {
            state.unproved = state.unproved.saturating_add(1);
            state.not_before = Some(Instant::now() + pause(state.unproved));
        }
        state.running = false;
        match made {
            Ok(value) => state.value = Some(value),
            Err(fault) => state.last_fault = Some(fault),
        }
        drop(state);
        self.ended.send_modify(|ended| *ended = ended.wrapping_add(1));
    }
}

impl<T> State<T> {
    /// Why no attempt is due; `None` when one is.
    fn back_off(&self) -> Option<ConnectFault> {
        let early = self.not_before.is_some_and(|at| Instant::now() < at);
        early.then(|| self.last_fault.clone().unwrap_or(ConnectFault::BrokenOff))
    }
}

/// Ends the attempt also when its task is dropped with its runtime.
struct Attempt<T: Usable> {
    flight: Arc<Flight<T>>,
    over: bool,
}

impl<T: Usable> Attempt<T> {
    fn end(mut self, made: Result<T, ConnectFault>) {
        self.over = true;
        self.flight.end(made);
    }
}

impl<T: Usable> Drop for Attempt<T> {
    fn drop(&mut self) {
        if !self.over {
            self.flight.end(Err(ConnectFault::BrokenOff));
        }
    }
}

/// How long to wait after this many attempts in a row.
fn pause(attempts: u32) -> Duration {
    let factor = 2_u32.saturating_pow(attempts.saturating_sub(1));
    jittered(FIRST_PAUSE.saturating_mul(factor).min(MAX_PAUSE))
}

/// Between half of it and all of it, so that instances that lost the same server do not return as one.
fn jittered(longest: Duration) -> Duration {
    longest.mul_f64(rand::random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests;
