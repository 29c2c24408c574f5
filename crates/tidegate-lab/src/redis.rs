//! A Redis of the experiment's own: started on a free port in a folder that goes with it, and killed at the end.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::fleet::FleetSetup;
use tidegate_store::redis::limits::RedisLimits;
use tidegate_store::redis::{Redis, RedisConfig};

use crate::LabError;
use crate::error::About as _;

const WHAT: &str = "redis-server";
/// Another program may take the port between its choice and its use.
const PORTS: usize = 10;
/// How often it is asked whether it answers, and for how long at most.
const LOOKS: u32 = 500;
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Server {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Server {
    /// Starts it, and waits until it answers.
    pub(crate) async fn start() -> Result<Self, LabError> {
        for _ in 0..PORTS {
            if let Some(server) = Self::try_start().await? {
                return Ok(server);
            }
        }
        Err(LabError::broken(WHAT, "it did not answer on any of several ports"))
    }

    async fn try_start() -> Result<Option<Self>, LabError> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let port = free.about("finding a free port")?.port().to_string();
        let folder = tempfile::tempdir().about("making a folder for Redis")?;
        let child = Command::new(WHAT)
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot be started ({error}); on Debian: apt-get install redis-server"))
            .about(WHAT)?;
        let url = format!("redis://127.0.0.1:{port}");
        let mut server = Self { child, url, _folder: folder };
        let client = server.client(Duration::from_secs(5))?;
        for _ in 0..LOOKS {
            if client.ping().await.is_ok() {
                return Ok(Some(server));
            }
            if server.child.try_wait().about(WHAT)?.is_some() {
                return Ok(None);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(None)
    }

    /// A client of its own, as another instance has.
    pub(crate) fn client(&self, timeout: Duration) -> Result<Redis, LabError> {
        let config = RedisConfig::from_url(&self.url).and_then(|config| config.with_timeout(timeout));
        config.and_then(Redis::new).about("the client of Redis")
    }

    /// What the instance called `name` shares limits by.
    pub(crate) fn fleet(&self, name: String, timeout: Duration) -> Result<FleetSetup, LabError> {
        let store = Arc::new(RedisLimits::new(self.client(timeout)?));
        Ok(FleetSetup { store, instance: name, instances: None })
    }

    /// Stops it as a hung machine would be, or lets it go on.
    pub(crate) fn pause(&self, pause: bool) -> Result<(), LabError> {
        let signal = if pause { "STOP" } else { "CONT" };
        let pid = self.child.id();
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status();
        if sent.about(WHAT)?.success() { Ok(()) } else { Err(LabError::broken(WHAT, "it cannot be paused")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
