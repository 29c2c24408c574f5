use serde_json::{Value, json};

use super::*;

async fn json_of(response: Response<Body>) -> Value {
    serde_json::from_slice(&response.into_body().collect(1 << 20).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_denial_is_the_registered_problem_with_a_rounded_up_retry_after() {
    let refusal = Refusal::LimitDenied {
        rules: vec!["pay-per-channel".into()],
        retry_after: Some(Duration::from_millis(1900)),
    };
    let response = refusal.respond(Some("12; digest=3f2a9c1b2d4e"), Disclose::Full);
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()[RETRY_AFTER], "2");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    let problem = json_of(response).await;
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["violated-policies"], json!(["pay-per-channel"]));
    assert_eq!(problem["rule"], "pay-per-channel");
    assert_eq!(problem["version"], "12; digest=3f2a9c1b2d4e");
}

#[tokio::test]
async fn minimal_disclosure_names_no_rule_reason_or_version() {
    let refusal = Refusal::BreakerOpen { rule: "account-slow".into(), retry_after: Duration::from_secs(3) };
    let response = refusal.respond(Some("12; digest=3f2a9c1b2d4e"), Disclose::Minimal);
    let problem = json_of(response).await;
    assert_eq!(problem["type"], "urn:tidegate:problem:breaker-open");
    for field in ["rule", "reason", "version"] {
        assert!(problem.get(field).is_none(), "{field} in {problem}");
    }
}

#[tokio::test]
async fn a_call_that_can_never_pass_says_so_and_has_no_retry_after() {
    let response =
        Refusal::LimitDenied { rules: vec!["l".into()], retry_after: None }.respond(None, Disclose::Full);
    assert!(!response.headers().contains_key(RETRY_AFTER));
    assert!(json_of(response).await["detail"].as_str().unwrap().contains("never pass"));
}

#[test]
fn what_is_not_known_is_not_said_to_be_known() {
    for refusal in [Refusal::UpstreamUnavailable { sent: true }, Refusal::UpstreamTimeout { sent: true }] {
        assert!(refusal.detail().starts_with("Whether the request took effect is not known. "));
    }
    for refusal in [Refusal::UpstreamUnavailable { sent: false }, Refusal::UpstreamTimeout { sent: false }] {
        assert_eq!(refusal.detail(), "Nothing was executed. Try again.");
    }
    // A header that is sent twice is there, and no attribute all the same.
    let refusal = Refusal::AttributeMissing { attribute: "header x-user".into() };
    assert!(refusal.detail().contains("not a single value"));
}

#[test]
fn every_refusal_has_the_documented_status() {
    let rule = || "r".to_owned();
    for (refusal, status, name) in [
        (Refusal::PathInvalid { why: rule() }, 400, "path-invalid"),
        (Refusal::AttributeMissing { attribute: rule() }, 400, "attribute-missing"),
        (Refusal::CostInvalid { rule: rule(), attribute: rule(), max: 1 }, 400, "cost-invalid"),
        (Refusal::KeyMissing { rule: rule(), from: rule() }, 400, "idempotency-key-missing"),
        (Refusal::KeyInvalid { rule: rule(), why: rule() }, 400, "idempotency-key-invalid"),
        (Refusal::BodyIncomplete, 400, "body-incomplete"),
        (Refusal::BodyTooLarge { limit: 1 }, 413, "body-too-large"),
        (Refusal::LimitDenied { rules: vec![], retry_after: None }, 429, "quota-exceeded"),
        (Refusal::InProgress { rule: rule(), retry_after: Duration::ZERO }, 409, "idempotency-in-progress"),
        (Refusal::OutcomeUnknown { rule: rule() }, 409, "outcome-unknown"),
        (Refusal::Superseded { rule: rule() }, 409, "superseded"),
        (Refusal::KeyReused { rule: rule(), fields: vec![] }, 422, "idempotency-key-reused"),
        (Refusal::BreakerOpen { rule: rule(), retry_after: Duration::ZERO }, 503, "breaker-open"),
        (Refusal::StoreUnavailable { gate: Gate::Idempotency, rule: rule() }, 503, "store-unavailable"),
        (Refusal::NotReady, 503, "version-unavailable"),
        (Refusal::UpstreamUnavailable { sent: true }, 502, "upstream-unavailable"),
        (Refusal::UpstreamTimeout { sent: true }, 504, "upstream-timeout"),
    ] {
        assert_eq!((refusal.status().as_u16(), refusal.name()), (status, name));
    }
}

