//! What commands read: rule documents, texts, and `-` for standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tidegate::rules::{MAX_BYTES, read_sources};
use tidegate_core::rule::{Deployment, Diagnostic, Loaded, Refused, Source, load};

use crate::config::{self, Environment};
use crate::serve;

/// The file name that means standard input.
const STDIN: &str = "-";
/// How standard input is called in messages.
const STDIN_NAME: &str = "<stdin>";
/// The longest line of a list of subjects, in bytes.
pub(super) const MAX_LINE: usize = 64 << 10;

/// What the rules will run on.
#[derive(Debug, clap::Args)]
pub(super) struct For {
    /// Configuration of the gateway that the rules are for, as it would start here
    ///
    /// Without it: a gateway with SQLite for records and no shared store.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl For {
    /// What rules may ask for.
    pub(super) fn deployment(&self) -> Result<Deployment, Refused> {
        let Some(file) = &self.config else { return Ok(Deployment::default()) };
        // Upstreams and rules may come from flags that are not known here: without them, the file is
        // still one to check rules against.
        let flags = config::Flags {
            config: Some(file.clone()),
            upstream: vec!["http://127.0.0.1:80".to_owned()],
            rules: Some("rules.yaml".to_owned()),
            ..config::Flags::default()
        };
        Ok(serve::deployment(&config::load(&flags, &Environment::current())?))
    }
}

/// How a file is called in messages.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { STDIN_NAME.to_owned() } else { path.display().to_string() }
}

/// Whether `path` means standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == STDIN
}

/// Whether standard input is named more than once: it can be read only once.
pub(super) fn reads_stdin_twice<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> bool {
    paths.into_iter().filter(|path| is_stdin(path)).count() > 1
}

/// Reads and checks one rule set: a file, standard input, or a directory of files, which are one
/// document. What cannot be read is a fault like others.
pub(super) fn rules(path: &Path, deployment: Deployment) -> Result<Loaded, Refused> {
    let sources =
        sources(path).map_err(|unreadable| Refused { faults: vec![*unreadable], warnings: Vec::new() })?;
    load(&sources, &deployment)
}

fn sources(path: &Path) -> Result<Vec<Source>, Box<Diagnostic>> {
    let unreadable = |name: &str, message: String| {
        let help = "name a rule file, a directory of them, or - for standard input";
        Box::new(Diagnostic::without_text(name, message, help))
    };
    if !is_stdin(path) {
        return read_sources(path).map_err(|error| unreadable(&error.path, error.message));
    }
    let text = stdin(MAX_BYTES).map_err(|error| unreadable(STDIN_NAME, error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        unreadable(STDIN_NAME, format!("byte {at} is not UTF-8: save the text as UTF-8"))
    })?;
    Ok(vec![Source::new(STDIN_NAME, text)])
}

/// The whole of a file or of standard input, at most `most` bytes.
pub(super) fn bytes(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    if is_stdin(path) { stdin(most) } else { whole(File::open(path)?, most) }
}

fn stdin(most: usize) -> io::Result<Vec<u8>> {
    whole(io::stdin().lock(), most)
}

fn whole(from: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// The lines of a file or of standard input, one at a time.
pub(super) struct Lines {
    from: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
}

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'l> {
    /// Text.
    Text(&'l str),
    /// Not UTF-8, or longer than [`MAX_LINE`]: in words.
    Bad(&'static str),
}

impl Lines {
    /// Opens `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let from: Box<dyn Read> =
            if is_stdin(path) { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
        Ok(Self::new(from))
    }

    fn new(from: Box<dyn Read>) -> Self {
        Self { from: BufReader::new(from), line: Vec::new() }
    }

    /// Whether the next line must be waited for, as far as can be told.
    pub(super) fn would_wait(&self) -> bool {
        self.from.buffer().is_empty()
    }

    /// The next line. Lines end with LF or CR LF; the last one may lack it.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let limit = MAX_LINE as u64 + 2;
        if self.from.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        let ended = self.line.ends_with(b"\n");
        if ended {
            self.line.pop();
            if self.line.ends_with(b"\r") {
                self.line.pop();
            }
        }
        if self.line.len() > MAX_LINE {
            if !ended {
                self.skip_line()?;
            }
            return Ok(Some(Line::Bad("the line has more than 65536 bytes")));
        }
        Ok(Some(std::str::from_utf8(&self.line).map_or(Line::Bad("the line is not UTF-8"), Line::Text)))
    }

    /// Reads to the end of the line that is being read.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffered = self.from.fill_buf()?;
            if buffered.is_empty() {
                return Ok(());
            }
            let end = buffered.iter().position(|byte| *byte == b'\n');
            let read = end.map_or(buffered.len(), |end| end + 1);
            self.from.consume(read);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_lf_or_crlf_and_stay_as_they_are() {
        let long = "x".repeat(MAX_LINE);
        let text = format!("a\n b \r\n\n{long}\n{long}\r\n{long}x\n{long}{long}\nlast");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(b"\n\xff\nz\r");
        let mut lines = Lines::new(Box::new(io::Cursor::new(bytes)));
        let too_long = Line::Bad("the line has more than 65536 bytes");
        for expected in [
            Line::Text("a"),
            Line::Text(" b "),
            Line::Text(""),
            Line::Text(&long),
            Line::Text(&long),
            too_long,
            Line::Bad("the line has more than 65536 bytes"),
            Line::Text("last"),
            Line::Bad("the line is not UTF-8"),
            Line::Text("z\r"),
        ] {
            assert_eq!(lines.next().unwrap(), Some(expected));
        }
        assert_eq!(lines.next().unwrap(), None);
        assert!(lines.would_wait());
    }

    #[test]
    fn what_is_read_whole_is_bounded() {
        assert_eq!(whole(io::Cursor::new([1; 10]), 10).unwrap(), [1; 10]);
        assert!(whole(io::Cursor::new([1; 11]), 10).is_err());
    }
}
