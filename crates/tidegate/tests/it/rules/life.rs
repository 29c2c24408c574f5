//! Versions over restarts, rollbacks and several nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate::rules::{Drift, LoadResult, LoadSource, StartError};
use tidegate_store::rules::{AuditKind, Origin};

use super::world::{World, document, roll_back, trail, until};

#[tokio::test]
async fn a_restart_goes_on_from_the_last_number() {
    let world = World::on_request();
    for number in 1..=3 {
        let store = world.sqlite().await;
        world.write("rules.yaml", &document(&format!("{number}")));
        let service = world.start(&store).await;
        assert_eq!(service.status().version, number);
        service.shutdown().await;
    }
    // Once more with nothing new: no new version, the same rules.
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    assert_eq!(service.status().version, 3);
    assert_eq!(service.status().loads.get(LoadSource::Store, LoadResult::Applied), 1);
    let swaps: Vec<u64> = world.swaps().into_iter().map(|(number, _)| number).collect();
    assert_eq!(swaps, [1, 1, 2, 2, 3, 3], "each restart takes the old version, then what is new in the file");
    assert_eq!(trail(&store).await, [AuditKind::Published; 3]);
}

#[tokio::test]
async fn a_rollback_survives_a_restart_with_the_old_file_and_drift_is_reported() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    world.write("rules.yaml", &document("two"));
    let two = service.reload().await;
    assert_eq!(roll_back(&store, 1).await.number, 3);
    let rolled_back = service.reload().await;
    let drift = Some(Drift { version: 3, file_digest: two.digest });
    assert_eq!((rolled_back.version, rolled_back.drift), (3, drift));
    service.shutdown().await;

    for _ in 0..3 {
        let store = world.sqlite().await;
        let service = world.start(&store).await;
        let restarted = service.reload().await;
        assert_eq!((restarted.version, restarted.drift), (3, drift), "the rollback stands");
        assert_eq!(world.swaps().last().unwrap(), &(3, "one".to_owned()));
        service.shutdown().await;
    }
    let told = [AuditKind::Published, AuditKind::Published, AuditKind::RolledBack, AuditKind::Drift];
    assert_eq!(trail(&store).await, told, "drift is reported once");

    // The next edit is published, even back to what was rolled back from by way of another content.
    world.write("rules.yaml", &document("three"));
    let service = world.start(&store).await;
    assert_eq!((service.status().version, service.status().drift), (4, None));
    world.write("rules.yaml", &document("two"));
    assert_eq!(service.reload().await.version, 5);
}

#[tokio::test]
async fn what_was_last_published_moves_also_without_a_new_version() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    world.write("rules.yaml", &document("two"));
    service.reload().await;
    // Another text of the same rules: accepted, no version.
    world.write("rules.yaml", &document("# two\ntwo"));
    assert_eq!(service.reload().await.version, 2);
    roll_back(&store, 1).await;
    service.shutdown().await;
    // That text is what was last accepted, so the rollback stands.
    let service = world.start(&store).await;
    assert_eq!(service.status().version, 3);
    assert!(service.status().drift.is_some());
    // The text before it is a change, so it is published.
    world.write("rules.yaml", &document("two"));
    assert_eq!(service.reload().await.version, 4);
}

#[tokio::test]
async fn drift_ends_when_the_version_in_force_says_what_the_file_says() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    world.write("rules.yaml", &document("two"));
    service.reload().await;
    roll_back(&store, 1).await;
    assert!(service.reload().await.drift.is_some());
    roll_back(&store, 2).await;
    let status = service.reload().await;
    assert_eq!((status.version, status.drift), (4, None));
}

