//! The scripts' texts.
//!
//! A script is put together at compile time: the clock, a prelude, the algorithms that it needs, and
//! what is done with them. Only the clock differs between a script and its [`timed`](Script::timed)
//! form, which tests run to choose the time.

use crate::shared::Kind;

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("lua/", $name, ".lua"))
    };
}

/// The same parts behind each of the two clocks.
macro_rules! script {
    ($($part:literal),*) => {
        Text {
            server: concat!(lua!("time_server"), lua!("prelude"), $(lua!($part)),*),
            #[cfg(test)]
            given: concat!(lua!("time_given"), lua!("prelude"), $(lua!($part)),*),
        }
    };
}

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

struct Text {
    server: &'static str,
    #[cfg(test)]
    given: &'static str,
}

const TOKEN_BUCKET: Text = script!("bucket", "token_bucket", "decide");
const LEAKY_BUCKET: Text = script!("bucket", "leaky_bucket", "decide");
const FIXED_WINDOW: Text = script!("fixed_window", "decide");
const SLIDING_WINDOW: Text = script!("sliding_window", "decide");
const SLIDING_LOG: Text = script!("sliding_log", "decide");
const CONCURRENCY: Text = script!("concurrency", "decide");
const MIXED: Text = script!(
    "bucket",
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "concurrency",
    "decide"
);
const GIVE_BACK: Text = script!(
    "bucket",
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "give_back"
);
const RELEASE: Text = script!("release");
const RENEW: Text = script!("renew");
const PULSE: Text = script!("pulse");
const ORDINAL: Text = script!("ordinal");
const FORGET: Text = script!("forget");

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
    pub const fn text(self) -> &'static str {
        self.parts().server
    }

    /// Its text with the time, in microseconds since the UTC epoch, as one more last argument.
    #[cfg(test)]
    pub(super) const fn timed(self) -> &'static str {
        self.parts().given
    }

    const fn parts(self) -> Text {
        match self {
            Self::Decide(Kind::TokenBucket) => TOKEN_BUCKET,
            Self::Decide(Kind::LeakyBucket) => LEAKY_BUCKET,
            Self::Decide(Kind::FixedWindow) => FIXED_WINDOW,
            Self::Decide(Kind::SlidingWindow) => SLIDING_WINDOW,
            Self::Decide(Kind::SlidingLog) => SLIDING_LOG,
            Self::Decide(Kind::Concurrency) => CONCURRENCY,
            Self::DecideMixed => MIXED,
            Self::GiveBack => GIVE_BACK,
            Self::Release => RELEASE,
            Self::Renew => RENEW,
            Self::Pulse => PULSE,
            Self::Ordinal => ORDINAL,
            Self::Forget => FORGET,
        }
    }
}
