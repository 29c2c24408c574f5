//! What every rule store does.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_store::rules::{
    AuditKind, FileNote, FileState, MAX_DETAIL, MAX_DOCUMENT, MAX_NOTE, NewAuditEntry, Origin, Publish,
    PublishError, PublishId, RuleStore,
};
use tokio::sync::Barrier;

use super::{digest, memory, publish, sqlite};

/// Runs one assertion on a fresh store of each backend.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(vec![super::memory()]).await;
            })*
        }
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("tidegate.db");
                // Two pools on one file: what two processes would see.
                let first = std::sync::Arc::new(super::sqlite(&path).await);
                let second = std::sync::Arc::new(super::sqlite(&path).await);
                super::$name(vec![first, second]).await;
            })*
        }
    };
}

/// The same store, seen by one or more instances.
type Instances = Vec<Arc<dyn RuleStore>>;

on_every_store! {
    an_empty_store_has_nothing,
    a_version_reads_back_whole,
    numbers_grow_by_one_and_parents_chain,
    r10_an_older_view_never_replaces_a_newer_version,
    a_repeated_publish_recognises_itself,
    a_publish_id_is_for_one_set_of_rules,
    a_rollback_is_a_new_version,
    sixteen_publishers_race_and_one_wins_each_number,
    a_publish_from_a_file_remembers_its_content,
    a_refusal_is_in_the_trail_once,
    the_memory_of_a_file_is_kept_per_node_and_path,
    the_trail_is_paged_newest_first,
    a_long_detail_is_cut,
    what_is_too_large_is_refused_and_leaves_nothing,
}

async fn an_empty_store_has_nothing(stores: Instances) {
    let store = &stores[0];
    assert_eq!(store.latest_number().await.unwrap(), None);
    assert_eq!(store.latest().await.unwrap(), None);
    assert_eq!(store.get(0).await.unwrap(), None);
    assert_eq!(store.get(u64::MAX).await.unwrap(), None);
    assert_eq!(store.history(10).await.unwrap(), []);
    assert_eq!(store.audit_log(10, None).await.unwrap(), []);
    assert_eq!(store.file_state("node-1", "/rules.yaml").await.unwrap(), FileState::default());
}

async fn a_version_reads_back_whole(stores: Instances) {
    let request = publish(1, None, "rules: 1 \u{1F600} \0 '");
    let published = stores[0].publish(request.clone()).await.unwrap();
    assert_eq!(published.number, 1);
    assert_eq!(published.parent, None);
    assert_eq!(published.digest, request.digest);
    assert_eq!(published.canonical, request.canonical);
    assert_eq!(published.source, request.source);
    assert_eq!(published.author, "ann");
    assert_eq!(published.reason, "because");
    assert_eq!(published.origin, Origin::Request);
    assert!(published.published_at > Timestamp::from_secs(1_600_000_000), "{:?}", published.published_at);
    for store in &stores {
        assert_eq!(store.latest_number().await.unwrap(), Some(1));
        assert_eq!(store.latest().await.unwrap().as_ref(), Some(&published));
        assert_eq!(store.get(1).await.unwrap().as_ref(), Some(&published));
        assert_eq!(store.get(2).await.unwrap(), None);
        assert_eq!(store.history(10).await.unwrap(), [published.head()]);
        let trail = store.audit_log(10, None).await.unwrap();
        assert_eq!(trail.len(), 1);
        let entry = &trail[0].entry;
        assert_eq!(
            (entry.kind, entry.version, entry.digest),
            (AuditKind::Published, Some(1), Some(request.digest))
        );
        assert_eq!(
            (entry.node.as_str(), entry.who.as_str(), entry.detail.as_str()),
            ("node-1", "ann", "because")
        );
    }
}

