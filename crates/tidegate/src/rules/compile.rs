//! The seam to whatever turns texts into rules.

use tidegate_store::rules::Sha256;

/// Turns texts into rules: parse, validate, compile. All or nothing.
pub trait Compile: Send + Sync + 'static {
    /// What a version is once it is loaded; shared by all requests that run under it.
    type Rules: Send + Sync + 'static;

    /// Loads a document out of one or more texts, given as (name, text). Names are what faults carry.
    fn load(&self, sources: &[(String, String)]) -> Result<Candidate<Self::Rules>, Refusal>;

    /// Loads a stored version out of its canonical form.
    ///
    /// Texts that an older program published stay loadable, also once their canonical form would be
    /// written otherwise.
    #[expect(clippy::wrong_self_convention, reason = "rules come from the text; self says how")]
    fn from_canonical(&self, canonical: &str) -> Result<Candidate<Self::Rules>, Refusal>;
}

/// Rules that passed every check.
#[derive(Clone, Debug)]
pub struct Candidate<R> {
    /// The rules.
    pub rules: R,
    /// Their canonical form: equal for documents that mean the same.
    pub canonical: String,
    /// SHA-256 of the bytes of `canonical`; anything else is never published.
    pub digest: Sha256,
    /// What is allowed and probably not meant, one line each.
    pub warnings: Vec<String>,
}

/// Rules that were not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Every fault, each as `FILE:LINE:COL: …` with a snippet and a way to mend it.
    pub rendered: String,
    /// How many.
    pub faults: usize,
}
