//! A master, its replica, and three sentinels that watch them.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{Port, Redis, RedisOptions, Reply, Session};
use crate::program::Program;
use crate::temp_dir;
use crate::wait::{wait_for, wait_until};

/// The name that the sentinels know the master by.
const NAME: &str = "tide";
/// Sentinels that must agree.
const QUORUM: usize = 2;
/// All of them.
const SENTINELS: usize = 3;

/// The whole group. Ended when the value is dropped.
pub struct Sentinel {
    sentinels: Vec<Watcher>,
    servers: [Redis; 2],
}

struct Watcher {
    _process: Program,
    port: Port,
    _folder: TempDir,
}

impl Sentinel {
    /// Starts plain servers.
    ///
    /// # Panics
    /// When the group is not whole within [`crate::DEADLINE`].
    pub fn start() -> Self {
        Self::with(RedisOptions::new())
    }

    /// Starts the master and the replica with these options; their password, if any, is told to each other
    /// and to the sentinels, which ask for none themselves.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn with(options: RedisOptions) -> Self {
        let mut options = options.config("repl-diskless-sync-delay 0");
        if let Some(password) = options.password.clone() {
            options = options.config(format!("masterauth {password}"));
        }
        let master = Redis::with(options.clone());
        let of_master = format!("replicaof {} {}", master.address().ip(), master.address().port());
        let replica = Redis::with(options.clone().config(of_master));
        // The last notices late that a master is gone and so does not stand itself: of two that stand, one wins.
        let start = |at| {
            let down_after = if at + 1 == SENTINELS { 2500 } else { 500 };
            Watcher::start(&options, master.address(), down_after)
        };
        let group = Self { sentinels: (0..SENTINELS).map(start).collect(), servers: [master, replica] };
        wait_until("sentinels that know the replica and each other", || {
            group.sentinels.iter().all(Watcher::sees_the_whole_group)
        });
        group
    }

    /// The name that the sentinels know the master by.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// Where the sentinels listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|sentinel| sentinel.port.address()).collect()
    }

    /// The server that is the master by its own account, of those that answer.
    ///
    /// # Panics
    /// When there is none within [`crate::DEADLINE`].
    pub fn master(&mut self) -> &mut Redis {
        let at = wait_for("a master", || self.servers.iter_mut().position(is_master));
        &mut self.servers[at]
    }

    /// The first server that runs and is no master.
    ///
    /// # Panics
    /// As [`Self::master`].
    pub fn replica(&mut self) -> &mut Redis {
        let at = wait_for("a replica", || {
            self.servers.iter_mut().position(|server| server.runs() && !is_master(server))
        });
        &mut self.servers[at]
    }

    /// Makes the replica the master, with both alive, and waits until every sentinel says so.
    ///
    /// # Panics
    /// When it is not done within [`crate::DEADLINE`].
    pub fn failover(&mut self) {
        let next = self.replica().address();
        wait_for("a sentinel that can begin", || {
            let reply = self.sentinels[0].session().command(&["SENTINEL", "FAILOVER", NAME]);
            reply.is_ok().then_some(())
        });
        self.wait_master(next);
    }

    /// Waits until the server there is the only master, every sentinel says so, and the other, if it runs, has
    /// its data and can take over.
    ///
    /// # Panics
    /// When it is not within [`crate::DEADLINE`].
    pub fn wait_master(&mut self, address: SocketAddr) {
        wait_until("sentinels that agree on the new master", || {
            let agree = self.sentinels.iter().all(|sentinel| sentinel.master() == Some(address));
            agree
                && self.servers.iter_mut().all(|server| match role(server) {
                    None => server.address() != address,
                    Some(role) if server.address() == address => role == "master",
                    Some(role) => role == "connected",
                })
        });
    }
}

impl Watcher {
    fn start(options: &RedisOptions, master: SocketAddr, down_after: u32) -> Self {
        let folder = temp_dir();
        let file = folder.path().join("sentinel.conf");
        let (process, port) = wait_for("a port for a sentinel", || {
            let port = Port::reserve();
            std::fs::write(&file, configuration(options, &port, master, down_after, folder.path())).ok()?;
            let process = Program::start(Command::new(options.binary()).arg(&file).arg("--sentinel"));
            let runs = process.wait_line("that it runs", |line| {
                // This line comes once it listens.
                if line.contains("+monitor master") {
                    Some(true)
                } else {
                    line.contains("Address already in use").then_some(false)
                }
            });
            runs.then_some((process, port))
        });
        let watcher = Self { _process: process, port, _folder: folder };
        // Its usual rhythm is slower; older servers do not know the command and keep to it. A replica that was
        // just promoted is put back by sentinels that have not heard of it after four periods of publishing,
        // and the one that promotes it looks once a second: that period must not be short.
        let rhythm =
            ["ping-period", "100", "info-period", "100", "ask-period", "100", "publish-period", "1000"];
        watcher.session().command(&[&["SENTINEL", "DEBUG"], rhythm.as_slice()].concat());
        watcher
    }

    fn session(&self) -> Session {
        Session::open(self.port.address())
    }

    fn master(&self) -> Option<SocketAddr> {
        let reply = self.session().command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        let Reply::List(parts) = reply else { return None };
        let [host, port] = parts.as_slice() else { return None };
        format!("{}:{}", host.text(), port.text()).parse().ok()
    }

    fn sees_the_whole_group(&self) -> bool {
        let mut session = self.session();
        let seen = session.command(&["SENTINEL", "CKQUORUM", NAME]);
        let others = session.command(&["SENTINEL", "SENTINELS", NAME]).list().len();
        let replicas = session.command(&["SENTINEL", "REPLICAS", NAME]);
        let linked = replicas.list().first().is_some_and(|replica| {
            let mut fields = replica.list().chunks(2);
            fields.any(|pair| pair[0].text() == "master-link-status" && pair[1].text() == "ok")
        });
        matches!(seen, Reply::Status(_)) && others == SENTINELS - 1 && linked
    }
}

fn is_master(server: &mut Redis) -> bool {
    role(server).as_deref() == Some("master")
}

/// `master`, or the state of a replica's connection to its master, or nothing while it cuts its clients off, as
/// it does when the sentinels change its role; `None` for a server that does not run.
fn role(server: &mut Redis) -> Option<String> {
    if !server.runs() {
        return None;
    }
    let Ok(reply) = server.try_session().and_then(|mut session| session.try_command(&["ROLE"])) else {
        return Some(String::new());
    };
    let said = if reply.list()[0].text() == "master" { 0 } else { 3 };
    Some(reply.list()[said].text().to_owned())
}

/// `down_after`: milliseconds without an answer after which it counts the master as gone.
fn configuration(
    options: &RedisOptions,
    port: &Port,
    master: SocketAddr,
    down_after: u32,
    folder: &Path,
) -> String {
    let mut lines = vec![
        "bind 127.0.0.1".to_owned(),
        format!("port {}", port.number()),
        format!("dir {}", folder.display()),
        format!("sentinel monitor {NAME} {} {} {QUORUM}", master.ip(), master.port()),
        format!("sentinel down-after-milliseconds {NAME} {down_after}"),
        format!("sentinel failover-timeout {NAME} 3000"),
    ];
    if let Some(password) = &options.password {
        lines.push(format!("sentinel auth-pass {NAME} {password}"));
    }
    lines.push(String::new());
    lines.join("\n")
}