async fn numbers_grow_by_one_and_parents_chain(stores: Instances) {
    for number in 1..=5_u64 {
        let store = &stores[usize::try_from(number).unwrap() % stores.len()];
        let parent = (number > 1).then(|| number - 1);
        let version = store.publish(publish(u128::from(number), parent, &number.to_string())).await.unwrap();
        assert_eq!((version.number, version.parent), (number, parent));
    }
    assert_history(&*stores[0], 5).await;
    let newest = stores[0].history(2).await.unwrap();
    assert_eq!(newest.iter().map(|head| head.number).collect::<Vec<_>>(), [5, 4]);
}

/// Numbers 1 to `count` without a gap, each with its parent, its texts and one audit entry.
pub(super) async fn assert_history(store: &dyn RuleStore, count: u64) {
    let history = store.history(1000).await.unwrap();
    let numbers: Vec<u64> = history.iter().rev().map(|head| head.number).collect();
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
    for head in &history {
        assert_eq!(head.parent, (head.number > 1).then(|| head.number - 1));
        let version = store.get(head.number).await.unwrap().unwrap();
        assert_eq!(version.head(), *head);
        assert_eq!(version.source.len(), 2, "version {}", head.number);
        assert_eq!(version.digest, digest(&version.canonical));
    }
    let trail = store.audit_log(1000, None).await.unwrap();
    let published = trail.iter().rev().filter(|entry| entry.entry.kind == AuditKind::Published);
    assert_eq!(published.filter_map(|entry| entry.entry.version).collect::<Vec<_>>(), numbers);
}

async fn r10_an_older_view_never_replaces_a_newer_version(stores: Instances) {
    let store = &stores[0];
    store.publish(publish(1, None, "one")).await.unwrap();
    let two = store.publish(publish(2, Some(1), "two")).await.unwrap();
    for (expected, id) in [(None, 3), (Some(1), 4), (Some(3), 5), (Some(u64::MAX), 6)] {
        let error = store.publish(publish(id, expected, "older")).await.unwrap_err();
        let PublishError::Conflict { latest, .. } = &error else { panic!("{error}") };
        assert_eq!(*latest, Some(2));
        assert!(error.to_string().starts_with("the newest version is 2, and not "), "{error}");
    }
    for store in &stores {
        assert_eq!(store.latest().await.unwrap().as_ref(), Some(&two));
    }
    assert_history(&**store, 2).await;
}

async fn a_repeated_publish_recognises_itself(stores: Instances) {
    let first = stores[0].publish(publish(7, None, "one")).await.unwrap();
    let last = stores.last().unwrap();
    assert_eq!(last.publish(publish(7, None, "one")).await.unwrap(), first);
    // Also when others have published since.
    last.publish(publish(8, Some(1), "two")).await.unwrap();
    assert_eq!(stores[0].publish(publish(7, None, "one")).await.unwrap(), first);
    assert_history(&*stores[0], 2).await;
}

async fn a_publish_id_is_for_one_set_of_rules(stores: Instances) {
    stores[0].publish(publish(7, None, "one")).await.unwrap();
    let error = stores[0].publish(publish(7, Some(1), "two")).await.unwrap_err();
    assert!(matches!(error, PublishError::IdReused { number: 1 }), "{error}");
    assert_history(&*stores[0], 1).await;
}

async fn a_rollback_is_a_new_version(stores: Instances) {
    let store = &stores[0];
    let one = store.publish(publish(1, None, "one")).await.unwrap();
    store.publish(publish(2, Some(1), "two")).await.unwrap();
    let back = Publish::rollback(PublishId([3; 16]), Some(2), &one, "node-2", "bob", "too many errors");
    let three = store.publish(back).await.unwrap();
    assert_eq!((three.number, three.parent, &three.origin), (3, Some(2), &Origin::Rollback { of: 1 }));
    assert_eq!((three.digest, &three.canonical, &three.source), (one.digest, &one.canonical, &one.source));
    assert_eq!(store.get(1).await.unwrap().as_ref(), Some(&one), "nothing is edited in place");
    assert_eq!(store.latest().await.unwrap().as_ref(), Some(&three));
    let newest = &store.audit_log(1, None).await.unwrap()[0].entry;
    assert_eq!((newest.kind, newest.version, newest.who.as_str()), (AuditKind::RolledBack, Some(3), "bob"));
    assert_eq!(newest.detail, "to the rules of version 1: too many errors");
}

