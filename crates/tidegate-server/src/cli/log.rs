//! The program's log, on standard error, with a bound on what single requests may write.
//!
//! A flood of refused requests must not become a flood of lines: the metrics count each of them, and
//! beyond the bound the log says only how many lines it left out. Warnings and errors are never left out.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, LogFormat, LogLevel};

/// Where lines about single requests come from.
const REQUESTS: &str = "tidegate::event";
/// Lines about single requests in one [`PERIOD`].
const LINES: u32 = 1_000;
const PERIOD: Duration = Duration::from_secs(1);

/// Sends the log to standard error.
pub(super) fn init(config: &Config) {
    let level = match config.log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let bound = Bound { level, lines: Arc::default() };
    // Colours are for people who watch.
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    let counted = Arc::clone(&bound.lines);
    match config.log.format {
        LogFormat::Text => tracing_subscriber::registry().with(lines.with_filter(bound)).init(),
        LogFormat::Json => tracing_subscriber::registry().with(lines.json().with_filter(bound)).init(),
    }
    let clock = std::thread::Builder::new().name("log".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(PERIOD);
            if let Some(left_out) = counted.next_period() {
                tracing::warn!(left_out, "lines about single requests were left out; the metrics count all");
            }
        }
    });
    if let Err(error) = clock {
        tracing::warn!(%error, "lines about single requests end after {LINES}");
    }
}

/// How many lines about single requests this period has had, the left-out ones included.
#[derive(Debug, Default)]
struct Lines(AtomicU32);

impl Lines {
    /// Takes the place of one line, if there is one left.
    fn take(&self) -> bool {
        // Saturates, so that a long period without a clock does not begin anew.
        let before =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_add(1)));
        before.is_ok_and(|count| count < LINES)
    }

    /// Begins a period; says how many lines the last one left out, if it did.
    fn next_period(&self) -> Option<u32> {
        let count = self.0.swap(0, Ordering::Relaxed);
        count.checked_sub(LINES).filter(|left_out| *left_out > 0)
    }
}

/// What is written.
struct Bound {
    level: LevelFilter,
    lines: Arc<Lines>,
}

impl Bound {
    fn admits(&self, level: Level, target: &str) -> bool {
        // Warnings are about the program, however many there are.
        level <= Level::WARN || target != REQUESTS || self.lines.take()
    }
}

impl<S> Filter<S> for Bound {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        *metadata.level() <= self.level
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.admits(*event.metadata().level(), event.metadata().target())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }
}

#[cfg(test)]
mod tests;
