//! A TCP proxy that makes a network fail as a test says.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::wait::Deadline;

/// What happens to what passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It passes.
    Pass,
    /// Connections are reset, those that are open and those that come.
    Cut,
    /// Requests pass, and a connection is reset when its next answer comes: what was asked has been done.
    CutReplies,
    /// Connections stay open and nothing passes. What was sent meanwhile passes later.
    BlackHole,
    /// Requests pass this much later.
    Delay(Duration),
}

/// A proxy in front of one address. Its connections end when the value is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    accepted: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

struct State {
    mode: Mode,
    stopped: bool,
    pairs: Vec<Weak<Pair>>,
}

/// A client's connection and the one that was opened for it.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    /// The client is to see a reset, not an end.
    rude: AtomicBool,
}

impl Proxy {
    /// Starts one on a free port of the loopback, in [`Mode::Pass`].
    ///
    /// # Panics
    /// When there is no free port.
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let state = State { mode: Mode::Pass, stopped: false, pairs: Vec::new() };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            accepted: AtomicU64::new(0),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if own.state().stopped {
                    return;
                }
                own.accepted.fetch_add(1, Ordering::Relaxed);
                own.open(client, target);
            }
        });
        Self { address, shared }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, this happens.
    pub fn set(&self, mode: Mode) {
        let mut state = self.shared.state();
        state.mode = mode;
        if mode == Mode::Cut {
            state.pairs.drain(..).filter_map(|pair| pair.upgrade()).for_each(|pair| pair.reset());
        }
        self.shared.changed.notify_all();
    }

    /// How many connections clients have opened since the start.
    pub fn connections(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many of them are open now.
    pub fn open_connections(&self) -> usize {
        self.shared.state().pairs.iter().filter(|pair| pair.strong_count() > 0).count()
    }

    /// How many bytes clients have sent that were passed on.
    pub fn bytes_up(&self) -> u64 {
        self.shared.up.load(Ordering::Relaxed)
    }

    /// How many bytes were passed back to clients.
    pub fn bytes_down(&self) -> u64 {
        self.shared.down.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.set(Mode::Cut);
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(self: &Arc<Self>, client: TcpStream, target: SocketAddr) {
        let server = TcpStream::connect(target);
        let mut state = self.state();
        let (Ok(server), false) = (server, state.mode == Mode::Cut) else {
            reset_on_close(&client);
            return;
        };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let pair = Arc::new(Pair { client, server, rude: AtomicBool::new(false) });
        state.pairs.retain(|pair| pair.strong_count() > 0);
        state.pairs.push(Arc::downgrade(&pair));
        drop(state);
        self.copy(&pair, Direction::Up);
        self.copy(&pair, Direction::Down);
    }

    /// Copies one way, in two threads, so that a delay does not slow down what comes behind.
    fn copy(self: &Arc<Self>, pair: &Arc<Pair>, direction: Direction) {
        let (sender, receiver) = channel();
        let (shared, from) = (Arc::clone(self), Arc::clone(pair));
        std::thread::spawn(move || {
            let mut block = [0; 16 * 1024];
            while let Ok(read @ 1..) = (&mut direction.source(&from)).read(&mut block) {
                let mode = shared.state().mode;
                let wait = match (mode, direction) {
                    (Mode::Delay(by), Direction::Up) => by,
                    _ => Duration::ZERO,
                };
                if sender.send((Deadline::after(wait), block[..read].to_vec())).is_err() {
                    return;
                }
            }
        });
        let (shared, to) = (Arc::clone(self), Arc::clone(pair));
        std::thread::spawn(move || {
            shared.deliver(&to, direction, &receiver);
            let _ = to.client.shutdown(Shutdown::Read);
            let _ = to.server.shutdown(Shutdown::Both);
            if direction == Direction::Down && !to.rude.load(Ordering::Relaxed) {
                let _ = to.client.shutdown(Shutdown::Write);
            }
        });
    }

    fn deliver(&self, pair: &Pair, direction: Direction, blocks: &Receiver<(Deadline, Vec<u8>)>) {
        let passed = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        for (due, block) in blocks {
            match self.wait_to_pass(due) {
                Mode::Cut => return pair.reset(),
                Mode::CutReplies if direction == Direction::Down => return pair.reset(),
                _ => {}
            }
            if (&mut direction.sink(pair)).write_all(&block).is_err() {
                return;
            }
            passed.fetch_add(block.len() as u64, Ordering::Relaxed);
        }
    }

    /// Waits until the time has come and there is no black hole; gives the mode then.
    fn wait_to_pass(&self, due: Deadline) -> Mode {
        let mut state = self.state();
        loop {
            let remaining = due.remaining();
            if state.mode == Mode::BlackHole {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if state.mode != Mode::Cut && !remaining.is_zero() {
                let waited = self.changed.wait_timeout(state, remaining);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                return state.mode;
            }
        }
    }
}

impl Pair {
    /// Ends both; the client gets a reset once the threads that use it have noticed.
    fn reset(&self) {
        self.rude.store(true, Ordering::Relaxed);
        reset_on_close(&self.client);
        // Only for reading: closing for writing would say a polite goodbye.
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn reset_on_close(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the client.
    Up,
    /// To the client.
    Down,
}

impl Direction {
    fn source(self, pair: &Pair) -> &TcpStream {
        match self {
            Self::Up => &pair.client,
            Self::Down => &pair.server,
        }
    }

    fn sink(self, pair: &Pair) -> &TcpStream {
        match self {
            Self::Up => &pair.server,
            Self::Down => &pair.client,
        }
    }
}

#[cfg(test)]
mod tests;
