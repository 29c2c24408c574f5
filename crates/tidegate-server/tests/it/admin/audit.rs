//! What was done to the rules.

use tidegate_testkit::wait_until;

use super::{RULES, World, check_schema, json};

#[test]
fn the_trail_is_read_page_by_page() {
    let world = World::start();
    world.edit("apiVersion: tidegate/v1\nlimitz: []\n");
    wait_until("the refusal", || !world.get("/v1/rules")["refusal"].is_null());
    world.edit(&RULES.replace("capacity: 3", "capacity: 4"));
    wait_until("the next version", || world.get("/v1/rules")["version"] == 2);
    let all = world.get("/v1/audit");
    let kinds: Vec<_> =
        all["entries"].as_array().unwrap().iter().map(|entry| entry["kind"].clone()).collect();
    assert_eq!(kinds, ["published", "refused", "published"], "{all:#}");
    assert!(all["next_before"].is_null(), "{all:#}");
    assert!(all["entries"][1]["detail"].as_str().unwrap().contains("limitz"), "{all:#}");
    let (mut before, mut seen) = (String::new(), Vec::new());
    loop {
        let page = world.get(&format!("/v1/audit?limit=1{before}"));
        seen.extend(page["entries"].as_array().unwrap().iter().cloned());
        match page["next_before"].as_u64() {
            Some(id) => before = format!("&before={id}"),
            None => break,
        }
    }
    assert_eq!(seen, *all["entries"].as_array().unwrap());
    for query in ["limit=0", "limit=1001", "limit=x", "before=-1", "limit=1&limit=2", "other=1"] {
        let refused = world.ask("GET", &format!("/v1/audit?{query}"), &[], b"");
        assert_eq!(refused.status, 400, "{query}");
        assert_eq!(json(&refused)["status"], 400, "{query}");
        check_schema(&world, "/v1/audit", "get", &refused);
    }
    check_schema(&world, "/v1/audit", "get", &world.ask("GET", "/v1/audit", &[], b""));
}
