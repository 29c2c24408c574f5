//! `tidegate idempotency`, on a database that a real gateway writes to.

use serde_json::{Value, json};
use tidegate_store::rules::{AuditKind, RuleStore as _};
use tidegate_store::sql::sqlite::{self, SqliteRules};
use tidegate_testkit::{Gate, Origin, Program, Response, request, wait_for};

use super::{Ran, Shell};
use crate::support::runtime;

const ID: &str = "--operation charge --scope /acme --key k1";

/// A gateway with a database in a directory of its own, in front of an origin.
struct World {
    shell: Shell,
    origin: Origin,
    gateway: Program,
    addr: std::net::SocketAddr,
}

impl World {
    fn start(lease: &str) -> Self {
        let shell = Shell::new();
        let rules = format!(
            "apiVersion: tidegate/v1
resources:
  - id: pay
    match: {{ path: /pay }}
    timeout: 4m
    attributes: {{ tenant: {{ from: header.x-tenant, missing: reject }} }}
idempotency:
  - id: pay-once
    resources: [pay]
    operation: charge
    scope: [tenant]
    key: {{ from: header.idempotency-key, required: true }}
    lease: {lease}
"
        );
        shell.write("rules.yaml", rules);
        let origin = Origin::start();
        let mut command =
            shell.command("gateway --rules rules.yaml --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream");
        let gateway = Program::start(command.arg(origin.url()));
        let addr = gateway.wait_address("listening on http://");
        Self { shell, origin, gateway, addr }
    }

    fn pay(&self) -> Response {
        request(self.addr, "POST", "/pay", &[("X-Tenant", "acme"), ("Idempotency-Key", "k1")], b"amount=10")
    }

    /// Makes a record whose outcome is not known: the origin says 500.
    fn lose_an_outcome(&self) {
        self.origin.on("/pay", |exchange| exchange.respond(500, &[], b"who knows"));
        assert_eq!(self.pay().status, 500);
    }

    /// Runs a command once the lease of the silent attempt is over.
    fn once_silent(&self, line: &str, more: &[&str]) -> Ran {
        wait_for("the end of the lease", || {
            let ran = self.shell.run_with(line, more, "");
            (!ran.err.contains("an attempt holds the record")).then_some(ran)
        })
    }

    fn show(&self) -> Value {
        self.shell.run(&format!("idempotency show --json {ID}")).code(0).json()
    }

    /// The trail's entries about records, oldest first: kind, who and detail.
    fn trail(&self) -> Vec<(AuditKind, String, String)> {
        let path = self.shell.path().join("tidegate.db");
        runtime().block_on(async {
            let rules = SqliteRules::new(sqlite::open(&path).await.unwrap()).await.unwrap();
            let mut entries = rules.audit_log(100, None).await.unwrap();
            entries.reverse();
            let about = [AuditKind::IdempotencyResolved, AuditKind::IdempotencyReleased];
            let kept =
                entries.into_iter().map(|entry| entry.entry).filter(|entry| about.contains(&entry.kind));
            kept.map(|entry| (entry.kind, entry.who, entry.detail)).collect()
        })
    }
}

#[test]
fn a_finished_record_is_shown_without_its_body() {
    let world = World::start("5m");
    world.origin.on("/pay", |exchange| {
        exchange.respond(
            201,
            &[("Content-Type", "text/plain"), ("ETag", "\"1\""), ("Set-Cookie", "s=1")],
            b"the secret body",
        )
    });
    assert_eq!(world.pay().status, 201);
    let ran = world.shell.run(&format!("idempotency show {ID}")).code(0);
    for line in [
        "operation         charge\n",
        "scope             /acme\n",
        "key               k1\n",
        "state             SUCCEEDED\n",
        "token             1\n",
        "attempts          1\n",
        "commit            after_response\n",
        "on unknown        hold\n",
        "retention         1d\n",
        "fingerprint       method, path, body\n",
        "rules version     1\n",
        "status            201\n",
        "headers           content-type: text/plain\nheaders           etag: \"1\"\n",
        "body bytes        15\n",
    ] {
        assert!(ran.out.contains(line), "no {line:?} in\n{}", ran.out);
    }
    assert!(!ran.out.contains("secret") && !ran.out.contains("lease left"), "{}", ran.out);
    let shown = world.show();
    assert_eq!(shown["headers"], json!([["content-type", "text/plain"], ["etag", "\"1\""]]));
    assert_eq!((&shown["status"], &shown.get("body")), (&json!(201), &None));
    assert_eq!(shown["owner"].as_str().unwrap().len(), 32);
    // The body only when it is asked for.
    let ran = world.shell.run(&format!("idempotency show --body {ID}")).code(0);
    assert!(ran.out.ends_with("\n\nthe secret body"), "{}", ran.out);
    let ran = world.shell.run(&format!("idempotency show --body --json {ID}")).code(0);
    assert_eq!(ran.json()["body"], "the secret body");
    // What is finished is settled: nobody can say otherwise.
    for line in ["resolve --as not-applied", "release", "release --force"] {
        let ran = world.shell.run(&format!("idempotency {line} {ID}")).code(3);
        ran.prints("").says(&["the record is SUCCEEDED"]);
    }
    assert_eq!(world.trail(), []);
    assert!(world.pay().header("idempotent-replayed").is_some());
}

