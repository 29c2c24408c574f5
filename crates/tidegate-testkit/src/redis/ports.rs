//! Ports for servers that cannot be told to pick one themselves and must have the same again later.

use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::wait::wait_for;

/// Below the ports that Linux deals out by itself (from 32768): nobody's outgoing connection takes one
/// while its server is down.
const FIRST: u16 = 10_240;
/// So that the bus of a cluster's node, 10,000 above, lies below them too.
const COUNT: u16 = 10_000;
/// How far above its port a node of a cluster listens for the other nodes.
pub(super) const BUS: u16 = 10_000;

/// A TCP port of the loopback that no other test takes for as long as the value lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    // The lock is what other processes see.
    _lock: File,
}

impl Port {
    /// A port that nobody listens on now, on which nobody else of ours will; neither on its bus port.
    ///
    /// # Panics
    /// When there is none.
    pub fn reserve() -> Self {
        let folder = std::env::temp_dir().join("tidegate-test-ports");
        std::fs::create_dir_all(&folder).expect("a folder for locks");
        wait_for("a free port", || {
            let random = RandomState::new().hash_one(std::process::id());
            let number = FIRST + u16::try_from(random % u64::from(COUNT)).unwrap_or(0);
            let path = folder.join(number.to_string());
            let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path).ok()?;
            lock.try_lock().ok()?;
            [number, number + BUS].into_iter().all(free).then_some(Self { number, _lock: lock })
        })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its address on the loopback.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

fn free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
