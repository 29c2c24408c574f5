//! Rule versions: the same assertions on memory and SQLite.

mod conformance;
mod sqlite;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Timestamp;
use tidegate_store::memory::rules::MemoryRules;
use tidegate_store::rules::{Origin, Publish, PublishId, RuleStore, SourceText};
use tidegate_store::sql::sqlite::{SqliteRules, open};

/// An empty store in memory whose clock steps by a second each time it is read.
fn memory() -> Arc<dyn RuleStore> {
    let seconds = AtomicU64::new(1_700_000_000);
    Arc::new(MemoryRules::new(move || Timestamp::from_secs(seconds.fetch_add(1, Ordering::Relaxed))))
}

/// The store in this database file, through a pool of its own, as another process would have it.
async fn sqlite(path: &Path) -> SqliteRules {
    SqliteRules::new(open(path).await.unwrap()).await.unwrap()
}

/// A publish of the rules `text` over the version `expected`.
fn publish(id: u128, expected: Option<u64>, text: &str) -> Publish {
    Publish {
        id: PublishId(id.to_be_bytes()),
        expected,
        digest: digest(text),
        canonical: text.to_owned(),
        source: vec![
            SourceText { name: "a.yaml".to_owned(), text: format!("# a\n{text}") },
            SourceText { name: "b.yaml".to_owned(), text: String::new() },
        ],
        node: "node-1".to_owned(),
        author: "ann".to_owned(),
        reason: "because".to_owned(),
        origin: Origin::Request,
    }
}

/// Not SHA-256: stores do not look into a digest.
fn digest(text: &str) -> [u8; 32] {
    let mut digest = [0; 32];
    for (at, byte) in text.bytes().enumerate() {
        digest[at % 32] ^= byte.wrapping_add(u8::try_from(at % 251).unwrap());
    }
    digest
}
