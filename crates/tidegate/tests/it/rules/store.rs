//! What happens to the store: down, set back, damaged, answers lost, races lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate::rules::{LoadResult, LoadSource, StartError};
use tidegate_store::rules::{AuditKind, RuleStore};
use tidegate_store::sql::sqlite::open;

use super::world::{Mood, Moody, World, document, roll_back, trail};

fn moody(inner: &Arc<dyn RuleStore>) -> (Arc<Moody>, Arc<dyn RuleStore>) {
    let moody = Moody::new(Arc::clone(inner));
    let store: Arc<dyn RuleStore> = Arc::clone(&moody) as _;
    (moody, store)
}

#[tokio::test]
async fn r10_an_older_version_that_arrives_after_a_newer_one_is_ignored() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let (moody, store) = moody(&World::memory());
    let service = world.start(&store).await;
    world.write("rules.yaml", &document("two"));
    assert_eq!(service.reload().await.version, 2);
    *moody.mood.lock() = Mood::SetBackTo(1);
    for _ in 0..3 {
        assert_eq!(service.reload().await.version, 2);
    }
    assert_eq!(world.swaps(), [(1, "one".to_owned()), (2, "two".to_owned())]);
    // Nor is a new file published under a number that would come before the one in force.
    world.write("rules.yaml", &document("three"));
    let status = service.reload().await;
    assert_eq!(status.version, 2);
    assert!(status.pending.unwrap().contains("set back to version 1 while version 2 is in force"));
    *moody.mood.lock() = Mood::Well;
    let status = service.reload().await;
    assert_eq!((status.version, status.pending), (3, None));
}

#[tokio::test]
async fn a_store_that_is_down_leaves_the_version_in_force_and_what_waits_is_published_later() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let (moody, store) = moody(&World::memory());
    let service = world.start(&store).await;
    *moody.mood.lock() = Mood::Down;
    world.write("rules.yaml", &document("two"));
    for _ in 0..3 {
        let status = service.reload().await;
        assert_eq!(status.version, 1);
        assert!(status.store_stale_since.is_some());
        assert!(status.pending.unwrap().contains("it is down"));
    }
    assert!(world.metrics.render().contains("tidegate_rules_stale_seconds{source=\"store\"} 0"));
    *moody.mood.lock() = Mood::Well;
    let status = service.reload().await;
    assert_eq!((status.version, status.pending), (2, None));
    assert_eq!(service.reload().await.store_stale_since, None);
}

#[tokio::test]
async fn a_bad_file_while_the_store_is_down_is_in_the_trail_later() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let (moody, store) = moody(&World::memory());
    let service = world.start(&store).await;
    *moody.mood.lock() = Mood::Down;
    world.write("rules.yaml", "bad");
    for _ in 0..3 {
        let status = service.reload().await;
        assert_eq!(status.loads.get(LoadSource::File, LoadResult::Refused), 1, "counted once");
        assert!(status.refusal.is_some());
    }
    *moody.mood.lock() = Mood::Well;
    assert_eq!(service.reload().await.pending, None);
    assert_eq!(trail(&store).await, [AuditKind::Published, AuditKind::Refused]);
}

#[tokio::test]
async fn a_store_that_is_down_at_the_start_is_an_error() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let (moody, store) = moody(&World::memory());
    *moody.mood.lock() = Mood::Down;
    let error = world.try_start(&store, &world.path("rules.yaml"), "n").await.unwrap_err();
    assert!(matches!(error, StartError::Store(_)), "{error:?}");
}

#[tokio::test]
async fn a_publish_whose_answer_was_lost_is_made_once() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let (moody, store) = moody(&World::memory());
    let service = world.start(&store).await;
    *moody.mood.lock() = Mood::LosesAnswers;
    world.write("rules.yaml", &document("two"));
    service.reload().await;
    let status = service.reload().await;
    assert_eq!((status.version, status.pending), (2, None), "it found its own version in the store");
    // The same for somebody who starts with it.
    service.shutdown().await;
    world.write("rules.yaml", &document("three"));
    let service = world.start(&store).await;
    assert_eq!(service.reload().await.version, 3);
    assert_eq!(store.history(9).await.unwrap().len(), 3);
    assert_eq!(trail(&store).await, [AuditKind::Published; 3]);
}

#[tokio::test]
async fn a_lost_race_is_decided_again_on_the_newest_version() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let (moody, store) = moody(&World::memory());
    let service = world.start(&store).await;
    moody.rivals.store(3, Ordering::Relaxed);
    world.write("rules.yaml", &document("two"));
    let status = service.reload().await;
    assert_eq!((status.version, status.drift, status.pending), (5, None, None));
    assert_eq!(world.swaps().last().unwrap(), &(5, "two".to_owned()));
    // Bounded: who loses every race says so and tries again at the next look.
    moody.rivals.store(8, Ordering::Relaxed);
    world.write("rules.yaml", &document("three"));
    let status = service.reload().await;
    assert_eq!(
        (status.version, status.pending.unwrap().as_str()),
        (13, "others published first 8 times in a row")
    );
    let status = service.reload().await;
    assert_eq!((status.version, status.pending), (14, None));
}

#[tokio::test]
async fn a_version_that_was_changed_in_the_store_never_takes_effect() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    roll_back(&store, 1).await;
    roll_back(&store, 1).await;
    let pool = open(&world.path("tidegate.db")).await.unwrap();
    let edit = "UPDATE tidegate_rule_versions SET canonical = 'edited by hand' WHERE number > 1";
    sqlx::query(edit).execute(&pool).await.unwrap();
    let status = service.reload().await;
    assert_eq!(status.version, 1);
    let unusable = status.unusable.unwrap();
    assert_eq!((unusable.version, unusable.damaged), (3, true));
    assert!(unusable.refused.rendered.contains("changed in the store"), "{}", unusable.refused.rendered);
    assert_eq!(trail(&store).await.last(), Some(&AuditKind::Refused));
    service.shutdown().await;

    // A restart goes on with the highest version that is whole, as the nodes do that kept running.
    let service = world.start(&store).await;
    let status = service.status();
    assert_eq!((status.version, status.unusable.unwrap().version), (1, 3));
    // The next change of the file mends it.
    world.write("rules.yaml", &document("two"));
    let status = service.reload().await;
    assert_eq!((status.version, status.unusable), (4, None));
    assert!(world.swaps().iter().all(|(_, rules)| rules != "edited by hand"));
}
