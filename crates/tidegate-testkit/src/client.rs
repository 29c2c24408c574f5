//! A plain blocking HTTP/1.1 client that can also send what is no HTTP.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::wait::DEADLINE;
use crate::wire::{self, Framing, Headers, Reader};

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names as sent, and values.
    pub headers: Headers,
    /// The whole body.
    pub body: Vec<u8>,
    /// Trailer fields after a chunked body.
    pub trailers: Headers,
}

impl Response {
    /// The first value of a header, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        wire::header(&self.headers, name)
    }

    /// Every value of a header.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One request on a connection of its own.
///
/// # Panics
/// When there is no answer.
pub fn request(
    addr: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    try_request(addr, method, target, headers, body)
        .unwrap_or_else(|error| panic!("{method} http://{addr}{target}: {error}"))
}

/// One request on a connection of its own.
///
/// # Errors
/// No connection, no answer, or an answer that was cut off.
pub fn try_request(
    addr: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    Connection::open(addr)?.request(method, target, headers, body)
}

/// A kept-alive connection.
#[derive(Debug)]
pub struct Connection {
    reader: Reader,
    host: String,
}

impl Connection {
    /// Connects; reads and writes give up after [`DEADLINE`].
    ///
    /// # Errors
    /// No connection.
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, DEADLINE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Self { reader: Reader::new(stream), host: addr.to_string() })
    }

    /// The stream under it.
    pub fn stream(&self) -> &TcpStream {
        &self.reader.stream
    }

    /// Sends a request and reads its answer.
    ///
    /// `Host` and `Content-Length` are added unless given (or `Transfer-Encoding` is).
    ///
    /// # Errors
    /// The connection broke, or the answer was cut off.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let mut bytes = self.render(method, target, headers, body.len());
        bytes.extend_from_slice(body);
        // A server may refuse early and close: its answer is still there to be read.
        let sent = self.reader.stream.write_all(&bytes);
        let response = self.read_response(method == "HEAD");
        if response.is_err() {
            sent?;
        }
        response
    }

    fn render(&self, method: &str, target: &str, headers: &[(&str, &str)], length: usize) -> Vec<u8> {
        let given = |name: &str| headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        let mut head = vec![format!("{method} {target} HTTP/1.1")];
        if !given("host") {
            head.push(format!("Host: {}", self.host));
        }
        head.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        let needs_length = length > 0 || matches!(method, "POST" | "PUT" | "PATCH");
        if needs_length && !given("content-length") && !given("transfer-encoding") {
            head.push(format!("Content-Length: {length}"));
        }
        (head.join("\r\n") + "\r\n\r\n").into_bytes()
    }

    /// Sends these bytes as they are.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.reader.stream.write_all(bytes.as_ref())
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// The connection broke.
    pub fn finish(&mut self) -> io::Result<()> {
        self.reader.stream.shutdown(Shutdown::Write)
    }

    /// Reads one whole answer; `head_only` for an answer to HEAD.
    ///
    /// # Errors
    /// The connection broke or the answer was cut off.
    pub fn read_response(&mut self, head_only: bool) -> io::Result<Response> {
        let mut response = self.read_head()?;
        while (100..200).contains(&response.status) && response.status != 101 {
            response = self.read_head()?;
        }
        let mut framing = match response.status {
            101 | 204 | 304 => Framing::Length(0),
            _ if head_only => Framing::Length(0),
            _ => wire::framing(&response.headers).unwrap_or(Framing::Close),
        };
        while let Some(piece) = self.reader.piece(&mut framing, &mut response.trailers)? {
            response.body.extend_from_slice(&piece);
        }
        Ok(response)
    }

    /// Reads the status line and the headers of the next answer, also of an interim one.
    ///
    /// # Errors
    /// The connection broke, or what came was no HTTP.
    pub fn read_head(&mut self) -> io::Result<Response> {
        let Some((start, headers)) = self.reader.head()? else {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "closed without an answer"));
        };
        let status = start.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("no status in {start:?}")))?;
        Ok(Response { status, headers, body: Vec::new(), trailers: Vec::new() })
    }

    /// The next chunk of a chunked body; `None` after the last.
    ///
    /// # Errors
    /// The connection broke or what came was no chunk.
    pub fn read_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.reader.piece(&mut Framing::Chunked, &mut Vec::new())
    }

    /// Exactly `length` bytes, whatever they mean.
    ///
    /// # Errors
    /// The connection broke or ended before.
    pub fn read_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        self.reader.exactly(length)
    }

    /// Whether the other side has closed, waiting for it up to `within`. What else arrives is discarded.
    pub fn closed_within(&mut self, within: Duration) -> bool {
        let deadline = crate::wait::Deadline::after(within);
        let mut block = [0; 4096];
        loop {
            let left = deadline.remaining().max(Duration::from_millis(1));
            if self.reader.stream.set_read_timeout(Some(left)).is_err() {
                return true;
            }
            match self.reader.stream.read(&mut block) {
                Ok(0) => return true,
                Ok(_) if deadline.passed() => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return false;
                }
                Err(_) => return true,
            }
        }
    }
}
