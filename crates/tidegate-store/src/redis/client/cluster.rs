//! The nodes of a cluster, and who has which slots.
//!
//! The driver's own cluster client repeats a call after a broken connection as readily as after a redirection:
//! both count as the same kind of try. Here a call is sent again only where the answer says that it did not run.

use std::collections::HashMap;
use std::sync::Arc;

use ::redis::{Cmd, ToRedisArgs, Value, cmd};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::config::Address;
use super::fault::{ConnectFault, NotSent, RedisFault, RefusalCode, bounded};
use super::flight::{Flight, Usable};
use super::link::Dialer;
use super::node::{Budget, Node, Place, text};
use super::script::Script;
use super::slots::{SLOTS, slot_of};

/// The most nodes that are remembered; a cluster has at most about a thousand.
const MAX_NODES: usize = 1024;
/// Marks a slot that nobody has.
const NOBODY: u16 = u16::MAX;

/// A cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    dialer: Dialer,
    seeds: Vec<Address>,
    nodes: Mutex<HashMap<Address, Node>>,
    map: Arc<Flight<Arc<Map>>>,
}

/// Who has which slots.
struct Map {
    masters: Vec<Address>,
    /// For each slot, an index into `masters` or [`NOBODY`].
    slots: Box<[u16]>,
}

impl Usable for Arc<Map> {
    const GOOD_WHEN_MADE: bool = true;

    fn is_usable(&self) -> bool {
        true
    }
}

impl Map {
    fn master(&self, slot: u16) -> Option<&Address> {
        self.masters.get(usize::from(*self.slots.get(usize::from(slot))?))
    }
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, dialer: Dialer) -> Self {
        let shared = Shared { dialer, seeds, nodes: Mutex::default(), map: Flight::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Runs a script on the node that has the slot of its keys. One redirection of each kind is followed: the
    /// node that redirects has not run it.
    pub(super) async fn run<K: AsRef<[u8]> + Sync, A: ToRedisArgs + Sync>(
        &self,
        script: &Script,
        keys: &[K],
        args: &[A],
        budget: Budget,
    ) -> Result<Value, RedisFault> {
        let slot = common_slot(keys).ok_or(NotSent::NoCommonSlot)?;
        let map = self.map(budget).await?;
        let Some(mut at) = map.master(slot).cloned() else {
            self.renew();
            let why = format!("nobody has slot {slot}").into();
            return Err(NotSent::Connect(ConnectFault::NoMap { why }).into());
        };
        let (mut moved, mut asked) = (false, false);
        loop {
            let answer = self.node(&at).run(script, keys, args, asked, budget).await;
            let Err(fault) = &answer else { return answer };
            self.learn(fault);
            let RedisFault::Refused(refusal) = fault else { return answer };
            let follow = match refusal.code {
                RefusalCode::Moved if !moved && !asked => &mut moved,
                RefusalCode::Ask if !asked => &mut asked,
                _ => return answer,
            };
            let Some(target) = redirection(&refusal.message, &at) else { return answer };
            *follow = true;
            at = target;
        }
    }

    /// Sends a command to every master, one after the other.
    pub(super) async fn send_to_all(
        &self,
        command: &Cmd,
        budget: Budget,
    ) -> Result<Vec<(Value, Address)>, RedisFault> {
        let map = self.map(budget).await?;
        let mut answers = Vec::with_capacity(map.masters.len());
        for master in &map.masters {
            let answer = self.node(master).send(command, Budget::new(budget.timeout)).await;
            answers.push(answer.inspect_err(|fault| self.learn(fault))?);
        }
        Ok(answers)
    }

    async fn map(&self, budget: Budget) -> Result<Arc<Map>, NotSent> {
        let flight = &self.shared.map;
        flight.get(budget.deadline, budget.timeout, || self.clone().fetch()).await
    }

    /// What a fault says about the map.
    fn learn(&self, fault: &RedisFault) {
        let doubtful = match fault {
            RedisFault::NotSent(why) => !matches!(why, NotSent::NoCommonSlot | NotSent::NotLoaded(_)),
            RedisFault::Refused(refusal) => matches!(
                refusal.code,
                RefusalCode::Moved
                    | RefusalCode::ClusterDown
                    | RefusalCode::ReadOnly
                    | RefusalCode::MasterDown
            ),
            // An answer that is late or lost: the next call will tell.
            RedisFault::Unknown(_) => false,
        };
        if doubtful {
            self.renew();
        }
    }

    fn renew(&self) {
        self.shared.map.renew(|| self.clone().fetch());
    }

    fn node(&self, at: &Address) -> Node {
        let mut nodes = self.shared.nodes.lock();
        if let Some(node) = nodes.get(at) {
            return node.clone();
        }
        if nodes.len() >= MAX_NODES {
            nodes.retain(|_, node| node.is_connected());
        }
        let node = Node::new(Place::Fixed(at.clone()), self.shared.dialer.clone());
        if nodes.len() < MAX_NODES {
            nodes.insert(at.clone(), node.clone());
        }
        node
    }

    /// Asks all nodes that are known, and the seeds, at once: any may be gone, and the first answer will do.
    async fn fetch(self) -> Result<Arc<Map>, ConnectFault> {
        let mut known = self.shared.seeds.clone();
        known.extend(self.shared.nodes.lock().keys().filter(|at| !self.shared.seeds.contains(at)).cloned());
        let mut asked = JoinSet::new();
        for at in known {
            let own = self.clone();
            asked.spawn(async move { own.ask(&at).await });
        }
        let mut last = bounded("no node is known");
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(map)) => {
                    self.forget_others(&map);
                    return Ok(Arc::new(map));
                }
                Ok(Err(why)) => last = why,
                Err(_) => {}
            }
        }
        Err(ConnectFault::NoMap { why: last })
    }

    async fn ask(&self, at: &Address) -> Result<Map, Arc<str>> {
        let mut question = cmd("CLUSTER");
        question.arg("SLOTS");
        let answer = self.node(at).send(&question, self.shared.dialer.budget()).await;
        let (value, _) = answer.map_err(|fault| bounded(&format!("{at}: {fault}")))?;
        read_map(&value, at).ok_or_else(|| bounded(&format!("{at}: does not say who has the slots")))
    }

    fn forget_others(&self, map: &Map) {
        let keep = |at: &Address| map.masters.contains(at) || self.shared.seeds.contains(at);
        self.shared.nodes.lock().retain(|at, _| keep(at));
    }
}