#[test]
fn ratelimit_fields_follow_draft_10() {
    assert_eq!(policy_item("burst", 100, Some(Duration::from_mins(1))), "\"burst\";q=100;w=60");
    assert_eq!(policy_item("busy", 64, None), "\"busy\";q=64;qu=\"concurrent-requests\"");
    let mut text = String::new();
    push_limit_item(&mut text, "burst", 50, Some(Duration::from_millis(29_100)));
    push_limit_item(&mut text, "a\"b", 0, None);
    assert_eq!(text, "\"burst\";r=50;t=30, \"a\\\"b\";r=0");
}

#[test]
fn an_upstreams_own_ratelimit_field_is_kept_before_ours() {
    let mut headers = HeaderMap::new();
    headers.append("ratelimit", HeaderValue::from_static("\"theirs\";r=1;t=1"));
    append_limits(&mut headers, "\"ours\";q=2;w=1".into(), "\"ours\";r=1;t=1".into());
    let values: Vec<_> = headers.get_all("ratelimit").iter().collect();
    assert_eq!(values, ["\"theirs\";r=1;t=1", "\"ours\";r=1;t=1"]);
}

#[test]
fn problems_are_pinned_to_the_byte() {
    let version = Some("12; digest=3f2a9c1b2d4e");
    let later = Some(Duration::from_secs(3));
    let rule = || "pay-per-user".to_owned();
    let denied = |rules: &[&str], retry_after| Refusal::LimitDenied {
        rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        retry_after,
    };
    for (refusal, disclose, expected) in [
        (
            denied(&["pay-per-user"], later),
            Disclose::Full,
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"Try again after Retry-After seconds.","violated-policies":["pay-per-user"],"reason":"quota-exceeded","rule":"pay-per-user","version":"12; digest=3f2a9c1b2d4e"}"#,
        ),
        (
            denied(&["a", "b"], None),
            Disclose::Minimal,
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"This call costs more than the limit ever holds: it can never pass as it is.","violated-policies":["a","b"]}"#,
        ),
        (
            Refusal::BreakerOpen { rule: rule(), retry_after: Duration::from_secs(3) },
            Disclose::Full,
            r#"{"type":"urn:tidegate:problem:breaker-open","title":"A dependency is not healthy","status":503,"detail":"Nothing was executed. Try again after Retry-After seconds.","reason":"breaker-open","rule":"pay-per-user","version":"12; digest=3f2a9c1b2d4e"}"#,
        ),
        (
            Refusal::KeyReused { rule: rule(), fields: vec!["body".to_owned()] },
            Disclose::Minimal,
            r#"{"type":"urn:tidegate:problem:idempotency-key-reused","title":"The idempotency key was used for another request","status":422,"detail":"These differ from the first request: body. Use a new key for a new intent.","fields":["body"]}"#,
        ),
        (
            Refusal::PathInvalid { why: "a \"quote\" and a \t".to_owned() },
            Disclose::Full,
            r#"{"type":"urn:tidegate:problem:path-invalid","title":"The path is not valid","status":400,"detail":"a \"quote\" and a \t.","reason":"path-invalid","version":"12; digest=3f2a9c1b2d4e"}"#,
        ),
    ] {
        assert_eq!(refusal.problem(version, disclose), expected);
    }
}

#[test]
fn a_kept_denial_is_what_the_refusal_itself_would_say() {
    for (version, disclose) in
        [(Some("1; digest=x"), Disclose::Full), (None, Disclose::Full), (None, Disclose::Minimal)]
    {
        let refusal =
            Refusal::LimitDenied { rules: vec!["r\"1".into()], retry_after: Some(Duration::from_secs(9)) };
        assert_eq!(denial("r\"1", version, disclose), refusal.problem(version, disclose));
    }
}
