//! The process that `idempotency.crash` kills.
//!
//! The lab is a library, so the child is the current program, run again: it is told its task, and hands
//! it to [`carry_out`].

use std::path::PathBuf;
use std::time::Duration;

use crate::LabError;
use crate::idempotency::crash;
use crate::node::block_on;

/// The line by which the child says that it has done its business write.
pub(crate) const WRITTEN: &str = "tidegate-lab: written";

/// What a child does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildTask {
    /// How it writes.
    pub way: Way,
    /// The database that it writes to.
    pub database: PathBuf,
    /// The lease that it claims with.
    pub lease: Duration,
}

/// How business write and mark are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Apart, the naive way.
    Apart,
    /// In one transaction.
    OneTransaction,
}

impl Way {
    /// As an argument.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::OneTransaction => "one-transaction",
        }
    }

    /// Reads [`Way::name`].
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Apart, Self::OneTransaction].into_iter().find(|way| way.name() == name)
    }
}

impl ChildTask {
    /// As arguments: way, database, and lease in milliseconds.
    pub fn to_args(&self) -> [std::ffi::OsString; 3] {
        [self.way.name().into(), self.database.clone().into(), self.lease.as_millis().to_string().into()]
    }

    /// Reads [`ChildTask::to_args`]; `None` when they are no task.
    pub fn from_args(args: &[std::ffi::OsString]) -> Option<Self> {
        let [way, database, lease] = args else { return None };
        let lease = Duration::from_millis(lease.to_str()?.parse().ok()?);
        Some(Self { way: Way::parse(way.to_str()?)?, database: database.into(), lease })
    }
}

/// Carries out a task, in the child. It prints one line when it has written, and then waits to be killed.
pub fn carry_out(task: &ChildTask) -> Result<(), LabError> {
    block_on(crash::child(task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_survives_the_command_line() {
        for way in [Way::Apart, Way::OneTransaction] {
            let task = ChildTask { way, database: "/tmp/a b.db".into(), lease: Duration::from_millis(500) };
            assert_eq!(ChildTask::from_args(&task.to_args()), Some(task));
        }
        for wrong in [vec![], vec!["apart", "x"], vec!["other", "x", "5"], vec!["apart", "x", "soon"]] {
            let args: Vec<_> = wrong.iter().map(std::ffi::OsString::from).collect();
            assert_eq!(ChildTask::from_args(&args), None, "{wrong:?}");
        }
    }
}
