//! From rule texts to a plan: what a rule service loads.

use tidegate_core::rule::compile::{Plan, PlanFault};
use tidegate_core::rule::version::{Digest, canonical};
use tidegate_core::rule::{Deployment, Diagnostic, Source, load};

use crate::rules::{Candidate, Compile, Refusal};

/// Loads rules for one kind of deployment.
#[derive(Clone, Debug)]
pub struct Loader {
    deployment: Deployment,
}

impl Loader {
    /// What may be asked of the stores and the shell depends on which there are.
    pub fn new(deployment: Deployment) -> Self {
        Self { deployment }
    }

    fn load_sources(&self, sources: &[Source]) -> Result<Candidate<Plan>, Refusal> {
        let loaded = load(sources, &self.deployment)
            .map_err(|refused| Refusal { faults: refused.faults.len(), rendered: refused.to_string() })?;
        let canonical = canonical(&loaded.rules);
        let digest = *Digest::of_canonical(&canonical).as_bytes();
        let warnings = loaded.warnings.iter().map(Diagnostic::to_string).collect();
        // Loading has checked all that a plan needs: a fault here is one that it should have found.
        let rules = Plan::new(loaded.rules).map_err(|faults| unresolved(&faults))?;
        Ok(Candidate { rules, canonical, digest, warnings })
    }
}

impl Compile for Loader {
    type Rules = Plan;

    fn load(&self, sources: &[(String, String)]) -> Result<Candidate<Plan>, Refusal> {
        let sources: Vec<Source> =
            sources.iter().map(|(name, text)| Source { name: name.clone(), text: text.clone() }).collect();
        self.load_sources(&sources)
    }

    fn from_canonical(&self, canonical: &str) -> Result<Candidate<Plan>, Refusal> {
        self.load_sources(&[Source { name: "stored rules".to_owned(), text: canonical.to_owned() }])
    }
}

fn unresolved(faults: &[PlanFault]) -> Refusal {
    let rendered: Vec<String> = faults.iter().map(PlanFault::to_string).collect();
    Refusal { faults: faults.len(), rendered: rendered.join("\n") }
}
