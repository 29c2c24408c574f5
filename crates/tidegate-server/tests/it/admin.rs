//! The administration of a real process, over real sockets.

mod audit;
mod documented;
mod explain;
mod flags;
mod guard;
mod metrics;
mod probes;
mod state;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tidegate_testkit::{Origin, Program, Response, request, temp_dir};

/// Rules with each gate in them.
const RULES: &str = r#"
apiVersion: tidegate/v1
resources:
  - id: pay
    match: { hosts: [api.example.com], methods: [POST], path: "/orders/{order}/pay" }
    attributes:
      tenant: { from: header.x-tenant, missing: reject }
      user: { from: header.x-user }
    subject: user
    flags: [new-checkout]
  - id: item
    match: { methods: [GET], path: "/items/{id}" }
    attributes: { id: { from: path.id } }
  - { id: ledger }
limits:
  - { id: pay-per-tenant, resources: [pay], key: [tenant], token_bucket: { capacity: 3, refill: 1/h } }
  - { id: per-item, resources: [item], key: [id], mode: shadow, fixed_window: { limit: 1, window: 365d } }
idempotency:
  - { id: pay-once, resources: [pay], scope: [tenant], key: { from: header.idempotency-key, required: true } }
breakers:
  - id: bank
    resources: [pay]
    key: [upstream_host]
    trip: [ { error_count: { at_least: 1 } }, { slow_ratio: { slower_than: 1h, at_least: 50% } } ]
    min_requests: 1
    open_for: 1h
    max_open: 1h
flags:
  - key: new-checkout
    default: "off"
    rules:
      - { id: acme, priority: 9, when: { tenant: { equals: acme } }, serve: "on" }
      - { id: ramp, priority: 1, percentage: 50, serve: "on" }
  - { key: "a/b", default: "on" }
  - { key: "a%2Fb", default: "off" }
  - { key: "été 😀?#", default: "on" }
"#;

/// A gateway in front of an origin, with its administration.
struct World {
    gateway: Program,
    origin: Origin,
    addr: SocketAddr,
    admin: SocketAddr,
    rules: PathBuf,
    _dir: tempfile::TempDir,
}

impl World {
    fn start() -> Self {
        Self::with(RULES, &[])
    }

    fn with(rules: &str, flags: &[&str]) -> Self {
        let dir = temp_dir();
        let path = dir.path().join("rules.yaml");
        std::fs::write(&path, rules).unwrap();
        let origin = Origin::start();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.current_dir(dir.path()).args(["gateway", "--rules", "rules.yaml"]);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &origin.url()]);
        let gateway = Program::start(command.args(flags));
        let addr = gateway.wait_address("listening on http://");
        let admin = gateway.wait_address("admin on http://");
        Self { gateway, origin, addr, admin, rules: path, _dir: dir }
    }

    /// Renames a new rule file over the old one: a look that found half of it would be refused, and told.
    fn edit(&self, text: &str) {
        let whole = self.rules.with_extension("new");
        std::fs::write(&whole, text).unwrap();
        std::fs::rename(whole, &self.rules).unwrap();
    }

    /// A document of the administration.
    fn get(&self, path: &str) -> Value {
        let response = self.ask("GET", path, &[], b"");
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        json(&response)
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        request(self.admin, method, path, headers, body)
    }

    fn pay(&self, tenant: &str, key: &str) -> Response {
        let headers = [("host", "api.example.com"), ("x-tenant", tenant), ("idempotency-key", key)];
        request(self.addr, "POST", "/orders/7/pay", &headers, b"{}")
    }
}

fn json(response: &Response) -> Value {
    let parsed = serde_json::from_slice(&response.body);
    assert!(parsed.is_ok(), "no JSON: {}", response.text());
    parsed.unwrap()
}

/// Holds an answer against the schema that the administration's own document has for it.
fn check_schema(world: &World, path: &str, method: &str, answer: &Response) {
    let mut document = world.get("/openapi.json");
    let described = &document["paths"][path][method]["responses"][answer.status.to_string()];
    let (media, content) =
        described["content"].as_object().and_then(|content| content.iter().next()).unwrap();
    let sent = answer.header("content-type").unwrap();
    assert!(sent.starts_with(media.as_str()), "{method} {path}: {sent} instead of {media}");
    if !media.ends_with("json") {
        return;
    }
    let mut schema = content["schema"].clone();
    schema["components"] = document["components"].take();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let answer = json(answer);
    let faults: Vec<_> = validator.iter_errors(&answer).map(|fault| fault.to_string()).collect();
    assert!(faults.is_empty(), "{method} {path}: {faults:?}\n{answer:#}");
}
