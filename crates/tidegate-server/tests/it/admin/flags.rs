//! Flags over HTTP.

use serde_json::json;

use super::{World, check_schema};

#[test]
fn r8_a_flag_key_with_a_slash_an_escape_or_unicode_is_resolved() {
    let world = World::start();
    for (path, key, variant) in [
        ("new-checkout", "new-checkout", "off"),
        ("a/b", "a/b", "on"),
        ("a%2Fb", "a/b", "on"),
        ("a%2fb", "a/b", "on"),
        ("a%252Fb", "a%2Fb", "off"),
        ("%C3%A9t%C3%A9%20%F0%9F%98%80%3F%23", "été 😀?#", "on"),
    ] {
        let path = format!("/v1/flags/{path}/explain?subject=user-6502");
        let answer = world.ask("GET", &path, &[], b"");
        let said = super::json(&answer);
        assert_eq!(
            (&said["flag"], &said["result"]["variant"]),
            (&json!(key), &json!(variant)),
            "{path}: {said:#}"
        );
        check_schema(&world, "/v1/flags/{key}/explain", "get", &answer);
    }
    for path in ["a", "a%2Fexplain", "/explain", "none/explain", "a%252fb/explain", "A/B/explain"] {
        assert_eq!(world.ask("GET", &format!("/v1/flags/{path}"), &[], b"").status, 404, "{path}");
    }
    assert_eq!(world.ask("GET", "/v1/flags/%FF/explain", &[], b"").status, 400);
}

#[test]
fn each_rule_that_was_passed_over_says_why() {
    let world = World::start();
    // {"tenant":"acme"}
    let acme = world.get("/v1/flags/new-checkout/explain?attributes=%7B%22tenant%22%3A%22acme%22%7D");
    assert_eq!(acme["result"]["reason"], "TARGETING_MATCH");
    assert_eq!(acme["result"]["value"], true);
    assert_eq!(acme["rules"][0]["outcome"], "decided");
    assert_eq!(acme["rules"][1]["outcome"], "not asked, an earlier rule decided");
    // Bucket 7683.
    let drawn = world.get("/v1/flags/new-checkout/explain?subject=user-1");
    assert_eq!((&drawn["result"]["bucket"], &drawn["result"]["variant"]), (&json!(7683), &json!("off")));
    assert_eq!(drawn["rules"][0]["outcome"], "passed over, tenant equals acme is false: it is absent");
    assert_eq!(drawn["rules"][1]["outcome"], "passed over, bucket 7683 is not below 5000 (50 %)");
    // Nobody, and a percentage is reached: no result, and the answer says so.
    let nobody = world.get("/v1/flags/new-checkout/explain");
    assert_eq!(nobody["error"]["code"], "TARGETING_KEY_MISSING");
    assert!(nobody["result"].is_null() && nobody["subject"].is_null(), "{nobody:#}");
    for query in ["attributes=1", "attributes=%7B", "attributes=[]", "other=1"] {
        let answer = world.ask("GET", &format!("/v1/flags/new-checkout/explain?{query}"), &[], b"");
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
        check_schema(&world, "/v1/flags/{key}/explain", "get", &answer);
    }
}
