//! From rule texts to a plan: what a rule service loads.

use tidegate_core::document::Refused;
use tidegate_core::rule::compile::{Plan, PlanFault};
use tidegate_core::rule::version::{Digest, canonical};
use tidegate_core::rule::{Deployment, Diagnostic, Source, load};

use crate::rules::{Candidate, Compile, Refusal};

/// Faults that a refusal spells out. What is longer than a person reads at a time would be a flood in the
/// log and in the audit trail.
const MAX_TOLD: usize = 200;

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
        let loaded = load(sources, &self.deployment).map_err(tell)?;
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

fn tell(mut refused: Refused) -> Refusal {
    let faults = refused.faults.len();
    let more = faults.saturating_sub(MAX_TOLD);
    if more == 0 {
        return Refusal { rendered: refused.to_string(), faults };
    }
    refused.faults.truncate(MAX_TOLD);
    refused.warnings.clear();
    let rendered =
        format!("{refused}\n\nand {more} more faults; `tidegate rules check FILE` shows all of them");
    Refusal { rendered, faults }
}

fn unresolved(faults: &[PlanFault]) -> Refusal {
    let rendered: Vec<String> = faults.iter().map(PlanFault::to_string).collect();
    Refusal { faults: faults.len(), rendered: rendered.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(faults: usize) -> Refusal {
        let unknown: Vec<String> = (0..faults).map(|at| format!("x{at}: 1")).collect();
        let text = format!("apiVersion: tidegate/v1\n{}\n", unknown.join("\n"));
        let sources = [("rules.yaml".to_owned(), text)];
        Loader::new(Deployment::default()).load(&sources).err().unwrap()
    }

    #[test]
    fn a_flood_of_faults_is_counted_and_not_spelled_out() {
        let all = refusal(MAX_TOLD);
        assert_eq!((all.faults, all.rendered.matches("unknown field").count()), (MAX_TOLD, MAX_TOLD));
        assert!(!all.rendered.contains("more faults"));
        let flood = refusal(9_000);
        assert_eq!((flood.faults, flood.rendered.matches("unknown field").count()), (9_000, MAX_TOLD));
        let end = "and 8800 more faults; `tidegate rules check FILE` shows all of them";
        assert!(flood.rendered.ends_with(end), "{}", flood.rendered);
    }
}
