//! An address that refuses connections for as long as a test wants it to.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

use crate::origin::Origin;

/// Connections that wait to be accepted, once it is opened.
const BACKLOG: i32 = 128;

/// A port of the loopback address that is taken and on which nobody listens. Unlike one that was free a
/// moment ago, no other test can be given it.
#[derive(Debug)]
pub struct ClosedPort {
    socket: Socket,
    addr: SocketAddr,
}

impl ClosedPort {
    /// Takes one.
    ///
    /// # Panics
    /// When no port can be bound.
    pub fn take() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        let addr = socket.local_addr().ok().and_then(|addr| addr.as_socket()).expect("its address");
        Self { socket, addr }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// An origin there, for an upstream that comes up late.
    ///
    /// # Panics
    /// When the system does not let it listen.
    pub fn open(self) -> Origin {
        self.socket.listen(BACKLOG).expect("to listen on a port of our own");
        Origin::serve(self.socket.into())
    }
}

#[cfg(test)]
mod tests;
