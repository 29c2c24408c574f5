//! A cluster of three masters on the loopback.

use std::net::SocketAddr;

use super::{Redis, RedisOptions, Reply};
use crate::wait::wait_until;

/// Nodes of a cluster.
const NODES: usize = 3;
/// What a cluster shares out among its nodes.
const SLOTS: usize = 16_384;
/// How many keys move in one command.
const BATCH: &str = "100";

/// Three masters that share the slots evenly. Ended when the value is dropped.
pub struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts plain nodes and joins them.
    ///
    /// # Panics
    /// When the cluster is not whole within [`crate::DEADLINE`].
    pub fn start() -> Self {
        Self::with(&RedisOptions::new())
    }

    /// Starts nodes with these options, which must leave the default user without a password.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn with(options: &RedisOptions) -> Self {
        let options = options.clone().config("cluster-enabled yes").config("cluster-node-timeout 2000");
        let nodes: Vec<Redis> = (0..NODES).map(|_| Redis::with(options.clone())).collect();
        let cluster = Self { nodes };
        for (at, node) in cluster.nodes.iter().enumerate() {
            let slots = SLOTS * at / NODES..SLOTS * (at + 1) / NODES;
            let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
            let mut add = vec!["CLUSTER", "ADDSLOTS"];
            add.extend(slots.iter().map(String::as_str));
            let mut session = node.session();
            must(&session.command(&add));
            must(&session.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]));
            let first = cluster.nodes[0].address();
            let (host, port) = (first.ip().to_string(), first.port().to_string());
            must(&session.command(&["CLUSTER", "MEET", &host, &port]));
        }
        wait_until("a cluster that is whole", || cluster.nodes.iter().all(sees_all));
        cluster
    }

    /// Where the nodes listen, in the order of their slots at the start.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Redis::address).collect()
    }

    /// A node.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn node(&mut self, at: usize) -> &mut Redis {
        &mut self.nodes[at]
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).number();
        u16::try_from(slot).expect("a slot is below 16384")
    }

    /// Which node has the slot now.
    ///
    /// # Panics
    /// When none says that it has.
    pub fn owner(&self, slot: u16) -> usize {
        let owns = |node: &Redis| {
            // Of its own line: id, address, flags (one of them `myself`), …, and from the ninth word slots.
            let lines = node.command(&["CLUSTER", "NODES"]);
            let own =
                lines.text().lines().find(|line| line.contains("myself")).unwrap_or_default().to_owned();
            own.split_ascii_whitespace().skip(8).any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let bounds = first.parse().ok().zip(last.parse().ok());
                bounds.is_some_and(|(first, last): (u16, u16)| (first..=last).contains(&slot))
            })
        };
        self.nodes.iter().position(owns).unwrap_or_else(|| panic!("no node has slot {slot}"))
    }

    /// Moves a slot with its keys to another node while the cluster runs.
    ///
    /// # Panics
    /// When a node refuses a step.
    pub fn move_slot(&mut self, slot: u16, to: usize) {
        self.begin_move(slot, to);
        self.move_keys(slot, to);
        self.finish_move(slot, to);
    }

    /// The first step: from now on the owner sends calls for keys that it does not have to the other node.
    ///
    /// # Panics
    /// When a node refuses it.
    pub fn begin_move(&mut self, slot: u16, to: usize) {
        let from = self.owner(slot);
        let slot = slot.to_string();
        let (source, target) = (self.id(from), self.id(to));
        must(&self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]));
        must(&self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]));
    }

    /// The second step: the keys move.
    ///
    /// # Panics
    /// When a node refuses it.
    pub fn move_keys(&mut self, slot: u16, to: usize) {
        let mut source = self.nodes[self.owner(slot)].session();
        let address = self.nodes[to].address();
        let (host, port, slot) = (address.ip().to_string(), address.port().to_string(), slot.to_string());
        loop {
            let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, BATCH]);
            if keys.list().is_empty() {
                return;
            }
            let mut migrate = vec!["MIGRATE", &host, &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.list().iter().map(Reply::text));
            let reply = source.command(&migrate);
            assert!(matches!(reply, Reply::Status(_)), "{reply:?}");
        }
    }

    /// The last step: the other node owns the slot, and all are told.
    ///
    /// # Panics
    /// When a node refuses it.
    pub fn finish_move(&mut self, slot: u16, to: usize) {
        let from = self.owner(slot);
        let (slot, target) = (slot.to_string(), self.id(to));
        let others = (0..NODES).filter(|at| *at != from && *at != to);
        // The new owner first: until it knows, nobody would have the slot.
        for at in [to, from].into_iter().chain(others) {
            must(&self.nodes[at].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]));
        }
    }

    fn id(&self, at: usize) -> String {
        self.nodes[at].command(&["CLUSTER", "MYID"]).text().to_owned()
    }
}

fn sees_all(node: &Redis) -> bool {
    let info = node.command(&["CLUSTER", "INFO"]);
    let has = |line: &str| info.text().lines().any(|found| found == line);
    has("cluster_state:ok")
        && has(&format!("cluster_known_nodes:{NODES}"))
        && has("cluster_slots_assigned:16384")
}

fn must(reply: &Reply) {
    assert!(reply.is_ok(), "{reply:?}");
}
