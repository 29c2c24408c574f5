//! From rule texts to a plan: what a rule service loads.

use tidegate_core::document::Refused;
use tidegate_core::rule::compile::{Plan, PlanFault};
use tidegate_core::rule::version::{Digest, canonical};
use tidegate_core::rule::{Deployment, Diagnostic, Source, load};

use crate::rules::{Candidate, Compile, Refusal};

/// Findings that a refusal, and the log of a version with warnings, spell out. What is longer than a person
/// reads at a time would be a flood in the log and in the audit trail.
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

/// Says in the log what is allowed in rules that come in force and probably not meant.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings.iter().take(MAX_TOLD) {
        tracing::warn!("{warning}");
    }
    if let Some(more) = more(0, warnings.len().saturating_sub(MAX_TOLD)) {
        tracing::warn!("{more}");
    }
}

fn tell(mut refused: Refused) -> Refusal {
    let faults = refused.faults.len();
    let warnings = refused.warnings.len();
    refused.faults.truncate(MAX_TOLD);
    // Faults first: they are what keeps the rules from coming in force.
    refused.warnings.truncate(MAX_TOLD - refused.faults.len());
    let left = more(faults - refused.faults.len(), warnings - refused.warnings.len());
    let rendered = match left {
        Some(left) => format!("{refused}\n\n{left}"),
        None => refused.to_string(),
    };
    Refusal { rendered, faults }
}

fn unresolved(faults: &[PlanFault]) -> Refusal {
    let mut rendered: Vec<String> = faults.iter().take(MAX_TOLD).map(PlanFault::to_string).collect();
    rendered.extend(more(faults.len().saturating_sub(MAX_TOLD), 0));
    Refusal { faults: faults.len(), rendered: rendered.join("\n") }
}

/// The line in place of findings that are not spelled out.
fn more(faults: usize, warnings: usize) -> Option<String> {
    let count = |number: usize, what: &str| match number {
        0 => None,
        1 => Some(format!("1 more {what}")),
        number => Some(format!("{number} more {what}s")),
    };
    let both: Vec<String> = count(faults, "fault").into_iter().chain(count(warnings, "warning")).collect();
    let all = "`tidegate rules check FILE` shows all of them";
    (!both.is_empty()).then(|| format!("and {}; {all}", both.join(" and ")))
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

    #[test]
    fn a_flood_of_warnings_beside_a_fault_is_not_spelled_out() {
        let limits: Vec<String> = (0..1_000)
            .map(|at| {
                format!(
                    "  - {{ id: l{at}, resources: [pay], token_bucket: {{ capacity: 10, refill: 10/s }} }}"
                )
            })
            .collect();
        let head =
            "apiVersion: tidegate/v1\nx: 1\nresources:\n  - { id: pay, match: { path: /pay } }\nlimits:";
        let sources = [("rules.yaml".to_owned(), format!("{head}\n{}\n", limits.join("\n")))];
        let refused = Loader::new(Deployment::default()).load(&sources).err().unwrap();
        assert_eq!((refused.faults, refused.rendered.matches("warning: ").count()), (1, MAX_TOLD - 1));
        assert!(refused.rendered.contains("unknown field `x`"));
        let end = "and 801 more warnings; `tidegate rules check FILE` shows all of them";
        assert!(refused.rendered.ends_with(end), "{}", refused.rendered);
    }

    #[test]
    fn what_is_left_out_is_counted_by_kind() {
        for (faults, warnings, expected) in [
            (0, 0, None),
            (1, 0, Some("and 1 more fault;")),
            (0, 2, Some("and 2 more warnings;")),
            (2, 1, Some("and 2 more faults and 1 more warning;")),
        ] {
            let told = more(faults, warnings);
            assert_eq!(told.as_deref().map(|told| told.split_inclusive(';').next().unwrap()), expected);
        }
    }
}
