//! A child process whose output is watched and which is ended by its process id.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::wait::{DEADLINE, Deadline, wait_for};

/// Which stream a line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

#[derive(Default)]
struct Output {
    lines: Vec<(Stream, String)>,
    open_streams: usize,
}

/// How many of its last lines a program that a failed test leaves behind is shown with.
const LAST_LINES: usize = 60;

/// A running program. It is killed when the value is dropped; if that is because a test has failed, the
/// end of what it printed is shown with the failure.
pub struct Program {
    child: Child,
    name: String,
    output: Arc<(Mutex<Output>, Condvar)>,
}

impl Program {
    /// Starts `command` with nothing on its standard input, and collects what it prints.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let output = Arc::new((Mutex::new(Output { open_streams: 2, ..Output::default() }), Condvar::new()));
        if let Some(stdout) = child.stdout.take() {
            collect(Stream::Out, stdout, Arc::clone(&output));
        }
        if let Some(stderr) = child.stderr.take() {
            collect(Stream::Err, stderr, Arc::clone(&output));
        }
        Self { child, name, output }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for a line of either stream for which `pick` gives a value; lines already there count.
    ///
    /// # Panics
    /// When there is none within [`DEADLINE`] or the program ends before; shows what it printed.
    pub fn wait_line<T>(&self, what: &str, mut pick: impl FnMut(&str) -> Option<T>) -> T {
        let deadline = Deadline::after(DEADLINE);
        let mut seen = 0;
        let mut output = self.output.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            while seen < output.lines.len() {
                if let Some(value) = pick(&output.lines[seen].1) {
                    return value;
                }
                seen += 1;
            }
            if output.open_streams == 0 || deadline.passed() {
                let printed: Vec<_> = output.lines.iter().map(|(_, line)| line.as_str()).collect();
                panic!("{} did not print {what}; it printed:\n{}", self.name, printed.join("\n"));
            }
            output = self
                .output
                .1
                .wait_timeout(output, deadline.remaining())
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The address in the first line that has `before` in front of it, as in
    /// `listening on http://127.0.0.1:8080`.
    ///
    /// # Panics
    /// As [`Self::wait_line`].
    pub fn wait_address(&self, before: &str) -> SocketAddr {
        self.wait_line(&format!("an address after {before:?}"), |line| {
            let (_, rest) = line.split_once(before)?;
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".:[]".contains(c)));
            rest[..end.unwrap_or(rest.len())].parse().ok()
        })
    }

    /// How it stands, and the end of what it printed on both streams.
    fn last_words(&mut self) -> String {
        let state = match self.child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            _ => "still running".to_owned(),
        };
        let output = self.output.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = output.lines.len().saturating_sub(LAST_LINES);
        let last = output.lines[from..].iter().map(|(_, line)| format!("\n| {line}"));
        format!("{} ({state}) printed, at the end:{}", self.name, last.collect::<String>())
    }

    /// Everything it has printed so far on one stream.
    pub fn printed(&self, stream: Stream) -> String {
        let output = self.output.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = output.lines.iter().filter(|(of, _)| *of == stream);
        lines.flat_map(|(_, line)| [line.as_str(), "\n"]).collect()
    }

    /// Whether both of its streams have been read to their ends.
    pub fn ended_streams(&self) -> bool {
        self.output.0.lock().unwrap_or_else(PoisonError::into_inner).open_streams == 0
    }

    /// Ends it at once (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal, named as `kill` does: TERM, INT, STOP, CONT.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn signal(&self, name: &str) {
        // The shell's own `kill` is there on every system, and std has no safe call for it.
        let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.pid())).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{name} to {}", self.name);
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// When it has not within [`DEADLINE`].
    pub fn wait_exit(&mut self) -> ExitStatus {
        let name = format!("the end of {}", self.name);
        wait_for(&name, || self.child.try_wait().unwrap_or_else(|error| panic!("{name}: {error}")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.last_words());
        }
        self.kill();
    }
}

fn collect(stream: Stream, from: impl Read + Send + 'static, output: Arc<(Mutex<Output>, Condvar)>) {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            line.clear();
            output.0.lock().unwrap_or_else(PoisonError::into_inner).lines.push((stream, text));
            output.1.notify_all();
        }
        output.0.lock().unwrap_or_else(PoisonError::into_inner).open_streams -= 1;
        output.1.notify_all();
    });
}

#[cfg(test)]
mod tests;
