//! The scripts' texts.
//!
//! A script is put together from [`parts`]: the clock, a prelude, the algorithms that it needs, and
//! what is done with them. Only the clock differs between a script and its [`timed`](Script::timed)
//! form, which tests run to choose the time.

mod parts;

use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::shared::Kind;
use parts::{Algorithm, lua};

/// One script that the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Script {
    /// Decides calls on limits that all count in this way.
    Decide(Kind),
    /// Decides calls on limits of any kinds.
    DecideMixed,
    /// Gives back what reserved calls were charged.
    GiveBack,
    /// Gives concurrency permits back.
    Release,
    /// Renews concurrency permits.
    Renew,
    /// An instance's sign of life.
    Pulse,
    /// The order of the rules' versions.
    Ordinal,
    /// Forgets counters.
    Forget,
}

impl Script {
    /// Every script, so that all can be loaded before the first call.
    pub const ALL: [Self; 13] = [
        Self::Decide(Kind::TokenBucket),
        Self::Decide(Kind::LeakyBucket),
        Self::Decide(Kind::FixedWindow),
        Self::Decide(Kind::SlidingWindow),
        Self::Decide(Kind::SlidingLog),
        Self::Decide(Kind::Concurrency),
        Self::DecideMixed,
        Self::GiveBack,
        Self::Release,
        Self::Renew,
        Self::Pulse,
        Self::Ordinal,
        Self::Forget,
    ];

    /// Its text, which takes the time from the server.
    pub fn text(self) -> &'static str {
        self.texts().map_or("", |texts| &texts.server)
    }

    /// Its text with the time, in microseconds since the UTC epoch, as one more last argument.
    #[cfg(test)]
    pub(super) fn timed(self) -> &'static str {
        self.texts().map_or("", |texts| &texts.given)
    }

    fn texts(self) -> Option<&'static Texts> {
        static ALL: LazyLock<Vec<(Script, Texts)>> =
            LazyLock::new(|| Script::ALL.map(|script| (script, Texts::of(script))).into());
        ALL.iter().find_map(|(script, texts)| (*script == self).then_some(texts))
    }

    /// All but the clock.
    fn body(self) -> String {
        let every = [
            Kind::TokenBucket,
            Kind::LeakyBucket,
            Kind::FixedWindow,
            Kind::SlidingWindow,
            Kind::SlidingLog,
            Kind::Concurrency,
        ];
        let mut text = lua!("prelude").to_owned();
        match self {
            Self::Decide(kind) => {
                text.push_str(&Algorithm::of(kind).in_a_straight_line());
                general(&mut text, &[kind], lua!("decide"));
            }
            Self::DecideMixed => general(&mut text, &every, lua!("decide")),
            // Permits are given back by a script of their own.
            Self::GiveBack => general(&mut text, &every[..5], lua!("give_back")),
            Self::Release => text.push_str(lua!("release")),
            Self::Renew => text.push_str(lua!("renew")),
            Self::Pulse => text.push_str(lua!("pulse")),
            Self::Ordinal => text.push_str(lua!("ordinal")),
            Self::Forget => text.push_str(lua!("forget")),
        }
        text
    }
}

/// What is sent.
struct Texts {
    server: String,
    #[cfg(test)]
    given: String,
}

impl Texts {
    fn of(script: Script) -> Self {
        let body = script.body();
        Self {
            server: format!("{}{body}", lua!("time_server")),
            #[cfg(test)]
            given: format!("{}{body}", lua!("time_given")),
        }
    }
}

/// Algorithms as functions, for any number of limits, and what uses them.
fn general(text: &mut String, kinds: &[Kind], user: &str) {
    text.push_str(lua!("rare"));
    if kinds.iter().any(|kind| matches!(kind, Kind::TokenBucket | Kind::LeakyBucket)) {
        text.push_str(lua!("bucket_rare"));
    }
    for kind in kinds {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", Algorithm::of(*kind).as_functions());
    }
    text.push_str(user);
}