#[tokio::test]
async fn two_nodes_with_copies_of_one_file_make_one_version_of_each_change() {
    let world = World::polling();
    world.write("rules.yaml", &document("0"));
    let (here, there) = (world.sqlite().await, world.sqlite().await);
    let path = world.path("rules.yaml");
    let first = world.try_start(&here, &path, "node-1").await.unwrap();
    let second = world.try_start(&there, &path, "node-2").await.unwrap();
    for number in 2..=5 {
        world.write("rules.yaml", &document(&format!("{number}")));
        for service in [&first, &second] {
            until(service, |status| status.version >= number).await;
        }
    }
    // Each has its own memory of the file, and both end on the same version.
    for service in [&first, &second] {
        let status = service.reload().await;
        assert_eq!((status.version, status.drift, status.refusal), (5, None, None));
    }
    assert_eq!(first.status().digest, second.status().digest);
    assert_eq!(here.history(99).await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_node_follows_what_another_publishes_and_keeps_its_own_file_as_drift() {
    let world = World::polling();
    world.write("one.yaml", &document("a"));
    world.write("two.yaml", &document("a"));
    let (here, there) = (world.sqlite().await, world.sqlite().await);
    let first = world.try_start(&here, &world.path("one.yaml"), "node-1").await.unwrap();
    let second = world.try_start(&there, &world.path("two.yaml"), "node-2").await.unwrap();
    assert_eq!(second.status().version, 1, "the same rules are no new version");
    world.write("one.yaml", &document("b"));
    let followed = until(&second, |status| status.version == 2 && status.drift.is_some()).await;
    assert_eq!(followed.loads.get(LoadSource::File, LoadResult::Published), 0);
    world.write("two.yaml", &document("b"));
    until(&second, |status| status.version == 2 && status.drift.is_none()).await;
    world.write("two.yaml", &document("c"));
    let drifted = until(&first, |status| status.version == 3 && status.drift.is_some()).await;
    assert_eq!(drifted.drift.unwrap().version, 3);
    let Origin::File { node, path, .. } = here.latest().await.unwrap().unwrap().origin else { panic!() };
    assert_eq!((node.as_str(), path), ("node-2", world.path("two.yaml").display().to_string()));
}

#[tokio::test]
async fn sixteen_nodes_that_start_at_once_publish_one_file_once() {
    let world = Arc::new(World::on_request());
    world.write("rules.yaml", &document("a"));
    let store = world.sqlite().await;
    let mut starting = tokio::task::JoinSet::new();
    for node in 0..16 {
        let (world, store) = (Arc::clone(&world), Arc::clone(&store));
        starting.spawn(async move {
            let path = world.path("rules.yaml");
            world.try_start(&store, &path, &format!("node-{node}")).await.unwrap().status().version
        });
    }
    assert_eq!(starting.join_all().await, [1; 16]);
    assert_eq!(store.latest_number().await.unwrap(), Some(1));
}

#[tokio::test]
async fn a_version_that_this_node_cannot_run_keeps_it_from_starting_on_older_rules() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let store = world.sqlite().await;
    world.start(&store).await.shutdown().await;
    roll_back(&store, 1).await;
    std::fs::remove_file(world.path("rules.yaml")).unwrap();
    world.toy.refuse_all.store(true, Ordering::Relaxed);
    let error = world.try_start(&store, &world.path("rules.yaml"), "node-1").await.unwrap_err();
    assert!(matches!(error, StartError::Unusable { version: 2, .. }), "{error:?}");
    assert!(error.to_string().contains("nothing goes here"), "{error}");
    assert_eq!(world.swaps().len(), 1);
}

#[tokio::test]
async fn a_version_that_a_running_node_cannot_run_leaves_the_one_in_force() {
    let world = World::on_request();
    world.write("rules.yaml", &document("one"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    world.toy.refuse_all.store(true, Ordering::Relaxed);
    roll_back(&store, 1).await;
    service.reload().await;
    let status = service.reload().await;
    assert_eq!((status.version, status.unusable.unwrap().version), (1, 2));
    assert_eq!(trail(&store).await.last(), Some(&AuditKind::Refused));
    assert_eq!(status.loads.get(LoadSource::Store, LoadResult::Refused), 1, "tried once");
    world.toy.refuse_all.store(false, Ordering::Relaxed);
    roll_back(&store, 1).await;
    let status = service.reload().await;
    assert_eq!((status.version, status.unusable), (3, None), "the next one is taken");
}

#[tokio::test]
async fn nothing_is_swapped_in_after_shutdown() {
    let world = World::polling();
    world.write("rules.yaml", &document("one"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    let changes = service.subscribe();
    service.shutdown().await;
    assert!(changes.has_changed().is_err(), "the task is gone");
    world.write("rules.yaml", &document("two"));
    assert_eq!(world.swaps().len(), 1);
    assert_eq!(store.latest_number().await.unwrap(), Some(1));
}
