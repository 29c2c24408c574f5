//! Rule documents: whatever loads can be carried out, and reads back from its canonical form.

use tidegate_core::limit;
use tidegate_core::rule::compile::Plan;
use tidegate_core::rule::diff::diff;
use tidegate_core::rule::version::canonical;
use tidegate_core::rule::{Deployment, Digest, RuleSet, Shell, Source, load};

/// The text is one document, for two kinds of deployment.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let sources = [Source::new("rules.yaml", text)];
    let shared =
        Deployment { shared_store: true, leases: true, shell: Shell::Library, ..Deployment::default() };
    for deployment in [Deployment::default(), shared] {
        match load(&sources, &deployment) {
            Ok(loaded) => accepted(loaded.rules, deployment),
            Err(refused) => {
                assert!(!refused.faults.is_empty());
                for found in refused.faults.iter().chain(&refused.warnings) {
                    assert!(found.line >= 1 && found.column >= 1 && found.length >= 1, "{found:?}");
                    assert!(!found.message.contains('\n') && !found.help.is_empty(), "{found:?}");
                    assert!(!found.to_string().is_empty());
                }
            }
        }
    }
}

fn accepted(rules: RuleSet, deployment: Deployment) {
    let form = canonical(&rules);
    let again = load(&[Source::new("canonical", form.as_str())], &deployment);
    let again =
        again.unwrap_or_else(|refused| panic!("the canonical form is refused: {refused}\n{form}")).rules;
    assert_eq!(again, rules, "the canonical form means something else");
    assert_eq!(canonical(&again), form);
    assert_eq!(Digest::of(&again), Digest::of_canonical(&form));
    assert_eq!(diff(&again, &rules), []);
    for change in diff(&RuleSet::default(), &rules).into_iter().chain(diff(&rules, &RuleSet::default())) {
        assert!(!change.to_string().is_empty());
    }
    for limit in &rules.limits {
        let overrides = limit.overrides.iter().map(|other| &other.algorithm);
        for algorithm in std::iter::once(&limit.algorithm).chain(overrides) {
            assert_eq!(limit::check(algorithm), Ok(()));
        }
    }
    if let Err(faults) = Plan::new(rules) {
        panic!("what was accepted does not compile: {faults:?}");
    }
}
