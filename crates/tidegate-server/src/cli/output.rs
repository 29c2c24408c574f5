//! Results on standard output, messages on standard error, and neither ends the program when its
//! reader has gone.

use std::fmt;
use std::io::{self, Write as _};

use super::Exit;

/// Writes a line of a message.
pub(super) fn say(message: impl fmt::Display) {
    // Without anybody to read it there is nothing else to do with a message.
    let _ = writeln!(io::stderr(), "{message}");
}

/// Writes a line of the result.
pub(super) fn print(line: impl fmt::Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// How a command ended whose output may have failed. A reader that has seen enough (`| head`) is fine.
pub(super) fn exit(ended: io::Result<Exit>) -> Exit {
    let ended = ended.and_then(|exit| {
        io::stdout().flush()?;
        Ok(exit)
    });
    match ended {
        Ok(exit) => exit,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Fine,
        Err(error) => {
            say(format_args!("tidegate: the output cannot be written: {error}"));
            Exit::Refused
        }
    }
}

/// `1 resource`, `2 resources`.
pub(super) fn count(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
