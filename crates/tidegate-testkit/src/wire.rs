//! Reading HTTP/1.1 from a blocking stream, for both the client and the origin.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;

/// The longest head that is read, in bytes.
const MAX_HEAD: usize = 1 << 20;

/// Header names (as sent) and values.
pub(crate) type Headers = Vec<(String, String)>;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After this many more bytes.
    Length(u64),
    /// After a chunk of no bytes.
    Chunked,
    /// When the connection closes.
    Close,
}

/// A stream with what was read from it and not yet used.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) stream: TcpStream,
    pending: Vec<u8>,
}

impl Reader {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Reads more; false at the end of the stream.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let mut block = [0; 16 * 1024];
        let read = loop {
            match self.stream.read(&mut block) {
                // A read with a timeout is interrupted when the process is stopped and continued.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.pending.extend_from_slice(&block[..read]);
        Ok(read > 0)
    }

    /// The start line and the headers; `None` when the stream ends before the first byte.
    pub(crate) fn head(&mut self) -> io::Result<Option<(String, Headers)>> {
        let end = loop {
            if let Some(at) = find(&self.pending, b"\r\n\r\n") {
                break at;
            }
            if self.pending.len() > MAX_HEAD {
                return Err(io::Error::new(ErrorKind::InvalidData, "the head is too long"));
            }
            if !self.fill()? {
                if self.pending.is_empty() {
                    return Ok(None);
                }
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "cut off in the head"));
            }
        };
        let head = String::from_utf8_lossy(&self.pending[..end]).into_owned();
        self.pending.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .map(|line| line.split_once(':').unwrap_or((line, "")))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Ok(Some((start, headers)))
    }

    /// Up to and without the next line end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.pending, b"\r\n") {
                let line = String::from_utf8_lossy(&self.pending[..at]).into_owned();
                self.pending.drain(..at + 2);
                return Ok(line);
            }
            if !self.fill()? {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "cut off in a line"));
            }
        }
    }

    /// Exactly `length` bytes.
    pub(crate) fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.pending.len() < length {
            if !self.fill()? {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "cut off in the body"));
            }
        }
        Ok(self.pending.drain(..length).collect())
    }

    /// The next piece of a body with this framing; `None` once it has ended. Trailers are appended.
    pub(crate) fn piece(
        &mut self,
        framing: &mut Framing,
        trailers: &mut Headers,
    ) -> io::Result<Option<Vec<u8>>> {
        match framing {
            Framing::Length(0) => Ok(None),
            Framing::Length(left) => {
                if self.pending.is_empty() && !self.fill()? {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "cut off in the body"));
                }
                let take = self.pending.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= take as u64;
                Ok(Some(self.pending.drain(..take).collect()))
            }
            Framing::Chunked => {
                let line = self.line()?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(size, 16)
                    .map_err(|_| io::Error::new(ErrorKind::InvalidData, format!("chunk size {line:?}")))?;
                if size > 0 {
                    let data = self.exactly(size)?;
                    self.exactly(2)?;
                    return Ok(Some(data));
                }
                loop {
                    let line = self.line()?;
                    let Some((name, value)) = line.split_once(':') else { break };
                    trailers.push((name.to_owned(), value.trim().to_owned()));
                }
                *framing = Framing::Length(0);
                Ok(None)
            }
            Framing::Close => {
                if self.pending.is_empty() && !self.fill()? {
                    *framing = Framing::Length(0);
                    return Ok(None);
                }
                Ok(Some(std::mem::take(&mut self.pending)))
            }
        }
    }
}

/// The value of a header, whatever the case of its name.
pub(crate) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// How the body after these headers ends; `None` when they do not say.
pub(crate) fn framing(headers: &[(String, String)]) -> Option<Framing> {
    if header(headers, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        return Some(Framing::Chunked);
    }
    header(headers, "content-length").and_then(|value| value.parse().ok()).map(Framing::Length)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