fn common_slot<K: AsRef<[u8]>>(keys: &[K]) -> Option<u16> {
    let mut slots = keys.iter().map(|key| slot_of(key.as_ref()));
    let first = slots.next()?;
    slots.all(|slot| slot == first).then_some(first)
}

/// Where `MOVED SLOT HOST:PORT` and `ASK SLOT HOST:PORT` send to; without a host, it is that of the node asked.
fn redirection(message: &str, asked: &Address) -> Option<Address> {
    let (host, port) = message.split_ascii_whitespace().nth(2)?.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(Address::new(if host.is_empty() { &asked.host } else { host }, port.parse().ok()?))
}

/// From the answer of `CLUSTER SLOTS`: ranges of `[first, last, [host, port, …] of the master, replicas …]`.
fn read_map(value: &Value, asked: &Address) -> Option<Map> {
    let Value::Array(ranges) = value else { return None };
    let mut map = Map { masters: Vec::new(), slots: vec![NOBODY; usize::from(SLOTS)].into() };
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = master.as_slice() else { return None };
        let host = text(host).filter(|host| !host.is_empty() && host != "?");
        let master = Address::new(host.as_deref().unwrap_or(&asked.host), u16::try_from(*port).ok()?);
        let at = map.masters.iter().position(|known| *known == master).unwrap_or_else(|| {
            map.masters.push(master);
            map.masters.len() - 1
        });
        let slots = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
        map.slots.get_mut(slots)?.fill(u16::try_from(at).ok()?);
    }
    // A node that was just made knows of no slots.
    (!map.masters.is_empty()).then_some(map)
}

#[cfg(test)]
mod tests;
