//! Any sequence of edits, faults, rollbacks, lost answers, outages and restarts.

use std::sync::Arc;

use tidegate_store::rules::{AuditKind, RuleStore};

use super::world::{Mood, Moody, World, document, roll_back};

/// A linear congruential generator (Knuth's MMIX constants): the same walk for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What must hold, kept apart from how it is done.
#[derive(Debug, Default)]
struct Model {
    /// Rules of each version, from 1.
    versions: Vec<String>,
    /// The content last accepted from the file.
    accepted: Option<String>,
    file: Option<String>,
}

impl Model {
    /// What a look at the file must lead to.
    fn look(&mut self) {
        let Some(content) = self.file.clone() else { return };
        let Some(rules) = rules_of(&content) else { return };
        if self.accepted.as_ref() == Some(&content) {
            return;
        }
        self.accepted = Some(content);
        if self.versions.last() != Some(&rules) {
            self.versions.push(rules);
        }
    }

    fn drifts(&self) -> bool {
        let file = self.file.as_deref().and_then(rules_of);
        file.is_some_and(|rules| self.versions.last() != Some(&rules))
    }
}

fn content(choice: u64) -> String {
    match choice {
        0 => "bad".to_owned(),
        1 => document("a"),
        2 => document("# again\na"),
        3 => document("b"),
        4 => document("# again\nb"),
        _ => document("c"),
    }
}

fn rules_of(content: &str) -> Option<String> {
    let body = content.strip_prefix("rules\n")?.strip_suffix("\nend\n")?;
    Some(body.trim_start_matches("# again\n").to_owned())
}

#[tokio::test]
async fn any_life_leaves_a_history_without_gaps_and_its_highest_version_in_force() {
    for seed in 0..40 {
        live(seed).await;
    }
}

async fn live(seed: u64) {
    let mut random = Random(seed);
    let world = World::on_request();
    let moody = Moody::new(World::memory());
    let store: Arc<dyn RuleStore> = Arc::clone(&moody) as _;
    let mut model = Model::default();
    world.write("rules.yaml", &content(1));
    model.file = Some(content(1));
    model.look();
    let mut service = world.start(&store).await;
    for step in 0..40 {
        let what = random.below(12);
        match what {
            0..=5 => {
                let text = content(random.below(6));
                world.write("rules.yaml", &text);
                model.file = Some(text);
            }
            6 => {
                let _ = std::fs::remove_file(world.path("rules.yaml"));
                model.file = None;
            }
            7 | 8 => {
                let of = random.below(model.versions.len() as u64) + 1;
                roll_back(&store, of).await;
                model.versions.push(model.versions[usize::try_from(of).unwrap() - 1].clone());
            }
            9 => {
                service.shutdown().await;
                service = world.start(&store).await;
            }
            10 => {
                *moody.mood.lock() = Mood::LosesAnswers;
                service.reload().await;
                *moody.mood.lock() = Mood::Well;
            }
            _ => {
                *moody.mood.lock() = Mood::Down;
                let before = service.status().version;
                assert_eq!(service.reload().await.version, before);
                *moody.mood.lock() = Mood::Well;
            }
        }
        model.look();
        let status = service.reload().await;
        let place = format!("seed {seed}, step {step}, action {what}: {model:?} {status:?}");
        assert_eq!(status.version, model.versions.len() as u64, "{place}");
        assert_eq!(world.swaps().last().map(|(_, rules)| rules), model.versions.last(), "{place}");
        assert_eq!(status.drift.is_some(), model.drifts(), "{place}");
        assert_eq!(status.pending, None, "{place}");
    }
    let history = store.history(1000).await.unwrap();
    let numbers: Vec<u64> = history.iter().rev().map(|head| head.number).collect();
    assert_eq!(numbers, (1..=model.versions.len() as u64).collect::<Vec<_>>(), "seed {seed}");
    let trail = store.audit_log(1000, None).await.unwrap();
    let made =
        trail.iter().filter(|entry| matches!(entry.entry.kind, AuditKind::Published | AuditKind::RolledBack));
    assert_eq!(made.count(), numbers.len(), "each version is in the trail once, seed {seed}");
}
