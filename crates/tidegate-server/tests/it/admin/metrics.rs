//! What a scraper reads.

use std::collections::BTreeSet;

use tidegate_testkit::{Connection, wait_until};

use super::{RULES, World, check_schema};

/// Every family, as `docs/operate.md` lists them, by the names of its samples.
const NAMES: [&str; 21] = [
    "http_server_request_duration_seconds_bucket",
    "http_server_request_duration_seconds_count",
    "http_server_request_duration_seconds_sum",
    "tidegate_breaker_calls_total",
    "tidegate_breaker_state",
    "tidegate_breaker_transitions_total",
    "tidegate_fallbacks_total",
    "tidegate_flag_evaluations_total",
    "tidegate_idempotency_outcomes_total",
    "tidegate_limit_bound_violations_total",
    "tidegate_limit_commands_total",
    "tidegate_limit_decisions_total",
    "tidegate_limit_keys",
    "tidegate_limit_overflowed_total",
    "tidegate_limit_store_losses_total",
    "tidegate_rules_info",
    "tidegate_rules_loads_total",
    "tidegate_rules_stale_seconds",
    "tidegate_store_request_duration_seconds_bucket",
    "tidegate_store_request_duration_seconds_count",
    "tidegate_store_request_duration_seconds_sum",
];

fn scrape(world: &World) -> String {
    let response = world.ask("GET", "/metrics", &[], b"");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((response.status, response.header("content-type")), (200, Some(kind)));
    check_schema(world, "/metrics", "get", &response);
    response.text()
}

fn series(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}

#[test]
fn the_names_are_the_documented_ones() {
    let rules = RULES
        .replace("    open_for: 1h\n", "    fallback: [ { respond: { status: 503 } } ]\n    open_for: 1h\n");
    let world = World::with(&rules, &[]);
    world.pay("acme", "k1");
    world.origin.answer("/orders/7/pay", 500, &[], "");
    world.pay("acme", "k2");
    world.pay("acme", "k3");
    let text = scrape(&world);
    let names: BTreeSet<_> =
        series(&text).iter().map(|series| series.split('{').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(names, NAMES.iter().map(ToString::to_string).collect(), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in [
        "tidegate_limit_keys{rule=\"pay-per-tenant\"} 1",
        "tidegate_limit_bound_violations_total{rule=\"pay-per-tenant\"} 0",
        "tidegate_breaker_state{rule=\"bank\",state=\"open\"} 1",
        "tidegate_breaker_state{rule=\"bank\",state=\"closed\"} 0",
        "tidegate_rules_stale_seconds{source=\"file\"} 0.0",
        "tidegate_rules_loads_total{source=\"file\",result=\"published\"} 1",
        "tidegate_fallbacks_total{rule=\"bank\",layer=\"respond\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let digest = world.get("/v1/rules")["digest"].as_str().unwrap()[..12].to_owned();
    assert!(text.contains(&format!("tidegate_rules_info{{version=\"1\",digest=\"{digest}\"}} 1")), "{text}");
    let document = include_str!("../../../../../docs/operate.md");
    for name in NAMES {
        let family = name.trim_end_matches("_bucket").trim_end_matches("_count").trim_end_matches("_sum");
        assert!(document.contains(family), "docs/operate.md does not list {family}");
    }
}

#[test]
fn how_stale_a_source_is_is_told_at_the_moment_of_the_scrape() {
    let world = World::start();
    std::fs::remove_file(&world.rules).unwrap();
    let stale = || -> f64 {
        let text = scrape(&world);
        let line =
            text.lines().find(|line| line.starts_with("tidegate_rules_stale_seconds{source=\"file\"}"));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    wait_until("the file to be missed", || stale() > 0.0);
    let first = stale();
    wait_until("a later scrape to tell more", || stale() > first);
}

#[test]
fn l13_many_keys_paths_and_methods_make_no_series() {
    const KEYS: usize = 10_000;
    const CLIENTS: usize = 4;
    let world = World::start();
    let send = |from: usize, to: usize| {
        let mut connection = Connection::open(world.addr).unwrap();
        for i in from..to {
            let (path, host) = (format!("/items/key-{i}"), format!("h{i}.example.com"));
            let response = connection.request("GET", &path, &[("host", &host)], b"").unwrap();
            assert_eq!(response.status, 200);
        }
    };
    // One of each sort makes the series that there are.
    send(0, 1);
    let other = |method: &str, path: &str| {
        Connection::open(world.addr).unwrap().request(method, path, &[], b"").unwrap().status
    };
    assert_eq!((other("BREW", "/a"), other("BREW", "/items/a")), (200, 200));
    let before = series(&scrape(&world));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || send(KEYS / CLIENTS * client, KEYS / CLIENTS * (client + 1)));
        }
    });
    for i in 0..20 {
        other(&format!("BREW{i}"), &format!("/unmatched/{i}?q={i}"));
    }
    let text = scrape(&world);
    let after = series(&text);
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(after.len() < 200, "{} series", after.len());
    assert!(text.contains(&format!("tidegate_limit_keys{{rule=\"per-item\"}} {KEYS}\n")), "{text}");
    assert!(!text.contains("key-"), "{text}");
}
