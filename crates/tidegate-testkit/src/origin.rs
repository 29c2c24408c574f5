//! An origin server that answers as each test says.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::SockRef;

use crate::wait::{DEADLINE, wait_until};
use crate::wire::{self, Framing, Headers, Reader};

/// What a route does with an exchange. An error ends the connection.
type Script = Arc<dyn Fn(&mut Exchange) -> io::Result<()> + Send + Sync>;

#[derive(Default)]
struct Shared {
    routes: Mutex<HashMap<String, Script>>,
    seen: Mutex<Vec<Seen>>,
    open: Mutex<HashMap<usize, TcpStream>>,
    connections: AtomicUsize,
    stopping: AtomicBool,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The request target, with its query.
    pub target: String,
    /// Names as sent, and values.
    pub headers: Headers,
}

impl Seen {
    /// The first value of a header, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        wire::header(&self.headers, name)
    }
}

/// A server on a free port of the loopback address, with a thread for each connection. It ends when
/// the value is dropped.
pub struct Origin {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Origin {
    /// Starts one. A path without a route is answered `200` and `ok`.
    ///
    /// # Panics
    /// When no port can be bound.
    pub fn start() -> Self {
        Self::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"))
    }

    pub(crate) fn serve(listener: TcpListener) -> Self {
        let addr = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &for_thread));
        Self { addr, shared }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Answers requests for `path` (without query) by a script. After it the connection is kept
    /// unless the script closed it or gave an error.
    pub fn on(
        &self,
        path: &str,
        script: impl Fn(&mut Exchange) -> io::Result<()> + Send + Sync + 'static,
    ) -> &Self {
        self.shared
            .routes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path.to_owned(), Arc::new(script));
        self
    }

    /// Answers requests for `path` always alike.
    pub fn answer(&self, path: &str, status: u16, headers: &[(&str, &str)], body: &str) -> &Self {
        let headers: Headers =
            headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = body.as_bytes().to_vec();
        self.on(path, move |exchange| {
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            exchange.respond(status, &headers, &body)
        })
    }

    /// How many requests have arrived for `path`.
    pub fn calls(&self, path: &str) -> usize {
        self.seen().iter().filter(|seen| path_of(&seen.target) == path).count()
    }

    /// Waits until `count` requests have arrived for `path`.
    ///
    /// # Panics
    /// When they have not within [`DEADLINE`].
    pub fn wait_calls(&self, path: &str, count: usize) {
        wait_until(&format!("{count} calls of {path}"), || self.calls(path) >= count);
    }

    /// Every request so far, in the order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last request.
    ///
    /// # Panics
    /// When there was none.
    pub fn last(&self) -> Seen {
        self.seen().pop().expect("a request has arrived")
    }

    /// How many connections have been accepted.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Closes every open connection, as a server does with idle ones.
    pub fn close_connections(&self) {
        for (_, stream) in self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; when this fails it has ended.
        let _ = TcpStream::connect(self.addr);
        self.close_connections();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let id = shared.connections.fetch_add(1, Ordering::SeqCst);
        if let Ok(copy) = stream.try_clone() {
            shared.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id, copy);
        }
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let stream = serve(stream, &shared);
            // The socket ends with its last copy: a reset is one only if nothing was closed before.
            shared.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            drop(stream);
        });
    }
}

/// Serves a connection until it ends, for whatever reason, and gives it back to be closed.
fn serve(stream: TcpStream, shared: &Shared) -> Reader {
    let mut reader = Reader::new(stream);
    if reader.stream.set_nodelay(true).is_err() {
        return reader;
    }
    loop {
        let Ok(Some((start, headers))) = reader.head() else { return reader };
        let mut words = start.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let seen = Seen { method, target, headers };
        shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
        let script =
            shared.routes.lock().unwrap_or_else(PoisonError::into_inner).get(path_of(&seen.target)).cloned();
        let framing = wire::framing(&seen.headers).unwrap_or(Framing::Length(0));
        let mut exchange = Exchange { request: seen, reader, framing, trailers: Vec::new(), keep: true };
        let done = match script {
            Some(script) => script(&mut exchange),
            None => exchange.respond(200, &[], b"ok"),
        };
        let keep = done.is_ok() && exchange.keep;
        reader = exchange.reader;
        if !keep {
            return reader;
        }
    }
}

fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

/// One request and what is done about it.
pub struct Exchange {
    /// The request.
    pub request: Seen,
    reader: Reader,
    framing: Framing,
    trailers: Headers,
    keep: bool,
}

impl Exchange {
    /// The rest of the request's body.
    ///
    /// # Errors
    /// The client broke off.
    pub fn body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece()? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// The next piece of the request's body, as soon as it is there; `None` at its end.
    ///
    /// # Errors
    /// The client broke off.
    pub fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.reader.piece(&mut self.framing, &mut self.trailers)
    }

    /// The trailer fields after a chunked body that has been read to its end.
    pub fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }

    /// Reads the rest of the request and answers it, with `Content-Length` (no body for HEAD).
    ///
    /// # Errors
    /// The connection broke.
    pub fn respond(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
        self.body()?;
        let mut bytes = head(status, &format!("Content-Length: {}", body.len()), headers);
        if self.request.method != "HEAD" {
            bytes.extend_from_slice(body);
        }
        self.raw(bytes)
    }

    /// Answers with the request's body.
    ///
    /// # Errors
    /// The connection broke.
    pub fn echo(&mut self) -> io::Result<()> {
        let body = self.body()?;
        self.respond(200, &[], &body)
    }

    /// Begins a chunked answer.
    ///
    /// # Errors
    /// The connection broke.
    pub fn start_chunked(&mut self, headers: &[(&str, &str)]) -> io::Result<()> {
        self.raw(head(200, "Transfer-Encoding: chunked", headers))
    }

    /// Sends one chunk; an empty one ends the answer.
    ///
    /// # Errors
    /// The connection broke.
    pub fn chunk(&mut self, data: &[u8]) -> io::Result<()> {
        let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(b"\r\n");
        self.raw(bytes)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection broke.
    pub fn raw(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.reader.stream.write_all(bytes.as_ref())
    }

    /// Exactly `length` bytes after the head, whatever they mean.
    ///
    /// # Errors
    /// The connection broke or ended before.
    pub fn read_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        self.reader.exactly(length)
    }

    /// Closes the connection in order, once the script is done.
    pub fn close(&mut self) {
        self.keep = false;
    }

    /// Resets the connection (RST), once the script is done.
    ///
    /// # Errors
    /// The connection is broken already.
    pub fn reset(&mut self) -> io::Result<()> {
        self.keep = false;
        // With no linger time, ending the connection sends a reset instead of an orderly end.
        SockRef::from(&self.reader.stream).set_linger(Some(Duration::ZERO))
    }

    /// Waits until the other side has closed, at most [`DEADLINE`].
    ///
    /// # Panics
    /// When it has not.
    pub fn wait_closed(&mut self) {
        let timeout = self.reader.stream.set_read_timeout(Some(DEADLINE));
        assert!(timeout.is_ok(), "a read timeout can be set");
        loop {
            match self.reader.fill() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the other side did not close");
                    return;
                }
            }
        }
    }
}

fn head(status: u16, framing: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut lines = vec![format!("HTTP/1.1 {status} Scripted"), framing.to_owned()];
    lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
    (lines.join("\r\n") + "\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests;
