//! Why an experiment gave no report.

use std::error::Error;

/// Why an experiment gave no report. A report whose figures are wrong is not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Something that the experiment stands on broke: a file, a database, a child process.
    #[error("{what}: {source}")]
    Broken {
        /// What it was about.
        what: &'static str,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl LabError {
    /// For what has no error of its own.
    pub(crate) fn broken(what: &'static str, why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Broken { what, source: why.into() }
    }
}

/// Says what an error was about.
pub(crate) trait About<T> {
    /// `what` the failing step was about.
    fn about(self, what: &'static str) -> Result<T, LabError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> About<T> for Result<T, E> {
    fn about(self, what: &'static str) -> Result<T, LabError> {
        self.map_err(|source| LabError::broken(what, source))
    }
}
