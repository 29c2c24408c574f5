//! The registry.

use tidegate_core::document::suggest::nearest;

use crate::params::{Params, Spec, hint};
use crate::{LabError, Report, Run};
use crate::{breaker, idempotency, limit, rollout};

/// One experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name: a gate, a dot, and what it is about.
    pub id: &'static str,
    /// One line.
    pub about: &'static str,
    /// What can be set.
    pub params: &'static [Spec],
    /// Whether values that are each fine alone make an experiment together; if not, what to set.
    pub(crate) fits: Option<Fits>,
    pub(crate) run: fn(&Params, &mut Run<'_>) -> Result<Report, LabError>,
}

impl Experiment {
    /// Runs it. It takes up to a few seconds, and blocks: call it outside an async runtime.
    pub fn run(&self, params: &Params, run: &mut Run<'_>) -> Result<Report, LabError> {
        let report = (self.run)(params, run)?;
        Ok(Report { id: self.id, about: self.about, parameters: params.shown(self), ..report })
    }
}

/// Says what is wrong with values together.
pub(crate) type Fits = fn(&Params) -> Result<(), String>;

/// Every experiment, in the order in which they are run.
pub static EXPERIMENTS: &[Experiment] = &[
    limit::boundary::EXPERIMENT,
    limit::local_race::EXPERIMENT,
    limit::hot_update::EXPERIMENT,
    limit::shared_race::EXPERIMENT,
    limit::skew::EXPERIMENT,
    limit::outage::EXPERIMENT,
    idempotency::concurrent::EXPERIMENT,
    idempotency::replay::EXPERIMENT,
    idempotency::failures::EXPERIMENT,
    idempotency::lease::EXPERIMENT,
    idempotency::crash::EXPERIMENT,
    rollout::share::EXPERIMENT,
    rollout::reload::EXPERIMENT,
    rollout::salt::EXPERIMENT,
    rollout::random::EXPERIMENT,
    rollout::rollback::EXPERIMENT,
    rollout::refused::EXPERIMENT,
    rollout::propagation::EXPERIMENT,
    breaker::small_sample::EXPERIMENT,
    breaker::volume::EXPERIMENT,
    breaker::slow::EXPERIMENT,
    breaker::false_recovery::EXPERIMENT,
    breaker::retry_storm::EXPERIMENT,
];

/// The experiment called `id`.
pub fn find(id: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.id == id)
}

/// No experiment has this id, and no group this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no experiment `{id}`{}; there are: {known}", hint(.nearest.as_deref()))]
pub struct UnknownExperiment {
    /// What was asked for.
    pub id: String,
    /// What was probably meant.
    pub nearest: Option<String>,
    known: String,
}

/// The experiments that `asked` names, each once, in the order of [`EXPERIMENTS`]: ids, and groups as
/// `rollout` or `rollout.*`. All when it is empty.
pub fn select(asked: &[String]) -> Result<Vec<&'static Experiment>, UnknownExperiment> {
    for id in asked {
        if !EXPERIMENTS.iter().any(|experiment| names(id, experiment)) {
            let groups = EXPERIMENTS.iter().map(group);
            let known: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.id).collect();
            return Err(UnknownExperiment {
                id: id.clone(),
                nearest: suggest(id, known.iter().copied().chain(groups)),
                known: known.join(", "),
            });
        }
    }
    let wanted = |experiment: &&Experiment| asked.is_empty() || asked.iter().any(|id| names(id, experiment));
    Ok(EXPERIMENTS.iter().filter(wanted).collect())
}

fn group(experiment: &Experiment) -> &'static str {
    experiment.id.split_once('.').map_or(experiment.id, |(group, _)| group)
}

fn names(asked: &str, experiment: &Experiment) -> bool {
    asked == experiment.id || asked.strip_suffix(".*").unwrap_or(asked) == group(experiment)
}

/// The nearest name, or one whose last part was given alone.
fn suggest(asked: &str, known: impl Iterator<Item = &'static str> + Clone) -> Option<String> {
    let last = |id: &'static str| id.rsplit('.').next() == Some(asked);
    known.clone().find(|id| last(id)).or_else(|| nearest(asked, known)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(asked: &[&str], expected: &[&str]) {
        let asked: Vec<String> = asked.iter().map(|id| (*id).to_owned()).collect();
        let ids: Vec<&str> = select(&asked).unwrap().iter().map(|experiment| experiment.id).collect();
        assert_eq!(ids, expected, "{asked:?}");
    }

    #[test]
    fn ids_and_groups_are_selected_once_and_in_order() {
        let limits: Vec<&str> =
            EXPERIMENTS.iter().map(|known| known.id).filter(|id| id.starts_with("limit.")).collect();
        assert!(limits.len() > 3 && limits[0] == "limit.boundary", "{limits:?}");
        check(&["limit"], &limits);
        check(&["limit.*"], &limits);
        check(&["limit.hot-update", "limit", "limit.boundary"], &limits);
        check(&["rollout.salt"], &["rollout.salt"]);
        assert_eq!(select(&[]).unwrap().len(), EXPERIMENTS.len());
    }

    #[test]
    fn an_unknown_id_is_refused_with_the_nearest() {
        for (asked, nearest) in [
            ("limit.boundry", Some("limit.boundary")),
            ("rolout", Some("rollout")),
            ("retry-storm", Some("breaker.retry-storm")),
            ("xyzzy-and-more", None),
        ] {
            let error = select(&[asked.to_owned()]).unwrap_err();
            assert_eq!(error.nearest.as_deref(), nearest, "{asked}");
            assert!(error.to_string().contains("limit.boundary"), "{error}");
        }
    }

    #[test]
    fn ids_differ_and_every_default_is_within_its_range() {
        for (at, experiment) in EXPERIMENTS.iter().enumerate() {
            assert!(EXPERIMENTS[..at].iter().all(|other| other.id != experiment.id), "{}", experiment.id);
            for spec in experiment.params {
                let pairs = [(spec.name().to_owned(), spec.default())];
                let params = Params::of(experiment, &pairs);
                assert!(params.is_ok(), "{} {}: {params:?}", experiment.id, spec.name());
            }
        }
    }
}
