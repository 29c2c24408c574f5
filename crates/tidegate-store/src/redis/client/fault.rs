//! What became of a call that gave no result: three kinds that a caller must tell apart.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{ErrorKind, RedisError, ServerError};

use super::config::Address;

/// The most bytes of a server's message that are kept.
const MAX_MESSAGE: usize = 300;

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisFault {
    /// Nothing was sent, so nothing ran.
    #[error("nothing was sent to Redis: {0}")]
    NotSent(#[from] NotSent),
    /// The server answered that it did not carry it out.
    #[error("Redis refused: {0}")]
    Refused(#[from] Refusal),
    /// It was sent, and whether it ran is not known. Never repeat it by itself.
    #[error("Redis may have carried it out: {0}")]
    Unknown(#[from] Lost),
}

/// Why nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSent {
    /// No connection came up within the command timeout; the attempt goes on.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// No connection can be made.
    #[error("{0}")]
    Connect(ConnectFault),
    /// The last attempts failed, and the next is not due yet.
    #[error("waiting before the next attempt after: {0}")]
    BackOff(ConnectFault),
    /// The connection closed before the call was handed to it.
    #[error("the connection has closed")]
    Closed,
    /// The server did not know the script and could not be given it.
    #[error("the script could not be loaded: {0}")]
    NotLoaded(Lost),
    /// The keys lie in several slots of the cluster, or there is none. A fault of the caller.
    #[error("the keys of one script must share a slot of the cluster: give them one {{hash tag}}")]
    NoCommonSlot,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectFault {
    /// Nothing came up in time.
    #[error("{at} did not answer within {after:?}")]
    Timeout {
        /// The server.
        at: Address,
        /// The connect timeout.
        after: Duration,
    },
    /// The network, the certificate or the sign-in failed.
    #[error("{at}: {why}")]
    Failed {
        /// The server.
        at: Address,
        /// Without the password.
        why: Arc<str>,
    },
    /// The sentinels named a server that is no master: a failover is under way, or the sentinels are cut off.
    #[error("{at} is not a master")]
    NotMaster {
        /// The server.
        at: Address,
    },
    /// No sentinel names a master.
    #[error("no sentinel names a master called {name:?}; the last said: {why}")]
    NoMaster {
        /// The name that was asked for.
        name: Arc<str>,
        /// From the last sentinel.
        why: Arc<str>,
    },
    /// No node of the cluster says who has which slots, or nobody has this one.
    #[error("no node says who has the slots of the cluster; the last said: {why}")]
    NoMap {
        /// From the last node.
        why: Arc<str>,
    },
    /// The attempt was broken off: the runtime that made it is gone.
    #[error("the attempt to connect was broken off")]
    BrokenOff,
}

/// The server's no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of no.
    pub code: RefusalCode,
    /// The server's own words.
    pub message: Arc<str>,
}

/// The kinds of [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCode {
    /// `READONLY`: a replica.
    ReadOnly,
    /// `OOM`: over `maxmemory`, and nothing may be evicted.
    OutOfMemory,
    /// `NOPERM`: the user may not.
    NoPermission,
    /// `NOAUTH`, `WRONGPASS`: not signed in.
    NotSignedIn,
    /// `LOADING`: the server is still reading its data.
    Loading,
    /// `MASTERDOWN`: a replica without its master.
    MasterDown,
    /// `MISCONF`, `NOREPLICAS`: the server may not write while it cannot save or replicate.
    CannotKeep,
    /// `BUSY`: another script runs for too long.
    Busy,
    /// `CLUSTERDOWN`: slots without a node, or no majority.
    ClusterDown,
    /// `MOVED`: another node has the slot, also after it was followed once.
    Moved,
    /// `ASK`: another node is getting the slot, also after it was followed once.
    Ask,
    /// `TRYAGAIN`: the keys of the call are on both sides of a move.
    TryAgain,
    /// `CROSSSLOT`: the keys lie in several slots.
    CrossSlot,
    /// `NOSCRIPT`: the script was forgotten again right after it was loaded.
    NoScript,
    /// Any other refusal.
    Other,
}

/// Why it is not known whether a call ran.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// No answer within the command timeout.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection broke before the answer.
    #[error("the connection broke: {0}")]
    Disconnected(Arc<str>),
    /// The script failed on its way, and may have written before that.
    #[error("the script failed: {0}")]
    Script(Arc<str>),
    /// An answer that is not understood.
    #[error("an answer that is not understood: {0}")]
    Reply(Arc<str>),
}

