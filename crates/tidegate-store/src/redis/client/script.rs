//! A script under the name that Redis gives it.

use std::fmt;

use ::redis::{Cmd, ToRedisArgs, cmd};

/// A Lua script, sent by its SHA-1 and in full only to a server that does not know it.
///
/// A script writes all or nothing: it refuses before its first write. What the server says after that reads
/// as [`Lost::Script`](super::fault::Lost::Script), because it may be half done.
#[derive(Clone, PartialEq, Eq)]
pub struct Script {
    source: Box<str>,
    sha: Box<str>,
}

impl Script {
    /// From its source.
    pub fn new(source: impl Into<Box<str>>) -> Self {
        let source = source.into();
        let sha = ::redis::Script::new(&source).get_hash().into();
        Self { source, sha }
    }

    /// The Lua text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The lower-case SHA-1 of its source, as `EVALSHA` takes it.
    pub fn sha(&self) -> &str {
        &self.sha
    }

    pub(super) fn call<K: AsRef<[u8]>, A: ToRedisArgs>(&self, keys: &[K], args: &[A]) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&*self.sha).arg(keys.len());
        for key in keys {
            call.arg(key.as_ref());
        }
        for arg in args {
            call.arg(arg);
        }
        call
    }

    pub(super) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&*self.source);
        load
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("sha", &self.sha).finish_non_exhaustive()
    }
}
