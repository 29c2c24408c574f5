//! SIGINT and SIGTERM, which end a program orderly.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, held from the moment this is made: one that comes while the program still starts is
/// kept, and does not kill it.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes both from the system's default, which is to kill.
    pub(super) fn hold() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for either. One that came before is not lost.
    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
