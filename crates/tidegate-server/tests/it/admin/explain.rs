//! What would become of a request, asked of a real gateway.

use serde_json::{Value, json};
use tidegate_testkit::Response;

use super::{World, check_schema};

const JSON: (&str, &str) = ("content-type", "application/json");

fn ask(world: &World, question: &Value) -> Response {
    world.ask("POST", "/v1/explain", &[JSON], question.to_string().as_bytes())
}

fn explained(world: &World, question: &Value) -> Value {
    let response = ask(world, question);
    assert_eq!(response.status, 200, "{}", response.text());
    check_schema(world, "/v1/explain", "post", &response);
    super::json(&response)
}

fn pay(tenant: &str, key: &str) -> Value {
    json!({
        "method": "POST", "host": "api.example.com", "path": "/orders/7/pay", "body": "{}",
        "headers": { "x-tenant": tenant, "Idempotency-Key": [key] }, "client_ip": "192.0.2.7",
    })
}

#[test]
fn a_hundred_explanations_leave_the_whole_limit_and_no_record() {
    let world = World::start();
    for _ in 0..100 {
        let said = explained(&world, &pay("acme", "k1"));
        assert_eq!(said["verdict"], json!({ "answer": "call", "wait_seconds": 0.0 }), "{said:#}");
    }
    let said = explained(&world, &pay("acme", "k1"));
    assert_eq!(said["resource"]["idempotency"]["found"], Value::Null, "no record was made: {said:#}");
    let keys = world.ask("GET", "/metrics", &[], b"").text();
    assert!(keys.contains("tidegate_limit_keys{rule=\"pay-per-tenant\"} 0\n"), "{keys}");
    assert_eq!(world.origin.seen().len(), 0);
    for (key, expected) in [("k1", 200), ("k2", 200), ("k3", 200), ("k4", 429)] {
        assert_eq!(world.pay("acme", key).status, expected, "{key}");
    }
}

#[test]
fn each_gate_says_its_part() {
    let world = World::start();
    let said = explained(&world, &pay("acme", "k1"));
    let resource = &said["resource"];
    assert_eq!((&resource["id"], &said["target"]), (&json!("pay"), &json!("/orders/7/pay")));
    assert_eq!(resource["attributes"][0]["value"], "acme");
    assert_eq!(resource["flags"][0]["result"]["rule"], "acme");
    assert_eq!(resource["limits"][0]["key"], json!([{ "attribute": "tenant", "value": "acme" }]));
    assert_eq!(resource["limits"][0]["remaining"], 2);
    assert_eq!(resource["idempotency"]["record"]["key"], "k1");
    assert_eq!(resource["idempotency"]["says"]["answer"], "execute");
    assert_eq!(resource["breakers"][0]["host"], world.origin.addr().to_string());
    assert_eq!(resource["breakers"][0]["would_admit"], true);

    // The same after it was done, and for another body.
    assert_eq!(world.pay("acme", "k1").status, 200);
    let said = explained(&world, &pay("acme", "k1"));
    assert_eq!(said["verdict"], json!({ "answer": "replay", "status": 200 }));
    assert_eq!(said["resource"]["idempotency"]["found"]["state"], "SUCCEEDED");
    let mut other = pay("acme", "k1");
    other["body"] = json!({ "amount": 12 });
    assert_eq!(explained(&world, &other)["verdict"]["reason"], "idempotency-key-reused");

    // A refusal says when it ends, and the gates behind it are asked all the same.
    for key in ["k2", "k3"] {
        world.pay("acme", key);
    }
    let said = explained(&world, &pay("acme", "k9"));
    assert_eq!(
        (&said["verdict"]["status"], &said["verdict"]["rule"]),
        (&json!(429), &json!("pay-per-tenant"))
    );
    assert!(said["verdict"]["retry_after_seconds"].as_f64().unwrap() > 3000.0, "{said:#}");
    assert_eq!(said["resource"]["idempotency"]["says"]["answer"], "execute");

    // An open breaker, after one failure.
    world.origin.answer("/orders/7/pay", 500, &[], "");
    world.pay("other", "k1");
    let said = explained(&world, &pay("third", "k1"));
    assert_eq!(said["verdict"]["reason"], "breaker-open", "{said:#}");
    let breaker = &said["resource"]["breakers"][0];
    assert_eq!((&breaker["state"], &breaker["would_admit"]), (&json!("open"), &json!(false)));
    assert!(breaker["refuses_for_seconds"].as_f64().unwrap() > 3000.0, "{breaker:#}");

    assert_eq!(explained(&world, &json!({ "path": "/none" }))["verdict"], json!({ "answer": "pass" }));
    assert_eq!(explained(&world, &json!({ "path": "/a%2Fb" }))["verdict"]["reason"], "path-invalid");
}

