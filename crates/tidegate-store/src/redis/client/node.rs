//! A server that scripts are run on: where it is may change, its connection may break.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, ToRedisArgs, Value, cmd};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::config::Address;
use super::fault::{ConnectFault, Lost, NotSent, RedisFault, RefusalCode, bounded};
use super::flight::Flight;
use super::link::{Dialer, Link};
use super::script::Script;

/// How long a call may take: until when, and how long that was at its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
}

impl Budget {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout, timeout }
    }
}

/// Where a node is.
#[derive(Clone)]
pub(super) enum Place {
    /// Always there.
    Fixed(Address),
    /// Where the sentinels say that the master is.
    Master(Arc<Sentinels>),
}

/// Those who know where the master is.
pub(super) struct Sentinels {
    pub(super) name: Arc<str>,
    pub(super) addresses: Vec<Address>,
    pub(super) dialer: Dialer,
}

/// One server and the connection to it.
#[derive(Clone)]
pub(super) struct Node {
    place: Place,
    dialer: Dialer,
    flight: Arc<Flight<Arc<Link>>>,
}

impl Node {
    pub(super) fn new(place: Place, dialer: Dialer) -> Self {
        Self { place, dialer, flight: Flight::new() }
    }

    /// Whether there is a connection now.
    pub(super) fn is_connected(&self) -> bool {
        self.flight.current().is_some()
    }

    /// Sends one command once. What may be sent again is for the caller to know.
    pub(super) async fn send(&self, command: &Cmd, budget: Budget) -> Result<(Value, Address), RedisFault> {
        let link = self.link(budget).await?;
        let value = link.send(command, budget).await;
        self.learn(&link, value).map(|value| (value, link.address().clone()))
    }

    /// Runs a script once. A server that does not know it has not run it: it is given the script and asked once
    /// more. With `asking`, the server is told that the caller was sent here by another node.
    pub(super) async fn run<K: AsRef<[u8]> + Sync, A: ToRedisArgs + Sync>(
        &self,
        script: &Script,
        keys: &[K],
        args: &[A],
        asking: bool,
        budget: Budget,
    ) -> Result<Value, RedisFault> {
        let link = self.link(budget).await?;
        let call = script.call(keys, args);
        let mut answer = self.call(&link, &call, asking, budget).await;
        if matches!(&answer, Err(fault) if fault.refusal() == Some(RefusalCode::NoScript)) {
            let loaded = link.send(&script.load(), budget).await;
            if let Err(fault) = self.learn(&link, loaded) {
                return Err(match fault {
                    // Loading runs nothing.
                    RedisFault::Unknown(lost) => NotSent::NotLoaded(lost).into(),
                    other => other,
                });
            }
            answer = self.call(&link, &call, asking, budget).await;
        }
        answer
    }

    async fn call(
        &self,
        link: &Arc<Link>,
        call: &Cmd,
        asking: bool,
        budget: Budget,
    ) -> Result<Value, RedisFault> {
        let answer = if asking {
            link.send_after(cmd("ASKING"), call, budget).await
        } else {
            link.send(call, budget).await
        };
        self.learn(link, answer)
    }

    async fn link(&self, budget: Budget) -> Result<Arc<Link>, NotSent> {
        self.flight.get(budget.deadline, budget.timeout, || self.clone().connect()).await
    }

    /// What an answer says about the connection.
    fn learn(&self, link: &Arc<Link>, answer: Result<Value, RedisFault>) -> Result<Value, RedisFault> {
        match &answer {
            // A server that is no master (any more): another may be by now, also behind the same name.
            Err(RedisFault::Refused(refusal))
                if matches!(refusal.code, RefusalCode::ReadOnly | RefusalCode::MasterDown) =>
            {
                self.flight.renew(|| self.clone().connect());
            }
            Ok(_) | Err(RedisFault::Refused(_)) if link.proves_itself() => self.flight.prove(),
            _ => {}
        }
        answer
    }

    async fn connect(self) -> Result<Arc<Link>, ConnectFault> {
        match &self.place {
            Place::Fixed(address) => self.dialer.dial(address).await,
            Place::Master(sentinels) => sentinels.connect(&self.dialer).await,
        }
    }
}

impl Sentinels {
    /// Asks all at once, as any may be gone or cut off, and takes the first server named that is a master.
    async fn connect(self: &Arc<Self>, dialer: &Dialer) -> Result<Arc<Link>, ConnectFault> {
        let mut asked = JoinSet::new();
        for address in self.addresses.clone() {
            let own = Arc::clone(self);
            asked.spawn(async move { own.ask(&address).await });
        }
        let mut tried: Vec<Address> = Vec::new();
        let mut last = ConnectFault::BrokenOff;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(address)) if tried.contains(&address) => {}
                Ok(Ok(address)) => {
                    match self.master_at(&address, dialer).await {
                        Ok(link) => return Ok(link),
                        Err(fault) => last = fault,
                    }
                    tried.push(address);
                }
                Ok(Err(why)) if tried.is_empty() => {
                    last = ConnectFault::NoMaster { name: Arc::clone(&self.name), why };
                }
                _ => {}
            }
        }
        Err(last)
    }

    async fn ask(&self, sentinel: &Address) -> Result<Address, Arc<str>> {
        let link = self.dialer.dial(sentinel).await.map_err(|fault| bounded(&fault.to_string()))?;
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.name);
        let answer = link.send(&question, self.dialer.budget()).await;
        let value = answer.map_err(|fault| bounded(&format!("{sentinel}: {fault}")))?;
        address(&value).ok_or_else(|| bounded(&format!("{sentinel}: knows no such master")))
    }

    /// A sentinel may be behind: the server itself must say that it is a master.
    async fn master_at(&self, at: &Address, dialer: &Dialer) -> Result<Arc<Link>, ConnectFault> {
        let link = dialer.dial(at).await?;
        match link.send(&cmd("ROLE"), dialer.budget()).await {
            Ok(Value::Array(parts)) if parts.first().and_then(text).as_deref() == Some("master") => Ok(link),
            Ok(_) => Err(ConnectFault::NotMaster { at: at.clone() }),
            // One without the permission to ask is believed; a replica will refuse to write.
            Err(RedisFault::Refused(refusal)) if refusal.code == RefusalCode::NoPermission => Ok(link),
            Err(RedisFault::Unknown(Lost::Timeout(after))) => {
                Err(ConnectFault::Timeout { at: at.clone(), after })
            }
            Err(fault) => Err(ConnectFault::Failed { at: at.clone(), why: bounded(&fault.to_string()) }),
        }
    }
}

/// A pair of host and port.
fn address(value: &Value) -> Option<Address> {
    let Value::Array(parts) = value else { return None };
    let [host, port] = parts.as_slice() else { return None };
    Some(Address::new(&text(host)?, text(port)?.parse().ok()?))
}

/// A string of whatever kind.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}
