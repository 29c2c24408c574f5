//! From rules and stores to a handle.

use std::time::Duration;

use tempfile::TempDir;
use tidegate::rules::Options;
use tidegate::{Guarded, StartError, Tidegate, source, store};
use tidegate_core::rule::{Deployment, Source, load};
use tidegate_store::sql::sqlite;

const LIMITED: &str = "apiVersion: tidegate/v1
resources: [ { id: job } ]
limits: [ { id: l, resources: [job], token_bucket: { capacity: 1, refill: 1/h } } ]
";

async fn passes(tidegate: &Tidegate) -> bool {
    !matches!(tidegate.resource("job").call(async || Ok::<_, ()>(())).await, Err(Guarded::Blocked(_)))
}

fn number(tidegate: &Tidegate) -> u64 {
    tidegate.gates().in_force().unwrap().version.number
}

#[tokio::test]
async fn every_fault_is_given_with_line_and_column() {
    let text = "apiVersion: tidegate/v1\nresources: [ { id: job, colour: red } ]\nlimits:\n  - { id: l, resources: [jab], token_bucket: { capacity: 0, refill: 1/h } }\n";
    let refused = Tidegate::builder().rules(source::text("own.yaml", text)).start().await.unwrap_err();
    let said = refused.to_string();
    for place in ["own.yaml:2:25: ", "own.yaml:4:26: ", "own.yaml:4:58: "] {
        assert!(said.contains(place), "{place}\n{said}");
    }
    assert!(matches!(refused, StartError::Refused(refusal) if refusal.faults == 3), "{said}");
    let none = Tidegate::builder().start().await.unwrap_err();
    assert!(matches!(none, StartError::NoRules), "{none}");
}

#[tokio::test]
async fn with_effects_needs_a_store_that_can_do_it() {
    let text = "apiVersion: tidegate/v1
resources: [ { id: r, match: { path: /r }, attributes: { t: { from: header.t, missing: reject } } } ]
idempotency: [ { id: i, resources: [r], scope: [t], key: { from: header.k }, commit: with_effects } ]
";
    let refused = Tidegate::builder().rules(source::text("own.yaml", text)).start().await.unwrap_err();
    assert!(refused.to_string().contains("own.yaml:3:86: "), "{refused}");
    let directory = TempDir::new().unwrap();
    let pool = sqlite::open(&directory.path().join("service.db")).await.unwrap();
    let builder = Tidegate::builder().rules(source::text("own.yaml", text)).idempotency(store::sqlite(pool));
    builder.start().await.unwrap();
}

#[tokio::test]
async fn rules_in_code_go_through_the_same_checks() {
    let sources = [Source { name: "a".to_owned(), text: LIMITED.to_owned() }];
    let mut rules = load(&sources, &Deployment::default()).unwrap().rules;
    let tidegate = Tidegate::builder().rules(source::rule_set(&rules)).start().await.unwrap();
    assert!(passes(&tidegate).await);
    assert!(!passes(&tidegate).await);
    rules.limits[0].key = vec!["colour".to_owned()];
    let refused = Tidegate::builder().rules(source::rule_set(&rules)).start().await.unwrap_err();
    assert!(refused.to_string().starts_with("rule set:1:"), "{refused}");
}

#[tokio::test]
async fn a_rule_file_is_watched_and_a_bad_edit_changes_nothing() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, LIMITED).unwrap();
    let options = Options { watch: false, settle: Duration::from_millis(1), ..Options::default() };
    let builder = Tidegate::builder().rules(source::file(&path)).watch(options);
    let tidegate = builder.start().await.unwrap();
    assert!(passes(&tidegate).await && !passes(&tidegate).await);
    std::fs::write(&path, LIMITED.replace("capacity: 1", "capacity: 0")).unwrap();
    let status = tidegate.reload().await.unwrap();
    assert_eq!((status.version, status.refusal.unwrap().faults), (1, 1));
    assert!(!passes(&tidegate).await);
    std::fs::write(&path, LIMITED.replace("capacity: 1", "capacity: 2")).unwrap();
    assert_eq!(tidegate.reload().await.unwrap().version, 2);
    assert!(passes(&tidegate).await && !passes(&tidegate).await);
    assert!(tidegate.shutdown(Duration::from_secs(1)).await);
    assert!(tidegate.rules().is_none());
    let missing = Tidegate::builder().rules(source::file(directory.path().join("none.yaml"))).start().await;
    assert!(matches!(missing, Err(StartError::File(_))), "{missing:?}");
}

#[tokio::test]
async fn rules_in_code_are_numbered_by_the_rule_store() {
    let directory = TempDir::new().unwrap();
    let pool = sqlite::open(&directory.path().join("rules.db")).await.unwrap();
    let start = async |text: &str| {
        let builder =
            Tidegate::builder().rules(source::text("own.yaml", text)).rule_store(store::sqlite(pool.clone()));
        number(&builder.start().await.unwrap())
    };
    let other = LIMITED.replace("capacity: 1", "capacity: 2");
    assert_eq!(start(LIMITED).await, 1);
    assert_eq!(start(LIMITED).await, 1, "the same rules are the same version");
    assert_eq!(start(&other).await, 2);
    assert_eq!(start(LIMITED).await, 3);
}