#[test]
fn what_describes_no_request_is_refused_and_says_why() {
    let world = World::start();
    let long = "x".repeat(5 << 20);
    for (body, status, word) in [
        ("", 400, "EOF"),
        ("[]", 400, "expected a map"),
        ("{}", 400, "path"),
        (r#"{"path":"/","colour":1}"#, 400, "colour"),
        (r#"{"path":"a"}"#, 400, "path"),
        (r#"{"path":"/a?b=1"}"#, 400, "query"),
        (r#"{"path":"/a b"}"#, 400, "percent-encode"),
        (r#"{"path":"/","method":"G T"}"#, 400, "method"),
        (r#"{"path":"/","headers":{"a b":"1"}}"#, 400, "a b"),
        (r#"{"path":"/","headers":{"a":"1\n2"}}"#, 400, "\\\"a\\\""),
        (r#"{"path":"/","host":"a","headers":{"Host":"b"}}"#, 400, "twice"),
        (r#"{"path":"/","host":"a b"}"#, 400, "valid host"),
        (r#"{"path":"/","host":"a:b"}"#, 400, "valid host"),
        (r#"{"path":"/","headers":{"Host":["a","b"]}}"#, 400, "exactly one Host"),
        (r#"{"path":"/","method":"CONNECT"}"#, 400, "CONNECT is not supported"),
        (r#"{"path":"/","headers":{"Content-Length":"x"}}"#, 400, "Content-Length is no number"),
        (r#"{"path":"/","headers":{"Content-Length":""}}"#, 400, "Content-Length is no number"),
        (r#"{"path":"/","headers":{"Content-Length":["1","2"]}}"#, 400, "Content-Length is no number"),
        (r#"{"path":"/","headers":{"Transfer-Encoding":"chunked, gzip"}}"#, 400, "end with chunked"),
        (r#"{"path":"/","headers":{"Transfer-Encoding":["chunked","gzip"]}}"#, 400, "end with chunked"),
        (r#"{"path":"/","client_ip":"somewhere"}"#, 400, "IP address"),
        (&long, 413, "limit"),
    ] {
        let response = world.ask("POST", "/v1/explain", &[JSON], body.as_bytes());
        let shown = &body[..body.len().min(80)];
        assert_eq!(response.status, status, "{shown}: {}", response.text());
        assert!(response.text().contains(word), "{shown}: {}", response.text());
        check_schema(&world, "/v1/explain", "post", &response);
    }
    for body in [
        r#"{"path":"/","method":"POST","headers":{"Content-Length":"3"},"body":"abc"}"#,
        r#"{"path":"/","method":"POST","headers":{"Transfer-Encoding":"gzip, Chunked"},"body":"abc"}"#,
    ] {
        let response = world.ask("POST", "/v1/explain", &[JSON], body.as_bytes());
        assert_eq!(response.status, 200, "{body}: {}", response.text());
    }
    for headers in [&[][..], &[("content-type", "text/plain")]] {
        let response = world.ask("POST", "/v1/explain", headers, br#"{"path":"/"}"#);
        assert_eq!(response.status, 415);
        check_schema(&world, "/v1/explain", "post", &response);
    }
}

#[test]
fn the_log_has_no_keys_and_no_bodies_of_what_is_explained() {
    let world = World::start();
    explained(&world, &pay("secret-tenant", "secret-key"));
    world.get("/v1/flags/new-checkout/explain?subject=secret-subject");
    world.pay("secret-tenant", "secret-key");
    let log = world.gateway.printed(tidegate_testkit::program::Stream::Err);
    assert!(!log.contains("secret"), "{log}");
}