impl RedisFault {
    /// Whether the call may have run.
    pub fn may_have_run(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// The kind of refusal, if it is one.
    pub fn refusal(&self) -> Option<RefusalCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            _ => None,
        }
    }

    /// From what the driver says after a command was handed to it.
    pub(super) fn after_sending(error: &RedisError) -> Self {
        let why = || bounded(&error.to_string());
        match error.kind() {
            ErrorKind::Io => Lost::Disconnected(why()).into(),
            _ => Lost::Reply(why()).into(),
        }
    }

    /// From an error that the server sent in the place of a result.
    pub(super) fn of_server(error: &ServerError) -> Self {
        let details = error.details().unwrap_or_default();
        let message = bounded(&format!("{} {details}", error.code()));
        // Errors of calls that a script made name the place in the script.
        let in_script = details.contains("user_script");
        match refusal_code(code_in(error.code(), details)) {
            Some(code) if !in_script || before_the_first_write(code) => Refusal { code, message }.into(),
            None if !in_script => Refusal { code: RefusalCode::Other, message }.into(),
            _ => Lost::Script(message).into(),
        }
    }
}

/// The code; Redis 6 wraps one from inside a script, as in
/// `ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -OOM command not allowed …`.
fn code_in<'a>(code: &'a str, details: &'a str) -> &'a str {
    let wrapped = || {
        let (_, inner) = details.split_once("@user_script")?;
        let (_, inner) = inner.split_once(": -")?;
        inner.split_ascii_whitespace().next()
    };
    if code == "ERR" { wrapped().unwrap_or(code) } else { code }
}

fn refusal_code(code: &str) -> Option<RefusalCode> {
    Some(match code {
        "READONLY" => RefusalCode::ReadOnly,
        "OOM" => RefusalCode::OutOfMemory,
        "NOPERM" => RefusalCode::NoPermission,
        "NOAUTH" | "WRONGPASS" => RefusalCode::NotSignedIn,
        "LOADING" => RefusalCode::Loading,
        "MASTERDOWN" => RefusalCode::MasterDown,
        "MISCONF" | "NOREPLICAS" => RefusalCode::CannotKeep,
        "BUSY" => RefusalCode::Busy,
        "CLUSTERDOWN" => RefusalCode::ClusterDown,
        "MOVED" => RefusalCode::Moved,
        "ASK" => RefusalCode::Ask,
        "TRYAGAIN" => RefusalCode::TryAgain,
        "CROSSSLOT" => RefusalCode::CrossSlot,
        "NOSCRIPT" => RefusalCode::NoScript,
        _ => return None,
    })
}

/// Redis makes these tests at a script's first write and never after it: nothing was written. A missing
/// permission, by contrast, shows at the command that lacks it, when another may have written before.
fn before_the_first_write(code: RefusalCode) -> bool {
    matches!(
        code,
        RefusalCode::ReadOnly | RefusalCode::OutOfMemory | RefusalCode::CannotKeep | RefusalCode::MasterDown
    )
}

/// The message, cut to a length that logs can take.
pub(super) fn bounded(message: &str) -> Arc<str> {
    message[..message.floor_char_boundary(MAX_MESSAGE)].trim_end().into()
}

#[cfg(test)]
mod tests;