#[test]
fn a_record_of_unknown_outcome_is_resolved_as_happened() {
    let world = World::start("1s");
    world.lose_an_outcome();
    let shown = world.show();
    assert_eq!((&shown["state"], &shown["token"]), (&json!("PROCESSING"), &json!(1)));
    let line = format!("idempotency resolve {ID} --as happened --status 201 --token 1 --by ann");
    // What is said of another token than the record's is said of something else.
    world
        .shell
        .run(&format!("idempotency resolve {ID} --as not-applied --token 2"))
        .code(3)
        .says(&["has token 1 by now, not 2"]);
    world.shell.write("body.json", r#"{"payment":7}"#);
    let more =
        ["--reason", "seen at the bank", "--header", "Content-Type: application/json", "--body", "body.json"];
    let ran = world.once_silent(&line, &more).code(0);
    ran.prints(
        "operation \"charge\", scope \"/acme\", key \"k1\": resolved as happened with status 201; retries replay this result\n",
    );
    let replay = world.pay();
    assert_eq!((replay.status, replay.text().as_str()), (201, r#"{"payment":7}"#));
    assert_eq!(replay.header("content-type"), Some("application/json"));
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    assert_eq!(world.origin.calls("/pay"), 1);
    // A second word comes too late.
    world.shell.run(&line).code(3).says(&["has token 2 by now, not 1"]);
    let [(kind, who, detail)] = world.trail().try_into().unwrap();
    assert_eq!((kind, who.as_str()), (AuditKind::IdempotencyResolved, "ann"));
    for part in [
        "operation \"charge\", scope \"/acme\", key \"k1\"",
        "happened with status 201",
        "silent, token 1, owner ",
        "reason: seen at the bank",
    ] {
        assert!(detail.contains(part), "no {part:?} in {detail}");
    }
}

#[test]
fn a_record_of_unknown_outcome_is_resolved_as_not_applied_and_runs_again() {
    let world = World::start("1s");
    world.lose_an_outcome();
    let ran = world.once_silent(&format!("idempotency resolve {ID} --as not-applied --json"), &[]).code(0);
    assert_eq!(
        ran.json(),
        json!({ "operation": "charge", "scope": "/acme", "key": "k1", "done": "idempotency_resolved", "state": "RELEASED" })
    );
    world.origin.on("/pay", |exchange| exchange.respond(201, &[], b"paid"));
    let again = world.pay();
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, None));
    let shown = world.show();
    assert_eq!(
        (&shown["state"], &shown["token"], &shown["attempts"]),
        (&json!("SUCCEEDED"), &json!(3), &json!(2))
    );
    let [(kind, who, detail)] = world.trail().try_into().unwrap();
    assert_eq!(kind, AuditKind::IdempotencyResolved);
    assert!(!who.is_empty() && detail.ends_with("reason: none given"), "{who}: {detail}");
}

#[test]
fn a_live_lease_is_released_only_by_force() {
    let mut world = World::start("5m");
    let gate = Gate::new();
    let held = gate.clone();
    world.origin.on("/pay", move |exchange| {
        held.wait();
        exchange.respond(201, &[], b"late")
    });
    let addr = world.addr;
    let client = std::thread::spawn(move || {
        request(addr, "POST", "/pay", &[("X-Tenant", "acme"), ("Idempotency-Key", "k1")], b"amount=10")
    });
    world.origin.wait_calls("/pay", 1);
    let left = world.show()["lease_left"].as_str().unwrap().to_owned();
    assert!(left.starts_with("4m") || left == "5m", "{left}");
    for line in ["release", "resolve --as not-applied", "resolve --as happened --status 201"] {
        let ran = world.shell.run(&format!("idempotency {line} {ID}")).code(1).prints("");
        ran.says(&["an attempt holds the record for another ", "release --force"]);
    }
    assert_eq!(world.trail(), []);
    let ran = world.shell.run(&format!("idempotency release --force {ID} --by ann")).code(0);
    ran.prints("operation \"charge\", scope \"/acme\", key \"k1\": released by force; the next call with this key executes\n");
    let [(kind, _, detail)] = world.trail().try_into().unwrap();
    assert_eq!(kind, AuditKind::IdempotencyReleased);
    assert!(detail.contains("released by force; it was PROCESSING and held, token 1"), "{detail}");
    // The attempt that was shut out completes nothing: the record stays released.
    gate.open();
    client.join().unwrap();
    assert_eq!(world.show()["state"], "RELEASED");
    world.gateway.terminate();
    assert!(world.gateway.wait_exit().success());
    // Once the gateway is gone its database can be looked at all the same.
    assert_eq!(world.show()["token"], 2);
}

#[test]
fn a_record_that_is_not_there_is_told_with_what_is_near() {
    let world = World::start("5m");
    world.origin.on("/pay", |exchange| exchange.respond(201, &[], b""));
    world.pay();
    for (id, says) in [
        ("--operation charge --scope acme --key k1", "there is one with --scope '/acme'"),
        ("--operation charge --scope /acme --key \"k1\"", "there is one with the key k1, without quotes"),
        (
            "--operation refund --scope /acme --key k1",
            "there is no record with operation \"refund\", scope \"/acme\", key \"k1\"",
        ),
    ] {
        for command in ["show", "release", "resolve --as not-applied"] {
            world.shell.run(&format!("idempotency {command} {id}")).code(1).prints("").says(&[says]);
        }
    }
}

#[test]
fn a_database_that_cannot_be_used_is_said_so_and_stays_as_it_is() {
    let shell = Shell::new();
    let id = "--operation charge --key k1";
    shell.write("text.db", "this is no database, and long enough to have a header of one hundred bytes, which SQLite wants to see");
    let foreign = shell.path().join("foreign.db");
    let newer = shell.path().join("newer.db");
    runtime().block_on(async {
        let pool =
            sqlx::SqlitePool::connect(&format!("sqlite:{}?mode=rwc", foreign.display())).await.unwrap();
        sqlx::query("CREATE TABLE theirs (a)").execute(&pool).await.unwrap();
        pool.close().await;
        let pool = sqlite::open(&newer).await.unwrap();
        SqliteRules::new(pool.clone()).await.unwrap();
        sqlx::query("INSERT INTO tidegate_schema VALUES ('idempotency', 99)").execute(&pool).await.unwrap();
        pool.close().await;
    });
    let before = std::fs::read(&foreign).unwrap();
    for (store, code, says) in [
        ("sqlite:nofile.db", 4, "nofile.db: there is no such database"),
        ("sqlite:text.db", 1, "text.db: is not a SQLite database"),
        ("sqlite:foreign.db", 1, "foreign.db: this database holds nothing of Tidegate's"),
        ("sqlite:newer.db", 1, "newer.db: "),
        ("sqlite:.", 4, ".: "),
    ] {
        for command in ["show", "release", "resolve --as not-applied"] {
            shell
                .run(&format!("idempotency {command} {id} --store {store}"))
                .code(code)
                .prints("")
                .says(&[says]);
        }
    }
    // The default, and the variable that the gateway takes, too.
    shell.run(&format!("idempotency show {id}")).code(4).says(&["tidegate.db: there is no such database"]);
    for (value, code, says) in [
        ("sqlite:other.db", 4, "other.db: there is no such database"),
        ("", 4, "tidegate.db: there is no such database"),
        ("memory:", 2, "TIDEGATE_STORE: what a gateway keeps in memory"),
        ("other.db", 2, "TIDEGATE_STORE: write sqlite:PATH"),
    ] {
        let mut command = shell.command(&format!("idempotency show {id}"));
        let ran = command.env("TIDEGATE_STORE", value).output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.code() == Some(code) && err.starts_with(says), "{value:?}: {err}");
    }
    // Then the configuration that the gateway would read here, or the one that is named.
    shell.write("tidegate.yaml", "store: sqlite:configured.db\n");
    shell.run(&format!("idempotency show {id}")).code(4).says(&["configured.db: there is no such database"]);
    shell.write("memory.yaml", "store: \"memory:\"\n");
    let in_memory = ["the configuration says `store: memory:`"];
    shell.run(&format!("idempotency show {id} --config memory.yaml")).code(1).says(&in_memory);
    shell.write("bad.yaml", "stores: x\n");
    shell
        .run(&format!("idempotency show {id} --config bad.yaml"))
        .code(1)
        .says(&["bad.yaml:1:1: unknown field"]);
    shell.run(&format!("idempotency show {id} --config bad.yaml --store sqlite:nofile.db")).code(4);
    assert!(!shell.path().join("nofile.db").exists() && !shell.path().join("tidegate.db").exists());
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
}
