//! The rule file of a running gateway, and starts that must not succeed.

use std::fs;
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tidegate_testkit::{Connection, Gate, wait_until};

use super::gateway::{Gateway, number_of, outcome, refused_start, write_rules, write_whole};
use crate::support::runtime;

fn rules(capacity: &str) -> String {
    format!(
        "
resources:
  - {{ id: pay, match: {{ path: /pay }} }}
limits:
  - {{ id: few, resources: [pay], token_bucket: {{ capacity: {capacity}, refill: 1/h }} }}
"
    )
}

const BAD: &str = "
resources:
  - { id: pay, match: { path: /pay }, timeout: 3 }
  - { id: pay, match: { path: /pay } }
limits:
  - { id: few, resources: [nowhere], token_bucket: { capacity: 0, refill: 10 } }
  - { id: shared, resources: [pay], sharing: exact, on_store_failure: fail_open, fixed_window: { limit: 5, window: 1s } }
flags:
  - { key: f, default: sometimes, colour: red }
";

/// A place in the bad document, and a word of what is said there.
const FAULTS: [(&str, &str); 8] = [
    ("rules.yaml:4:48:", "no unit"),
    ("rules.yaml:5:11:", "two resources"),
    ("rules.yaml:7:28:", "nowhere"),
    ("rules.yaml:7:64:", "outside 1 to"),
    ("rules.yaml:7:75:", "a rate is expected"),
    ("rules.yaml:8:46:", "needs a shared store"),
    ("rules.yaml:10:24:", "sometimes"),
    ("rules.yaml:10:35:", "colour"),
];