async fn sixteen_publishers_race_and_one_wins_each_number(stores: Instances) {
    const PUBLISHERS: u64 = 16;
    const EACH: u64 = 3;
    let start = Arc::new(Barrier::new(usize::try_from(PUBLISHERS).unwrap()));
    let mut racing = tokio::task::JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let store = Arc::clone(&stores[usize::try_from(publisher).unwrap() % stores.len()]);
        let start = Arc::clone(&start);
        racing.spawn(async move {
            let mut won = Vec::new();
            start.wait().await;
            // All see the empty store first, so exactly one of sixteen gets number 1.
            let mut seen = None;
            while won.len() < usize::try_from(EACH).unwrap() {
                let round = u64::try_from(won.len()).unwrap();
                let id = u128::from(publisher * 100 + round + 1);
                match store.publish(publish(id, seen, &format!("{publisher}/{round}"))).await {
                    Ok(version) => {
                        assert_eq!(version.parent, seen);
                        won.push(version.number);
                        seen = Some(version.number);
                    }
                    Err(PublishError::Conflict { expected, latest }) => {
                        assert_eq!(expected, seen);
                        assert!(latest > seen, "{latest:?} came after {seen:?}");
                        seen = latest;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            won
        });
    }
    let won: Vec<u64> = racing.join_all().await.into_iter().flatten().collect();
    let distinct: BTreeSet<u64> = won.iter().copied().collect();
    assert_eq!(won.len(), distinct.len(), "a number was given twice");
    assert_eq!(distinct, (1..=PUBLISHERS * EACH).collect());
    assert_history(&*stores[0], PUBLISHERS * EACH).await;
}

async fn a_publish_from_a_file_remembers_its_content(stores: Instances) {
    let store = &stores[0];
    let file = |content| Origin::File { node: "n".to_owned(), path: "/r.yaml".to_owned(), content };
    let from_file = Publish { origin: file([9; 32]), ..publish(1, None, "one") };
    let version = store.publish(from_file).await.unwrap();
    assert_eq!(version.origin, file([9; 32]));
    let remembered = FileState { accepted: Some([9; 32]), ..FileState::default() };
    assert_eq!(stores.last().unwrap().file_state("n", "/r.yaml").await.unwrap(), remembered);
    // A publish that lost the race remembers nothing.
    let late = Publish { origin: file([8; 32]), ..publish(2, None, "two") };
    assert!(matches!(store.publish(late).await, Err(PublishError::Conflict { .. })));
    assert_eq!(store.file_state("n", "/r.yaml").await.unwrap(), remembered);
    // A publish by other means does not touch the memory of the file.
    store.publish(publish(3, Some(1), "three")).await.unwrap();
    assert_eq!(store.file_state("n", "/r.yaml").await.unwrap(), remembered);
    assert_eq!(store.audit_log(9, None).await.unwrap().len(), 2);
}

fn entry(kind: AuditKind, detail: &str) -> NewAuditEntry {
    NewAuditEntry {
        node: "n".to_owned(),
        kind,
        version: None,
        digest: None,
        who: "n".to_owned(),
        detail: detail.to_owned(),
    }
}

async fn a_refusal_is_in_the_trail_once(stores: Instances) {
    use AuditKind::{Drift, Refused, Unchanged};
    for (note, kind, news) in [
        (FileNote::Refused([1; 32]), Refused, true),
        (FileNote::Refused([1; 32]), Refused, false),
        (FileNote::Refused([2; 32]), Refused, true),
        (FileNote::Accepted([3; 32]), Unchanged, true),
        (FileNote::Accepted([3; 32]), Unchanged, false),
        (FileNote::Refused([2; 32]), Refused, true),
        (FileNote::Drift(4), Drift, true),
        (FileNote::Drift(4), Drift, false),
        (FileNote::Drift(5), Drift, true),
    ] {
        for (at, store) in stores.iter().enumerate() {
            let told = store.note_file("n", "/r.yaml", note, entry(kind, "why")).await.unwrap();
            assert_eq!(told, news && at == 0, "{note:?} told to instance {at}");
        }
    }
    let state = FileState { accepted: Some([3; 32]), refused: Some([2; 32]), drift: Some(5) };
    assert_eq!(stores[0].file_state("n", "/r.yaml").await.unwrap(), state);
    let kinds: Vec<AuditKind> = stores[0]
        .audit_log(99, None)
        .await
        .unwrap()
        .into_iter()
        .rev()
        .map(|entry| entry.entry.kind)
        .collect();
    assert_eq!(kinds, [Refused, Refused, Unchanged, Refused, Drift, Drift]);
}

async fn the_memory_of_a_file_is_kept_per_node_and_path(stores: Instances) {
    let store = &stores[0];
    for (node, path, content) in
        [("a", "/x", 1), ("a", "/y", 2), ("b", "/x", 3), ("A", "/x", 4), ("a", "/x ", 5)]
    {
        let note = FileNote::Accepted([content; 32]);
        assert!(store.note_file(node, path, note, entry(AuditKind::Unchanged, "")).await.unwrap());
    }
    assert_eq!(store.file_state("a", "/x").await.unwrap().accepted, Some([1; 32]));
    assert_eq!(store.file_state("b", "/x").await.unwrap().accepted, Some([3; 32]));
    assert_eq!(store.file_state("b", "/y").await.unwrap().accepted, None);
}

async fn the_trail_is_paged_newest_first(stores: Instances) {
    for at in 0..7 {
        stores[at % stores.len()].audit(entry(AuditKind::Refused, &at.to_string())).await.unwrap();
    }
    let mut details = Vec::new();
    let mut before = None;
    loop {
        let page = stores[0].audit_log(3, before).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        assert!(page.windows(2).all(|pair| pair[0].id > pair[1].id));
        details.extend(page.into_iter().map(|entry| entry.entry.detail));
    }
    assert_eq!(details, ["6", "5", "4", "3", "2", "1", "0"]);
    assert_eq!(stores[0].audit_log(0, None).await.unwrap(), []);
}

async fn a_long_detail_is_cut(stores: Instances) {
    let faults = "rules.yaml:1:1: no\n".repeat(MAX_DETAIL);
    stores[0].audit(entry(AuditKind::Refused, &faults)).await.unwrap();
    let kept = stores[0].audit_log(1, None).await.unwrap().remove(0).entry.detail;
    assert!(kept.len() <= MAX_DETAIL && kept.len() > MAX_DETAIL - 100, "{}", kept.len());
    assert!(kept.ends_with(" more bytes are left out)"), "{:?}", &kept[kept.len() - 60..]);
}

async fn what_is_too_large_is_refused_and_leaves_nothing(stores: Instances) {
    let small = publish(1, None, "one");
    for (what, large) in [
        ("the rules", Publish { canonical: " ".repeat(MAX_DOCUMENT + 1), ..small.clone() }),
        ("the author", Publish { author: " ".repeat(MAX_NOTE + 1), ..small.clone() }),
        ("the reason", Publish { reason: " ".repeat(MAX_NOTE + 1), ..small.clone() }),
        ("the node", Publish { node: " ".repeat(MAX_NOTE + 1), ..small.clone() }),
    ] {
        let error = stores[0].publish(large).await.unwrap_err();
        assert!(error.to_string().starts_with(what), "{error}");
    }
    assert_eq!(stores[0].latest_number().await.unwrap(), None);
    assert_eq!(stores[0].audit_log(9, None).await.unwrap(), []);
    stores[0].publish(small).await.unwrap();
}
