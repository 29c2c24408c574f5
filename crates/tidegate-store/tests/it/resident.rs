//! The resident memory of a key flood, measured in a child process that does nothing else.

use std::process::Command;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_core::rule::model::{AfterStoreLoss, Algorithm, Cost, Limit, Mode, Rate, Resources, Sharing};
use tidegate_store::memory::limits::{Ask, LimitVersion, LocalLimits, LocalLimitsConfig};

/// Set for the child.
const CHILD: &str = "TIDEGATE_TEST_RESIDENT_CHILD";
const KEYS: u64 = 1_000_000;
/// What the documentation promises for a token bucket while keys only come, 28.5, and an eighth for all else.
const BYTES_PER_KEY: u64 = 32;
const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

#[test]
fn l13_a_million_keys_stay_within_the_stated_memory() {
    if std::env::var_os(CHILD).is_some() {
        flood();
        return;
    }
    let this = std::env::current_exe().unwrap();
    let test = "resident::l13_a_million_keys_stay_within_the_stated_memory";
    let mut child = Command::new(this);
    // Blocks of this size and more go back to the system when they are freed. By default glibc learns to keep
    // some, up to 5 bytes for each key, and how many is a matter of chance.
    child.env("MALLOC_MMAP_THRESHOLD_", "65536");
    let child = child.args(["--exact", test, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{said}");
    assert!(said.contains("bytes per key"), "the child measured nothing: {said}");
}

fn flood() {
    let algorithm =
        Algorithm::TokenBucket { capacity: 3, refill: Rate { count: 1, per: Duration::from_hours(1) } };
    let limit = Limit {
        id: "flood".to_owned(),
        description: None,
        owner: None,
        mode: Mode::Enforce,
        resources: Resources::All,
        key: vec!["user".to_owned()],
        algorithm,
        cost: Cost::Fixed(1),
        overrides: Vec::new(),
        sharing: Sharing::Local,
        on_store_failure: None,
        after_store_loss: AfterStoreLoss::Fresh,
    };
    let config = LocalLimitsConfig { max_keys: KEYS as usize, ..LocalLimitsConfig::default() };
    let limits = LocalLimits::new(config);
    let version = limits.apply(&[limit]);
    let before = resident();
    assert!(before > 0, "this system has no RssAnon in /proc/self/status");
    // Each key spends all it has, so that none may be forgotten.
    for n in 0..KEYS {
        assert!(decide(&version, n, 3) || version.overflowed(0) > 0);
    }
    let full = resident() - before;
    println!("{} bytes per key", full / KEYS);
    assert!(full / KEYS <= BYTES_PER_KEY, "{full} bytes");
    assert!(version.keys(0) as u64 > KEYS * 95 / 100, "{}", version.keys(0));

    // A quarter as many again: they share one counter, and nothing grows but what little was still free.
    for n in KEYS..KEYS + KEYS / 4 {
        decide(&version, n, 3);
    }
    let flooded = resident() - before;
    assert!(flooded / KEYS <= BYTES_PER_KEY, "{flooded} bytes after the flood");
    assert!(version.keys(0) as u64 <= KEYS + 256);
    assert!(version.overflowed(0) >= KEYS / 4 - 256);
    // None of those that had spent all is let in again.
    let again = (0..KEYS).step_by(1000).filter(|n| decide(&version, *n, 1)).count();
    assert_eq!(again, 0);

    // Three hours and a little later all are full again, and the memory is given back.
    let dropped = limits.sweep(NOW + Duration::from_hours(4));
    assert_eq!((dropped > 0, version.keys(0)), (true, 0));
}

fn decide(version: &LimitVersion, user: u64, cost: u64) -> bool {
    let key = user.to_be_bytes();
    version.decide(&[Ask { rule: 0, variant: 0, key: &key, cost }], NOW).admitted
}

/// Resident bytes of this process that are no file's: the pages of the program itself come and go with what
/// else the machine does. 0 when unreadable.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}
