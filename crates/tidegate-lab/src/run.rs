//! What a run may use beside its parameters.

use std::process::Command;

use crate::LabError;
use crate::child::ChildTask;

/// Told how far a run is: steps done, and steps in all.
pub type OnProgress<'a> = dyn FnMut(u64, u64) + 'a;

/// Makes the command that carries out a task in a process of its own.
pub type ChildCommand<'a> = dyn Fn(&ChildTask) -> std::io::Result<Command> + 'a;

/// What a run may use beside its parameters: somebody who hears of its progress, and a way to start a
/// process that it can kill.
pub struct Run<'a> {
    done: u64,
    total: u64,
    on_progress: Option<&'a mut OnProgress<'a>>,
    child: Option<&'a ChildCommand<'a>>,
}

impl<'a> Run<'a> {
    /// Nobody hears of its progress, and it can start no process.
    pub const fn new() -> Self {
        Self { done: 0, total: 1, on_progress: None, child: None }
    }

    /// Tells `on_progress` how far it is.
    #[must_use]
    pub fn with_progress(mut self, on_progress: &'a mut OnProgress<'a>) -> Self {
        self.on_progress = Some(on_progress);
        self
    }

    /// Starts children by the command that `child` makes. Whatever program that is hands its task to
    /// [`crate::child::carry_out`].
    #[must_use]
    pub fn with_child(mut self, child: &'a ChildCommand<'a>) -> Self {
        self.child = Some(child);
        self
    }

    /// Begins, with so many steps ahead.
    pub(crate) fn steps(&mut self, total: u64) {
        self.done = 0;
        self.total = total.max(1);
        self.tell();
    }

    /// One step is done.
    pub(crate) fn step(&mut self) {
        self.done = (self.done + 1).min(self.total);
        self.tell();
    }

    fn tell(&mut self) {
        if let Some(on_progress) = &mut self.on_progress {
            on_progress(self.done, self.total);
        }
    }

    pub(crate) fn command(&self, task: &ChildTask) -> Result<Command, LabError> {
        let Some(child) = self.child else {
            return Err(LabError::broken(
                "starting a child process",
                "this program gave no way to start one",
            ));
        };
        child(task).map_err(|why| LabError::broken("starting a child process", why))
    }
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self::new()
    }
}