#[test]
fn a_bad_file_and_no_version_ends_the_start_with_every_fault() {
    let dir = tidegate_testkit::temp_dir();
    write_rules(&dir, BAD);
    let (status, said) = refused_start(&dir, &["--rules", "rules.yaml"]);
    assert_eq!(status, Some(1), "{said}");
    for (place, word) in FAULTS {
        let found = said.lines().filter(|line| line.contains(place) && line.contains(word));
        assert_eq!(found.count(), 1, "{place} {word}:\n{said}");
    }
    assert!(!said.contains('\u{1b}'), "no colours where nobody sees them: {said}");
    // Mended, it starts, and its first version is number 1.
    write_rules(&dir, &rules("5"));
    let (status, said) = refused_start(&dir, &["--rules", "missing.yaml"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("missing.yaml"), "{said}");
}

#[test]
fn starts_that_cannot_succeed_say_why() {
    let dir = tidegate_testkit::temp_dir();
    write_rules(&dir, &rules("5"));
    let rules = ["--rules", "rules.yaml"];
    let with = |more: &[&str]| refused_start(&dir, &[&rules[..], more].concat());

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let keep = std::net::TcpListener::bind(&taken);
    let (status, said) = with(&["--listen", &taken]);
    drop(keep);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("in use") && said.contains("--listen"), "{said}");

    fs::write(dir.path().join("foreign.db"), vec![b'x'; 10_000]).unwrap();
    let (status, said) = with(&["--store", "sqlite:foreign.db"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("foreign.db"), "{said}");
    assert_eq!(fs::read(dir.path().join("foreign.db")).unwrap(), vec![b'x'; 10_000], "it is left alone");

    // Another program's, which its own journal mode and tables are left to.
    let other = dir.path().join("other.db");
    runtime().block_on(async {
        let options = SqliteConnectOptions::new().filename(&other).create_if_missing(true);
        let mut conn = options.connect().await.unwrap();
        sqlx::query("CREATE TABLE orders (id INTEGER)").execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
    });
    let before = fs::read(&other).unwrap();
    let (status, said) = with(&["--store", "sqlite:other.db"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("other.db: this database is another program's"), "{said}");
    assert_eq!(fs::read(&other).unwrap(), before, "it is left alone");
    assert!(!dir.path().join("other.db-wal").exists());

    fs::create_dir(dir.path().join("directory.db")).unwrap();
    let (status, said) = with(&["--store", "sqlite:directory.db"]);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("directory.db"), "{said}");

    let (status, said) = with(&["--store", "postgres:x"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("sqlite:") && said.contains("memory:"), "{said}");

    for (flag, value) in [("--trusted-hops", "many"), ("--drain", "10"), ("--listen", "nowhere")] {
        let (status, said) = with(&[flag, value]);
        assert_eq!(status, Some(1), "{flag} {value}: {said}");
        assert!(said.contains(flag), "{said}");
    }

    fs::write(dir.path().join("latin1.yaml"), b"apiVersion: tidegate/v1\nx-note: \xe9\n").unwrap();
    let (status, said) = refused_start(&dir, &["--rules", "latin1.yaml"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("latin1.yaml") && said.contains("UTF-8"), "{said}");
}

#[test]
fn a_database_of_a_newer_tidegate_is_left_alone() {
    let mut gateway = Gateway::start(&rules("5"));
    gateway
        .database()
        .run("UPDATE tidegate_schema SET version = version + 1 WHERE component = 'idempotency'");
    gateway.stop();
    let (status, said) = refused_start(gateway.dir(), &["--rules", "rules.yaml"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("newer"), "{said}");
}

#[test]
fn a_bad_edit_changes_nothing_and_is_in_the_audit_trail() {
    let gateway = Gateway::start(&rules("5"));
    assert_eq!(gateway.version(), 1);
    gateway.edit(BAD);
    for (place, word) in FAULTS {
        let what = format!("{place} {word}");
        gateway
            .program()
            .wait_line(&what, |line| (line.contains(place) && line.contains(word)).then_some(()));
    }
    let mut database = gateway.database();
    let refused =
        "SELECT count(*) FROM tidegate_audit WHERE kind = 'refused' AND detail LIKE '%rules.yaml:10:%'";
    wait_until("the refusal in the trail", || database.number(refused) == 1);
    assert_eq!(gateway.version(), 1);
    assert_eq!(gateway.get("/pay").header("ratelimit"), Some("\"few\";r=4;t=3600"));
    // What cannot even be read, and nothing at all.
    for (number, text) in [(2, "{ not: [yaml"), (3, "")] {
        // In one step: half of it would be another content, and another refusal.
        write_whole(gateway.dir(), text);
        let count = "SELECT count(*) FROM tidegate_audit WHERE kind = 'refused'";
        wait_until("the next refusal", || database.number(count) == number);
    }
    fs::remove_file(gateway.rules_path()).unwrap();
    gateway.program().wait_line("that it is gone", |line| line.contains("gone").then_some(()));
    assert_eq!(gateway.version(), 1);
    // A restart with a bad file goes on with the version of the store.
    gateway.edit(BAD);
    let gateway = gateway.restart();
    assert_eq!(gateway.version(), 1);
    gateway.edit(&rules("6"));
    gateway.wait_version(2);
    assert_eq!(gateway.get("/pay").header("ratelimit-policy"), Some("\"few\";q=6;w=21600"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it is the time that is measured")]
fn a_good_edit_is_in_force_within_a_second() {
    let gateway = Gateway::start(&rules("1"));
    let mut connection = Connection::open(gateway.addr).unwrap();
    // Again and again, until one is: the machine may be busy with other things, but not each time.
    let mut number = 1;
    wait_until("a change in force within a second", || {
        number += 1;
        gateway.edit(&rules(&number.to_string()));
        let edited = Instant::now();
        wait_until("the version", || {
            number_of(&connection.request("GET", "/x", &[], b"").unwrap()) == number
        });
        edited.elapsed() < Duration::from_secs(1)
    });
}

#[test]
fn a_restart_goes_on_from_the_last_number() {
    let gateway = Gateway::start(&rules("1"));
    gateway.edit(&rules("2"));
    gateway.wait_version(2);
    let gateway = gateway.crash_and_restart();
    assert_eq!(gateway.version(), 2, "the same content is no new version");
    // The same rules in other words are none either.
    gateway.edit(&(rules("2") + "x-note: none\n"));
    gateway.edit(&rules("3"));
    gateway.wait_version(3);
    assert_eq!(gateway.database().number("SELECT count(*) FROM tidegate_rule_versions"), 3);
    // Edited while it is down.
    let mut gateway = gateway;
    gateway.stop();
    gateway.edit(&rules("4"));
    let gateway = gateway.restart();
    assert_eq!(gateway.version(), 4);
}

#[test]
fn a_rollback_in_the_store_outlives_restarts_and_the_file_is_drift() {
    let gateway = Gateway::start(&rules("1"));
    gateway.edit(&rules("2"));
    gateway.wait_version(2);
    gateway.database().run(
        "BEGIN IMMEDIATE;
         INSERT INTO tidegate_rule_versions
         SELECT 3, randomblob(16), 2, digest, canonical, published_at, node, 'operator', 'undo', 'rollback', NULL, NULL, 1
         FROM tidegate_rule_versions WHERE number = 1;
         INSERT INTO tidegate_rule_sources SELECT 3, position, name, text FROM tidegate_rule_sources WHERE number = 1;
         COMMIT",
    );
    gateway.wait_version(3);
    let policy = |gateway: &Gateway| gateway.get("/pay").header("ratelimit-policy").unwrap().to_owned();
    assert_eq!(policy(&gateway), "\"few\";q=1;w=3600");
    let gateway = gateway.restart();
    assert_eq!((gateway.version(), policy(&gateway)), (3, "\"few\";q=1;w=3600".to_owned()));
    let drift = "SELECT count(*) FROM tidegate_audit WHERE kind = 'drift' AND version = 3";
    let mut database = gateway.database();
    wait_until("drift in the trail", || database.number(drift) >= 1);
    // A new content is a new intent of its author.
    gateway.edit(&rules("9"));
    gateway.wait_version(4);
    assert_eq!(policy(&gateway), "\"few\";q=9;w=32400");
}

#[test]
fn a_request_ends_under_the_version_that_it_began_with() {
    let flagged = |default: &str| {
        format!(
            "
resources:
  - {{ id: slow, match: {{ path: /slow }}, timeout: 4m, flags: [f] }}
  - {{ id: keyed, match: {{ path: /keyed }}, timeout: 4m, flags: [f] }}
idempotency:
  - {{ id: once, resources: [keyed], scope: [], key: {{ from: header.idempotency-key }} }}
flags:
  - {{ key: f, default: \"{default}\" }}
"
        )
    };
    let gateway = Gateway::start(&flagged("off"));
    let gate = Gate::new();
    for path in ["/slow", "/keyed"] {
        let held = gate.clone();
        gateway.origin.on(path, move |exchange| {
            if exchange.request.header("x-wait").is_some() || exchange.request.method == "POST" {
                held.wait();
            }
            exchange.respond(200, &[], b"ok")
        });
    }
    let calls: Vec<_> = ["/slow", "/keyed"].map(|target| gateway.post_later(target, "k1", "{}")).into();
    for path in ["/slow", "/keyed"] {
        gateway.origin.wait_calls(path, 1);
    }
    gateway.edit(&flagged("on"));
    gateway.wait_version(2);
    let next = gateway.get("/slow");
    assert_eq!(number_of(&next), 2);
    assert_eq!(gateway.origin.last().header("tidegate-flags"), Some("f=\"on\""));
    // Also without its resource: the version that began it is still there.
    gateway.edit("resources: []\n");
    gateway.wait_version(3);
    gate.open();
    for call in calls {
        let response = call.join().unwrap();
        assert_eq!((response.status, number_of(&response)), (200, 1), "{response:?}");
    }
    gateway.edit(&flagged("on"));
    gateway.wait_version(4);
    let replay = gateway.post("/keyed", "k1", "{}");
    assert_eq!((number_of(&replay), replay.header("idempotent-replayed")), (4, Some("true")));
}

/// Publishing under load: no answer but those of the rules, and every answer names one version whole.
#[test]
fn publishing_under_load_loses_and_mixes_nothing() {
    let doc = |number: u64| {
        let variant = if number.is_multiple_of(2) { "even" } else { "odd" };
        format!(
            "
resources:
  - {{ id: pay, match: {{ path: /pay }}, flags: [f] }}
limits:
  - {{ id: many, resources: [pay], token_bucket: {{ capacity: {}, refill: 1000/s }} }}
flags:
  - {{ key: f, variants: {{ even: 0, odd: 1 }}, default: {variant} }}
",
            100_000 + number
        )
    };
    let gateway = Gateway::start(&doc(1));
    gateway.origin.on("/pay", |exchange| {
        let flags = exchange.request.header("tidegate-flags").unwrap_or_default().to_owned();
        exchange.respond(200, &[], flags.as_bytes())
    });
    let done = Gate::new();
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (addr, done) = (gateway.addr, done.clone());
            std::thread::spawn(move || {
                let mut connection = Connection::open(addr).unwrap();
                let mut last = 0;
                loop {
                    let response = connection.request("GET", "/pay", &[], b"").unwrap();
                    assert_eq!(response.status, 200, "{response:?}");
                    let number = number_of(&response);
                    let variant = if number.is_multiple_of(2) { "f=\"even\"" } else { "f=\"odd\"" };
                    assert_eq!(response.text(), variant, "{response:?}");
                    let quota = format!("\"many\";q={};", 100_000 + number);
                    assert!(response.header("ratelimit-policy").unwrap().starts_with(&quota), "{response:?}");
                    assert!(number >= last, "{number} after {last}");
                    last = number;
                    if done.is_open() {
                        return;
                    }
                }
            })
        })
        .collect();
    for number in 2..=8 {
        gateway.edit(&doc(number));
        gateway.wait_version(number);
    }
    done.open();
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(outcome(&gateway.get("/%2F")), (400, "path-invalid".to_owned()));
}
