//! Real Redis servers on free ports, in temporary folders, ended by their process ids.
//!
//! The binary is `redis-server` on the path, the one that the variable `REDIS_SERVER` names, or the one
//! given by [`RedisOptions::server`]; anything that speaks Redis's configuration will do (Valkey too).
//! Tests never use a server that was already running.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::Program;
use crate::temp_dir;
use crate::wait::wait_for;

mod cluster;
mod ports;
mod reply;
mod sentinel;
mod tls;

pub use cluster::Cluster;
pub use ports::Port;
pub use reply::{Reply, Session};
pub use sentinel::Sentinel;
pub use tls::Tls;

/// The user that the kit itself signs in as, so that a test may restrict every other.
const KIT_USER: &str = "testkit";
/// How many ports are tried before giving up.
const PORT_TRIES: usize = 20;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    lines: Vec<String>,
    password: Option<String>,
    persistent: bool,
    server: Option<PathBuf>,
    tls: bool,
}

impl RedisOptions {
    /// A plain server: no password, nothing kept.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line to its configuration, as in `maxmemory 2mb`.
    #[must_use]
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Asks the default user for a password.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user by a rule of Redis's access control, as in `ana on >secret ~* +@all`.
    #[must_use]
    pub fn user(self, rule: &str) -> Self {
        self.config(format!("user {rule}"))
    }

    /// Takes only connections with TLS, under a certificate of [`Redis::tls`].
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Writes each change to disk before it is answered, so that [`Redis::restart`] finds it again.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Runs this binary instead of the default.
    #[must_use]
    pub fn server(mut self, path: impl Into<PathBuf>) -> Self {
        self.server = Some(path.into());
        self
    }

    fn binary(&self) -> PathBuf {
        let named = || std::env::var_os("REDIS_SERVER").map(PathBuf::from);
        self.server.clone().or_else(named).unwrap_or_else(|| "redis-server".into())
    }
}

/// A running server. It is killed, and its folder removed, when the value is dropped.
pub struct Redis {
    // Ended before its folder goes.
    process: Program,
    options: RedisOptions,
    tls: Option<Tls>,
    port: Port,
    folder: TempDir,
}

impl Redis {
    /// Starts a plain server.
    ///
    /// # Panics
    /// When it is not ready within [`crate::DEADLINE`].
    pub fn start() -> Self {
        Self::with(RedisOptions::new())
    }

    /// Starts a server.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn with(options: RedisOptions) -> Self {
        let folder = temp_dir();
        let tls = options.tls.then(|| Tls::make(folder.path()));
        for _ in 0..PORT_TRIES {
            let port = Port::reserve();
            if let Some(process) = launch(&options, &port, folder.path()) {
                return Self { process, options, tls, port, folder };
            }
        }
        panic!("{PORT_TRIES} free ports were taken before redis-server had them");
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// `redis://127.0.0.1:PORT`, or `rediss://` with TLS, without a user and password.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}", self.address())
    }

    /// What a client needs to trust it and to be trusted by it.
    ///
    /// # Panics
    /// When it was started without TLS.
    pub fn tls(&self) -> &Tls {
        self.tls.as_ref().expect("a server with TLS")
    }

    /// Its folder: data, configuration and socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether it is running, also while paused.
    pub fn runs(&mut self) -> bool {
        self.process.runs()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Opens a session that may do everything, past any proxy, on the server's own socket.
    ///
    /// # Panics
    /// When the server does not let it in.
    pub fn session(&self) -> Session {
        self.try_session().unwrap_or_else(|error| panic!("no session at {}: {error}", self.address()))
    }

    /// As [`Self::session`], with the fault of the connection: a server that changes its role cuts all clients off.
    fn try_session(&self) -> std::io::Result<Session> {
        Session::open_unix(&socket(self.folder.path()), KIT_USER)
    }

    /// Runs one command in a session of its own.
    ///
    /// # Panics
    /// When the connection breaks, or no answer comes within [`crate::DEADLINE`].
    pub fn command(&self, words: &[&str]) -> Reply {
        self.session().command(words)
    }

    /// Freezes it (SIGSTOP): connections stay open, nothing is answered.
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&self) {
        self.process.signal("STOP");
    }

    /// Lets it go on after [`Self::pause`].
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&self) {
        self.process.signal("CONT");
    }

    /// Ends it at once (SIGKILL), as a crash does.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends it if it runs, and starts it again on the same port with what it wrote to disk, which is
    /// everything under [`RedisOptions::persistent`] and else nothing.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn restart(&mut self) {
        self.process.kill();
        let (options, port, folder) = (&self.options, &self.port, self.folder.path());
        // The port is ours; what is left of the old connections may hold it for a moment.
        self.process = wait_for("the port of the ended server", || launch(options, port, folder));
    }

    /// As [`Self::restart`] with what `SAVE` wrote, without waiting until it has been read: the configuration
    /// `key-load-delay MICROSECONDS` makes that last as long as a test needs, and
    /// `loading-process-events-interval-bytes 1024` makes it answer meanwhile.
    ///
    /// # Panics
    /// When it does not run within [`crate::DEADLINE`].
    pub fn restart_loading(&mut self) {
        self.process.kill();
        let mut command = Command::new(self.options.binary());
        command.arg(self.folder.path().join("redis.conf"));
        self.process = Program::start(&mut command);
        self.process.wait_line("that it runs", |line| line.contains("Server initialized").then_some(()));
    }

    /// As [`Self::restart`], without its data.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn restart_empty(&mut self) {
        self.process.kill();
        for name in ["dump.rdb", "appendonlydir", "appendonly.aof"] {
            let path = self.folder.path().join(name);
            let gone =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            assert!(gone.is_ok() || !path.exists(), "cannot remove {}", path.display());
        }
        self.restart();
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}

/// Starts the server and waits until it accepts connections; `None` when its port is taken.
fn launch(options: &RedisOptions, port: &Port, folder: &Path) -> Option<Program> {
    let file = folder.join("redis.conf");
    std::fs::write(&file, configuration(options, port, folder)).expect("a configuration file");
    let process = Program::start(Command::new(options.binary()).arg(&file));
    process
        .wait_line("that it is ready", |line| {
            if line.contains("Ready to accept connections") {
                Some(true)
            } else {
                line.contains("Address already in use").then_some(false)
            }
        })
        .then_some(process)
}

fn configuration(options: &RedisOptions, port: &Port, folder: &Path) -> String {
    let mut lines = vec![
        "bind 127.0.0.1".to_owned(),
        if options.tls {
            let file = |name: &str| folder.join(name).display().to_string();
            format!(
                "port 0\ntls-port {}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n{}",
                port.number(),
                file(tls::CERTIFICATE),
                file(tls::KEY),
                file(tls::CA),
                "tls-auth-clients no",
            )
        } else {
            format!("port {}", port.number())
        },
        format!("dir {}", folder.display()),
        format!("unixsocket {}", socket(folder).display()),
        "daemonize no".to_owned(),
        "save \"\"".to_owned(),
        format!("user {KIT_USER} on nopass ~* &* +@all"),
    ];
    if options.persistent {
        lines.push("appendonly yes\nappendfsync always".to_owned());
    }
    if let Some(password) = &options.password {
        lines.push(format!("requirepass {password}"));
    }
    lines.extend(options.lines.iter().cloned());
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests;
