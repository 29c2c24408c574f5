//! What happens to the file: editors, Kubernetes, faults. Nothing polls here unless it says so.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tidegate::rules::{LoadResult, LoadSource, MAX_BYTES, StartError, Status};
use tidegate_store::rules::AuditKind;

use super::world::{World, document, trail, until, within};

#[tokio::test]
async fn the_first_start_publishes_the_file_as_version_1() {
    let world = World::watching();
    world.write("rules.yaml", &document("b\na\nodd"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    assert_eq!(world.swaps(), [(1, "a\nb\nodd".to_owned())], "in force before start returns");
    let status = service.status();
    assert_eq!((status.version, status.warnings), (1, vec!["odd".to_owned()]));
    assert_eq!((status.refusal, status.drift, status.unusable, status.pending), (None, None, None, None));
    let stored = store.latest().await.unwrap().unwrap();
    assert_eq!(stored.digest, status.digest);
    assert_eq!(stored.author, "node-1");
    assert_eq!(stored.source[0].text, document("b\na\nodd"), "as it was written");
    assert_eq!(stored.source[0].name, world.path("rules.yaml").display().to_string());
    let scraped = world.metrics.render();
    assert!(
        scraped.contains("tidegate_rules_loads_total{source=\"file\",result=\"published\"} 1"),
        "{scraped}"
    );
    assert!(scraped.contains("tidegate_rules_info{version=\"1\",digest=\""), "{scraped}");
}

#[tokio::test]
async fn a_change_is_in_force_within_a_second() {
    let world = World::watching();
    world.write("rules.yaml", &document("0"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    // Until one is: the machine may be busy with other tests, Tidegate is not.
    let mut number = 1;
    let mut in_time = false;
    while !in_time && number < 60 {
        number += 1;
        world.overwrite("rules.yaml", &document(&number.to_string()));
        in_time = within(Duration::from_secs(1), &service, |status| status.version == number).await.is_some();
        until(&service, |status| status.version == number).await;
    }
    assert!(in_time, "no change was in force within a second");
}

#[tokio::test]
async fn an_editor_that_renames_a_new_file_over_the_old_one() {
    let world = World::watching();
    world.write("rules.yaml", &document("a"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    for number in 2..=4 {
        world.overwrite(".rules.yaml.swp", &document(&number.to_string()));
        fs::rename(world.path(".rules.yaml.swp"), world.path("rules.yaml")).unwrap();
        until(&service, |status| status.version == number).await;
    }
    let rules: Vec<String> = world.swaps().into_iter().map(|(_, rules)| rules).collect();
    assert_eq!(rules, ["a", "2", "3", "4"]);
}

/// Lays out `root` as Kubernetes does: `rules.yaml` → `..data/rules.yaml`, `..data` → `..N`.
fn swap_config_map(root: &Path, generation: u64, files: &[(&str, String)]) {
    let data = format!("..{generation}");
    fs::create_dir(root.join(&data)).unwrap();
    for (name, text) in files {
        fs::write(root.join(&data).join(name), text).unwrap();
        if !root.join(name).is_symlink() {
            symlink(Path::new("..data").join(name), root.join(name)).unwrap();
        }
    }
    symlink(&data, root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    // The swap alone must be noticed; what is removed is what nobody watches any more.
    if generation > 2 {
        fs::remove_dir_all(root.join(format!("..{}", generation - 2))).unwrap();
    }
}

#[tokio::test]
async fn kubernetes_swaps_the_symlink_beside_the_file() {
    let world = World::watching();
    let root = world.path("etc");
    fs::create_dir(&root).unwrap();
    swap_config_map(&root, 1, &[("rules.yaml", document("1"))]);
    let store = world.sqlite().await;
    let service = world.try_start(&store, &root.join("rules.yaml"), "pod").await.unwrap();
    for number in 2..=4 {
        swap_config_map(&root, number, &[("rules.yaml", document(&number.to_string()))]);
        until(&service, |status| status.version == number).await;
    }
    assert_eq!(world.swaps().last().unwrap(), &(4, "4".to_owned()));
}

#[tokio::test]
async fn kubernetes_swaps_a_whole_directory() {
    let world = World::watching();
    let root = world.path("etc");
    fs::create_dir(&root).unwrap();
    let files = |n: u64| [("a.yaml", document(&format!("a{n}"))), ("b.yaml", document(&format!("b{n}")))];
    swap_config_map(&root, 1, &files(1));
    let store = world.sqlite().await;
    let service = world.try_start(&store, &root, "pod").await.unwrap();
    for number in 2..=4 {
        swap_config_map(&root, number, &files(number));
        until(&service, |status| status.version == number).await;
    }
    let rules: Vec<String> = world.swaps().into_iter().map(|(_, rules)| rules).collect();
    assert_eq!(rules, ["a1\nb1", "a2\nb2", "a3\nb3", "a4\nb4"], "never half of one and half of another");
}

#[tokio::test]
async fn a_file_that_is_a_symlink_to_elsewhere_is_watched_there() {
    let world = World::watching();
    fs::create_dir(world.path("elsewhere")).unwrap();
    world.write("elsewhere/rules.yaml", &document("a"));
    symlink("elsewhere/rules.yaml", world.path("rules.yaml")).unwrap();
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    world.overwrite("elsewhere/rules.yaml", &document("b"));
    until(&service, |status| status.version == 2).await;
}

#[tokio::test]
async fn deletion_leaves_the_version_in_force_and_return_is_noticed() {
    let world = World::watching();
    world.write("rules.yaml", &document("a"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    fs::remove_file(world.path("rules.yaml")).unwrap();
    let gone = until(&service, |status| status.file_stale_since.is_some()).await;
    assert_eq!((gone.version, gone.loads.get(LoadSource::File, LoadResult::Missing)), (1, 1));
    world.write("rules.yaml", &document("a"));
    let back = until(&service, |status| status.file_stale_since.is_none()).await;
    assert_eq!(back.version, 1, "the same content is no new version");
    fs::remove_file(world.path("rules.yaml")).unwrap();
    until(&service, |status| status.file_stale_since.is_some()).await;
    world.write("rules.yaml", &document("b"));
    let back = until(&service, |status| status.version == 2).await;
    assert_eq!(back.file_stale_since, None);
    assert_eq!(trail(&store).await, [AuditKind::Published, AuditKind::Published]);
}

#[tokio::test]
async fn the_directory_may_be_deleted_and_return() {
    let mut world = World::watching();
    world.options.file_poll = Duration::from_millis(50);
    fs::create_dir(world.path("etc")).unwrap();
    world.write("etc/rules.yaml", &document("a"));
    let store = world.sqlite().await;
    let service = world.try_start(&store, &world.path("etc/rules.yaml"), "n").await.unwrap();
    for number in 2..=3 {
        fs::remove_dir_all(world.path("etc")).unwrap();
        until(&service, |status| status.file_stale_since.is_some()).await;
        fs::create_dir(world.path("etc")).unwrap();
        world.write("etc/rules.yaml", &document(&number.to_string()));
        until(&service, |status| status.version == number).await;
    }
}

#[tokio::test]
async fn a_half_written_file_is_refused_and_healed_by_the_rest() {
    let world = World::watching();
    world.write("rules.yaml", &document("a"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    let whole = document("a\nb");
    world.overwrite("rules.yaml", &whole[..8]);
    // An even shorter half may have been seen before.
    let fault = |status: &Status| status.refusal.clone().map_or(String::new(), |refusal| refusal.rendered);
    let half = until(&service, |status| fault(status).contains("rules.yaml:2:1: finish with `end`")).await;
    assert_eq!(half.version, 1);
    world.overwrite("rules.yaml", &whole);
    let healed = until(&service, |status| status.version == 2).await;
    assert_eq!(healed.refusal, None);
    assert_eq!(world.swaps(), [(1, "a".to_owned()), (2, "a\nb".to_owned())]);
}

#[tokio::test]
async fn r9_a_bad_file_is_refused_with_every_fault_and_good_again_is_taken() {
    let world = World::watching();
    world.write("rules.yaml", &document("a"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    world.write("rules.yaml", "bad\nx\nbad\n");
    let refused = until(&service, |status| status.refusal.is_some()).await;
    assert_eq!(refused.version, 1, "the version in force stays");
    let refusal = refused.refusal.unwrap();
    assert_eq!((refusal.faults, refusal.rendered.lines().count()), (4, 4), "{}", refusal.rendered);
    assert_eq!(refused.loads.get(LoadSource::File, LoadResult::Refused), 1);
    let entry = store.audit_log(1, None).await.unwrap().remove(0).entry;
    assert_eq!((entry.kind, entry.version, entry.detail), (AuditKind::Refused, None, refusal.rendered));
    assert_eq!(store.latest_number().await.unwrap(), Some(1), "nothing was published");
    world.write("rules.yaml", &document("b"));
    let taken = until(&service, |status| status.version == 2).await;
    assert_eq!(taken.refusal, None);
}

#[tokio::test]
async fn a_refused_content_is_in_the_trail_once_however_often_it_is_seen() {
    let world = World::on_request();
    world.write("rules.yaml", &document("a"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    let mut expected = vec![AuditKind::Published];
    for content in ["bad1", "bad1", "bad2", "bad2"] {
        world.write("rules.yaml", content);
        service.reload().await;
        let status = service.reload().await;
        assert_eq!(status.version, 1);
        assert!(status.refusal.is_some());
    }
    expected.extend([AuditKind::Refused; 2]);
    assert_eq!(trail(&store).await, expected);
    service.shutdown().await;
    // Not even after a restart.
    let service = world.start(&store).await;
    assert!(service.status().refusal.is_some());
    assert_eq!(trail(&store).await, expected);
}

#[tokio::test]
async fn the_same_content_is_no_new_version() {
    let world = World::on_request();
    world.write("rules.yaml", &document("a\nb"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    world.write("rules.yaml", &document("a\nb"));
    let same = service.reload().await;
    assert_eq!(same.version, 1);
    assert_eq!(same.loads.get(LoadSource::File, LoadResult::Unchanged), 0, "it was not even loaded");
    // Another text that says the same is accepted, and makes no version.
    world.write("rules.yaml", &document("# why\nb\na"));
    let reworded = service.reload().await;
    assert_eq!((reworded.version, reworded.drift), (1, None));
    assert_eq!(reworded.loads.get(LoadSource::File, LoadResult::Unchanged), 1);
    assert_eq!(trail(&store).await, [AuditKind::Published, AuditKind::Unchanged]);
    assert_eq!(world.swaps().len(), 1);
}

#[tokio::test]
async fn a_directory_is_one_document() {
    let world = World::watching();
    let root = world.path("rules.d");
    fs::create_dir(&root).unwrap();
    world.write("rules.d/b.yaml", &document("b"));
    world.write("rules.d/a.yml", &document("a"));
    let store = world.sqlite().await;
    let service = world.try_start(&store, &root, "n").await.unwrap();
    world.write("rules.d/c.json", &document("c"));
    until(&service, |status| status.version == 2).await;
    fs::remove_file(root.join("b.yaml")).unwrap();
    until(&service, |status| status.version == 3).await;
    world.write("rules.d/d.yaml", "bad");
    let refused = until(&service, |status| status.refusal.is_some()).await;
    assert!(refused.refusal.unwrap().rendered.contains("rules.d/d.yaml:1:1: "));
    fs::remove_file(root.join("d.yaml")).unwrap();
    until(&service, |status| status.refusal.is_none()).await;
    let rules: Vec<String> = world.swaps().into_iter().map(|(_, rules)| rules).collect();
    assert_eq!(rules, ["a\nb", "a\nb\nc", "a\nc"]);
    let stored = store.get(1).await.unwrap().unwrap();
    let names: Vec<&str> =
        stored.source.iter().map(|source| source.name.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a.yml", "b.yaml"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_a_refusal_and_stale() {
    let world = World::on_request();
    let store = world.sqlite().await;
    let path = world.path("rules.yaml");
    world.write("rules.yaml", &document("a"));
    let service = world.start(&store).await;
    for (what, content) in [
        ("more than 4194304 bytes", Some(document(&"x".repeat(MAX_BYTES)).into_bytes())),
        ("not UTF-8", Some(b"rules\n\xff\nend\n".to_vec())),
        // A symlink to itself: nobody can read it, not even root, who may read without permission.
        ("cannot be read", None),
    ] {
        fs::remove_file(&path).unwrap();
        match content {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => symlink(&path, &path).unwrap(),
        }
        let status = service.reload().await;
        let rendered = status.refusal.unwrap().rendered;
        assert!(rendered.contains("rules.yaml: ") && rendered.contains(what), "{rendered}");
        assert_eq!(status.version, 1);
        assert!(status.file_stale_since.is_some());
    }
    assert_eq!(store.audit_log(99, None).await.unwrap().len(), 4, "each once");
    fs::remove_file(&path).unwrap();
    world.write("rules.yaml", &document("b"));
    let status = service.reload().await;
    assert_eq!((status.version, status.refusal, status.file_stale_since), (2, None, None));
}

#[tokio::test]
async fn without_a_version_in_force_a_bad_start_says_everything() {
    let world = World::on_request();
    let store = world.sqlite().await;
    let path = world.path("rules.yaml");
    let missing = world.try_start(&store, &path, "n").await.unwrap_err();
    assert!(matches!(missing, StartError::Missing { .. }), "{missing:?}");
    assert!(missing.to_string().contains("rules.yaml: there are no rules"), "{missing}");

    world.write("rules.yaml", "bad\nbad\n");
    let refused = world.try_start(&store, &path, "n").await.unwrap_err();
    assert!(matches!(refused, StartError::Refused(_)), "{refused:?}");
    assert_eq!(refused.to_string().lines().count(), 4, "every fault: {refused}");

    world.write("rules.yaml", &document(&"x".repeat(MAX_BYTES)));
    let large = world.try_start(&store, &path, "n").await.unwrap_err();
    assert!(large.to_string().contains("more than 4194304 bytes"), "{large}");
    assert_eq!(world.swaps(), []);
    assert_eq!(trail(&store).await, [AuditKind::Refused; 2], "refusals are kept even then");
}

#[tokio::test]
async fn with_a_version_in_force_a_bad_or_missing_file_does_not_keep_it_from_starting() {
    let world = World::on_request();
    let store = world.sqlite().await;
    world.write("rules.yaml", &document("a"));
    world.start(&store).await.shutdown().await;
    world.write("rules.yaml", "bad");
    let service = world.start(&store).await;
    assert_eq!(service.status().version, 1);
    assert!(service.status().refusal.is_some());
    service.shutdown().await;
    fs::remove_file(world.path("rules.yaml")).unwrap();
    let service = world.start(&store).await;
    assert_eq!(service.status().version, 1);
    assert!(service.status().file_stale_since.is_some());
}

#[tokio::test]
async fn polling_heals_what_no_watch_tells() {
    let world = World::polling();
    world.write("rules.yaml", &document("a"));
    let store = world.sqlite().await;
    let service = world.start(&store).await;
    for number in 2..=4 {
        world.write("rules.yaml", &document(&number.to_string()));
        until(&service, |status| status.version == number).await;
    }
}
