//! The threads: one acceptor that deals connections out in turn, and the workers that serve them.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::connection::{Settings, serve};
use super::drain::{Token, Tracker};
use super::listener::Handler;

/// Refused clients that are heard out at a time; more are just closed.
const MAX_REFUSALS: usize = 64;
/// How long a refused client is heard out.
const REFUSAL: Duration = Duration::from_secs(1);
/// How long the acceptor rests when the system has no more descriptors.
const EXHAUSTED: Duration = Duration::from_millis(20);

const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of the worker that this thread is; `usize::MAX` on any other thread.
pub(super) fn index() -> usize {
    INDEX.get()
}

struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
    token: Token,
}

/// The sending ends of the workers.
pub(super) struct Workers(Vec<mpsc::UnboundedSender<Accepted>>);

impl Workers {
    /// Starts the threads and adds them to `threads`.
    pub(super) fn start<H: Handler>(
        settings: &Arc<Settings>,
        handler: &Arc<H>,
        draining: &watch::Receiver<bool>,
        stopped: &watch::Receiver<bool>,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> io::Result<Self> {
        let mut senders = Vec::new();
        for index in 0..settings.config.workers.get() {
            // Bounded by the connection cap: each message holds one of its tokens.
            let (sender, receiver) = mpsc::unbounded_channel();
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let work =
                work(receiver, Arc::clone(settings), Arc::clone(handler), draining.clone(), stopped.clone());
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            threads.push(thread.spawn(move || {
                INDEX.set(index);
                runtime.block_on(work);
                // What is left is to be cut, and no blocking call of it is waited for.
                runtime.shutdown_background();
            })?);
            senders.push(sender);
        }
        Ok(Self(senders))
    }
}

async fn work<H: Handler>(
    mut connections: mpsc::UnboundedReceiver<Accepted>,
    settings: Arc<Settings>,
    handler: Arc<H>,
    draining: watch::Receiver<bool>,
    mut stopped: watch::Receiver<bool>,
) {
    let accepting = async {
        while let Some(Accepted { stream, peer, token }) = connections.recv().await {
            let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { continue };
            let (settings, handler, draining) =
                (Arc::clone(&settings), Arc::clone(&handler), draining.clone());
            tokio::spawn(async move { serve(stream, peer, token, &settings, handler, draining).await });
        }
        // The acceptor is gone; the connections stay until they are done or cut.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = accepting => {}
        // An error means that the server is gone, which stops it too.
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

/// Starts the acceptor: it deals connections to the workers in turn until it is told to drain.
pub(super) fn accept(
    socket: TcpListener,
    workers: Workers,
    connections: Tracker,
    max_connections: usize,
    mut draining: watch::Receiver<bool>,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let socket = {
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(socket)?
    };
    let accepting = async move {
        let refusals = Tracker::new();
        let mut turn = 0;
        loop {
            let (stream, peer) = next_connection(&socket).await;
            let token = connections.try_enter(max_connections);
            match token {
                Some(token) => {
                    // Taken out of this thread's runtime: it is a worker's.
                    let Ok(stream) = stream.set_nodelay(true).and_then(|()| stream.into_std()) else {
                        continue;
                    };
                    turn = (turn + 1) % workers.0.len();
                    // A worker that is gone has taken its connections with it.
                    let _ = workers.0[turn].send(Accepted { stream, peer, token });
                }
                None => refuse(stream, &refusals),
            }
        }
    };
    threads.push(std::thread::Builder::new().name("acceptor".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = accepting => {}
                // An error means that the server is gone.
                _ = draining.wait_for(|draining| *draining) => {}
            }
        });
        runtime.shutdown_background();
    })?);
    Ok(())
}

async fn next_connection(socket: &tokio::net::TcpListener) -> (tokio::net::TcpStream, SocketAddr) {
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            // The client was gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again");
                sleep(EXHAUSTED).await;
            }
        }
    }
}

/// Says 503 and closes, without a worker.
fn refuse(mut stream: tokio::net::TcpStream, refusals: &Tracker) {
    let Some(token) = refusals.try_enter(MAX_REFUSALS) else { return };
    tokio::spawn(async move {
        let _token = token;
        // Hear the client out, or a reset may overtake the answer; nobody is left to be told of errors.
        let _ = timeout(REFUSAL, async {
            stream.write_all(BUSY).await?;
            stream.shutdown().await?;
            let mut discard = [0; 1024];
            while stream.read(&mut discard).await? > 0 {}
            io::Result::Ok(())
        })
        .await;
    });
}
