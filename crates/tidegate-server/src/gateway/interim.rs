//! Interim responses (1xx; RFC 9110, 15.2), of which an upstream may send any number before its answer.
//!
//! Nobody here waits for them, so the HTTP client drops each as it reads it. One that floods them would
//! keep a worker busy for as long as the call may take: they and their bytes are counted as they come in.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Interim responses before one answer. A service that says once a second that it still works on a
/// call of a minute is well below.
pub(super) const MAX_INTERIM: u32 = 100;

/// As far as the status code: `HTTP/1.1 103`.
const STATUS: usize = 12;

/// Set when a request is sent, so that the next bytes are read as the begin of its answer.
#[derive(Clone, Default)]
pub(super) struct Awaited(Arc<AtomicBool>);

impl Awaited {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn take(&self) -> bool {
        self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel)
    }
}

/// Counts interim responses in what is read of one connection.
pub(super) struct Counter {
    awaited: Awaited,
    at: At,
    count: u32,
    /// Bytes in front of the answer, and how many there may be.
    bytes: usize,
    most_bytes: usize,
}

/// Where in the stream the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// In the first bytes of a response.
    Status { seen: usize, first: bool, switching: bool },
    /// In the rest of an interim response's head; whether its current line is still empty.
    Head { blank: bool },
    /// Past the head of the answer itself.
    Answer,
}

const START: At = At::Status { seen: 0, first: false, switching: true };

impl Counter {
    /// All interim responses before one answer are together at most `most_bytes` long: as long as one head
    /// may be. Each of them that long would cost a hundred times as much to read as any answer does.
    pub(super) fn new(awaited: Awaited, most_bytes: usize) -> Self {
        Self { awaited, at: At::Answer, count: 0, bytes: 0, most_bytes }
    }

    /// Looks at bytes as they come in, and fails when they are of one interim response too many, or too
    /// long.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.awaited.take() {
            (self.at, self.count, self.bytes) = (START, 0, 0);
        }
        while self.at != At::Answer {
            let Some((byte, rest)) = bytes.split_first() else { break };
            bytes = rest;
            self.at = self.next(*byte);
            self.bytes += 1;
            // The answer's own status line is looked at, and is no part of them.
            if self.bytes > self.most_bytes.saturating_add(STATUS) {
                return Err(io::Error::other(format!(
                    "more than {} bytes of interim responses (1xx) before the answer",
                    self.most_bytes
                )));
            }
            if self.count > MAX_INTERIM {
                return Err(io::Error::other(format!(
                    "more than {MAX_INTERIM} interim responses (1xx) before the answer"
                )));
            }
        }
        Ok(())
    }

    fn next(&mut self, byte: u8) -> At {
        match self.at {
            // A client skips empty lines in front of a response.
            At::Status { seen: 0, .. } if matches!(byte, b'\r' | b'\n') => self.at,
            At::Status { seen, first, switching } => {
                // The three digits stand behind `HTTP/1.1 `. 101 ends the exchange as HTTP.
                let first = if seen == STATUS - 3 { byte == b'1' } else { first };
                let switching = switching && (seen < STATUS - 2 || byte == b"01"[seen + 2 - STATUS]);
                match seen + 1 {
                    STATUS if first && !switching => {
                        self.count += 1;
                        At::Head { blank: false }
                    }
                    STATUS => At::Answer,
                    seen => At::Status { seen, first, switching },
                }
            }
            At::Head { blank: true } if byte == b'\n' => START,
            At::Head { blank } => At::Head { blank: byte == b'\n' || (blank && byte == b'\r') },
            At::Answer => At::Answer,
        }
    }
}

#[cfg(test)]
mod tests;
