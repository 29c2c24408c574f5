//! Limits that several gateway processes count together on a real Redis.

use std::thread::JoinHandle;

use tidegate_testkit::{Gate, Redis, RedisOptions, Response, request, wait_until};

use super::gateway::{Gateway, Setup, outcome, problem, refused_start, write_rules};

/// Gateways on this Redis. The time for one command is long, so that a busy machine closes no store.
fn setup(redis: &Redis) -> Setup {
    patient(&redis.url(), "20s")
}

fn patient(url: &str, timeout: &str) -> Setup {
    Setup {
        flags: vec!["--redis".to_owned(), url.to_owned()],
        variables: vec![("TIDEGATE_TIMEOUTS_REDIS", timeout.to_owned())],
        upstreams: Vec::new(),
    }
}

/// A bucket of this capacity for each user, which does not refill while a test runs.
fn rules(capacity: u32, rest: &str) -> String {
    format!(
        "
resources:
  - {{ id: pay, match: {{ path: /pay }}, attributes: {{ user: {{ from: header.x-user, missing: share }} }} }}
limits:
  - {{ id: per-user, resources: [pay], key: [user], token_bucket: {{ capacity: {capacity}, refill: 1/h }}, {rest} }}
"
    )
}

const EXACT: &str = "sharing: exact, on_store_failure: fail_closed";

fn pay(gateway: &Gateway, user: &str) -> Response {
    request(gateway.addr, "GET", "/pay", &[("x-user", user)], b"")
}

/// Sends calls to the gateways in turn, all at once, and gives how many were admitted.
fn admitted(gateways: &[&Gateway], calls: usize, user: &'static str) -> usize {
    let gate = Gate::new();
    let calls: Vec<JoinHandle<u16>> = (0..calls)
        .map(|call| {
            let (addr, gate) = (gateways[call % gateways.len()].addr, gate.clone());
            std::thread::spawn(move || {
                gate.wait();
                request(addr, "GET", "/pay", &[("x-user", user)], b"").status
            })
        })
        .collect();
    gate.open();
    let answers: Vec<u16> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    assert!(answers.iter().all(|status| matches!(status, 200 | 429)), "{answers:?}");
    answers.iter().filter(|status| **status == 200).count()
}

fn metrics(gateway: &Gateway) -> String {
    let admin = gateway.program().wait_address("admin on http://");
    request(admin, "GET", "/metrics", &[], b"").text()
}

/// How many decisions of the rule came from `source`.
fn decisions(gateway: &Gateway, decision: &str, source: &str) -> u64 {
    let series = format!("rule=\"per-user\",decision=\"{decision}\",source=\"{source}\"}} ");
    let text = metrics(gateway);
    let line = text.lines().find(|line| line.contains(&series));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Whether calls are decided by the shared store again; each look is one call by `user`.
fn wait_shared(gateway: &Gateway, user: &str) {
    wait_until("the store to be asked again", || {
        let before = decisions(gateway, "allowed", "shared") + decisions(gateway, "denied", "shared");
        pay(gateway, user);
        decisions(gateway, "allowed", "shared") + decisions(gateway, "denied", "shared") > before
    });
}

/// The counters of a rule.
fn keys(redis: &Redis, rule: &str) -> Vec<String> {
    let found = redis.command(&["KEYS", &format!("tg:{{{rule}*")]);
    let mut keys: Vec<String> = found.list().iter().map(|key| key.text().to_owned()).collect();
    keys.sort();
    keys
}

#[test]
fn l9_three_gateways_admit_exactly_the_limit_together() {
    let redis = Redis::start();
    let one = Gateway::with(&rules(50, EXACT), setup(&redis));
    let (two, three) = (one.sibling(), one.sibling());
    assert_eq!(admitted(&[&one, &two, &three], 120, "ada"), 50);
    // Another user has a counter of their own, and a person can read which it is.
    assert_eq!(admitted(&[&one, &two, &three], 60, "bob"), 50);
    let keys = keys(&redis, "per-user");
    assert_eq!(keys, ["tg:{per-user|user=3:ada}:token_bucket", "tg:{per-user|user=3:bob}:token_bucket"]);
    for key in keys {
        let life = redis.command(&["PTTL", &key]).number();
        assert!(life > 0, "{key} lives for {life} ms");
    }
    let answer = pay(&one, "ada");
    assert_eq!(outcome(&answer), (429, "quota-exceeded".to_owned()));
    assert_eq!(answer.header("ratelimit").map(|item| item.starts_with("\"per-user\";r=0;t=")), Some(true));
}

#[test]
fn l12_a_silent_store_costs_one_wait_and_then_each_rule_does_what_it_says() {
    let redis = Redis::start();
    let rules = "
resources:
  - { id: open, match: { path: /open } }
  - { id: closed, match: { path: /closed } }
  - { id: shadow, match: { path: /shadow } }
  - { id: pay, match: { path: /pay }, attributes: { user: { from: header.x-user, missing: share } } }
limits:
  - { id: o, resources: [open], token_bucket: { capacity: 1, refill: 1/h }, sharing: exact, on_store_failure: fail_open }
  - { id: c, resources: [closed], token_bucket: { capacity: 100, refill: 1/h }, sharing: exact, on_store_failure: fail_closed }
  - { id: s, resources: [shadow], mode: shadow, token_bucket: { capacity: 100, refill: 1/h }, sharing: exact, on_store_failure: fail_closed }
  - { id: per-user, resources: [pay], key: [user], token_bucket: { capacity: 5, refill: 1/h }, sharing: exact, on_store_failure: local_fallback }
";
    let one = Gateway::with(rules, patient(&redis.url(), "500ms"));
    let two = one.sibling();
    for gateway in [&one, &two] {
        wait_until("both to know of each other", || {
            gateway.program().printed(tidegate_testkit::program::Stream::Err).contains("instances=2")
        });
    }
    redis.pause();
    for gateway in [&one, &two] {
        for _ in 0..10 {
            assert_eq!(gateway.get("/open").status, 200);
            let closed = gateway.get("/closed");
            assert_eq!(outcome(&closed), (503, "store-unavailable".to_owned()));
            assert_eq!(closed.header("retry-after"), Some("1"));
            assert_eq!(gateway.get("/shadow").status, 200);
        }
    }
    // Five are divided by two: three for the one that comes first by name, two for the other.
    let mut parts = [&one, &two].map(|gateway| (0..10).filter(|_| pay(gateway, "ada").status == 200).count());
    parts.sort_unstable();
    assert_eq!(parts, [2, 3]);
    assert_eq!(decisions(&one, "allowed", "fallback") + decisions(&two, "allowed", "fallback"), 5);
    for gateway in [&one, &two] {
        // The first call waited, and closed the store; the others did not ask it.
        let text = metrics(gateway);
        assert!(text.contains("tidegate_limit_commands_total 0\n"), "{text}");
        assert!(text.contains("rule=\"o\",decision=\"allowed\",source=\"fail_open\"} 10\n"), "{text}");
        assert!(text.contains("rule=\"c\",decision=\"denied\",source=\"fail_closed\"} 10\n"), "{text}");
        assert!(
            text.contains("rule=\"s\",decision=\"shadow_denied\",source=\"fail_closed\"} 10\n"),
            "{text}"
        );
    }
    redis.resume();
    for gateway in [&one, &two] {
        wait_shared(gateway, "eve");
        wait_until("what was closed to be open", || gateway.get("/closed").status == 200);
    }
}

#[test]
fn a_store_that_comes_back_empty_is_noticed_and_after_store_loss_chooses() {
    let fallback = "sharing: exact, on_store_failure: local_fallback";
    let exhausted = format!("{fallback}, after_store_loss: exhausted");
    for (rest, again) in [(fallback, 200), (exhausted.as_str(), 429)] {
        let mut redis = Redis::start();
        let gateway = Gateway::with(&rules(2, rest), setup(&redis));
        wait_shared(&gateway, "eve");
        assert_eq!(admitted(&[&gateway], 5, "ada"), 2);
        redis.restart_empty();
        wait_until("the loss to be counted", || {
            metrics(&gateway).contains("tidegate_limit_store_losses_total 1")
        });
        wait_shared(&gateway, "eve");
        let answer = pay(&gateway, "ada");
        assert_eq!(answer.status, again, "{rest}");
        if again == 429 {
            assert_eq!(problem(&answer), "quota-exceeded");
        }
    }
}

#[test]
fn a_gateway_starts_without_the_store_and_finds_it_by_itself() {
    let mut redis = Redis::start();
    redis.kill();
    let gateway = Gateway::with(&rules(2, EXACT), setup(&redis));
    assert_eq!(outcome(&pay(&gateway, "ada")), (503, "store-unavailable".to_owned()));
    redis.restart();
    wait_until("a call to be let through", || pay(&gateway, "ada").status == 200);
    // Nobody knew how many share the limit, so nobody took a part of it.
    drop(gateway);
    redis.kill();
    let fallback = "sharing: exact, on_store_failure: local_fallback";
    let gateway = Gateway::with(&rules(2, fallback), setup(&redis));
    assert_eq!(outcome(&pay(&gateway, "bob")), (429, "quota-exceeded".to_owned()));
    drop(gateway);
    // Where the configuration says it, a part is known from the start.
    let mut four = setup(&redis);
    four.variables.push(("TIDEGATE_INSTANCES", "4".to_owned()));
    let gateway = Gateway::with(&rules(9, fallback), four);
    assert_eq!(admitted(&[&gateway], 5, "bob"), 2);
}

#[test]
fn local_and_shared_limits_of_one_call_are_charged_together_or_not_at_all() {
    let redis = Redis::start();
    let rules = "
resources:
  - { id: pay, match: { path: /pay }, attributes: { user: { from: header.x-user, missing: share } } }
limits:
  - { id: here, resources: [pay], token_bucket: { capacity: 3, refill: 1/h }, sharing: local }
  - { id: everywhere, resources: [pay], token_bucket: { capacity: 5, refill: 1/h }, sharing: exact, on_store_failure: fail_closed }
";
    let one = Gateway::with(rules, setup(&redis));
    assert_eq!(admitted(&[&one], 20, "ada"), 3);
    // Seventeen were refused here, and cost the others nothing.
    let two = one.sibling();
    assert_eq!(admitted(&[&two], 20, "ada"), 2);
    let both = two.get("/pay");
    let policies = both.header_all("ratelimit-policy").join(", ");
    assert_eq!(policies, "\"here\";q=3;w=10800, \"everywhere\";q=5;w=18000");
}

#[test]
fn concurrency_is_shared_and_a_permit_comes_back_with_the_answer() {
    let redis = Redis::start();
    let rules = "
resources:
  - { id: pay, match: { path: /pay } }
limits:
  - { id: at-once, resources: [pay], concurrency: { max: 2 }, sharing: exact, on_store_failure: fail_closed }
";
    let one = Gateway::with(rules, setup(&redis));
    let two = one.sibling();
    let gate = Gate::new();
    let held = gate.clone();
    one.origin.on("/pay", move |exchange| {
        held.wait();
        exchange.respond(200, &[], b"done")
    });
    let running = [one.post_later("/pay", "a", ""), two.post_later("/pay", "b", "")];
    one.origin.wait_calls("/pay", 2);
    for gateway in [&one, &two] {
        assert_eq!(outcome(&gateway.get("/pay")), (429, "quota-exceeded".to_owned()));
    }
    gate.open();
    for call in running {
        assert_eq!(call.join().unwrap().status, 200);
    }
    wait_until("both permits to be back", || keys(&redis, "at-once").is_empty());
    assert_eq!((one.get("/pay").status, two.get("/pay").status), (200, 200));
}

#[test]
fn an_older_version_is_decided_by_the_newer_numbers() {
    let redis = Redis::start();
    let old = Gateway::with(&rules(10, EXACT), setup(&redis));
    for _ in 0..4 {
        assert_eq!(pay(&old, "ada").status, 200);
    }
    // A gateway with rules of its own, which are newer.
    let new = Gateway::with(&rules(10, EXACT), setup(&redis));
    new.edit(&rules(6, EXACT));
    new.wait_version(2);
    wait_until("the newer numbers", || {
        let answer = pay(&new, "probe");
        answer.header("ratelimit").is_some_and(|item| item.contains("r=5;")) || {
            redis.command(&["DEL", "tg:{per-user|user=5:probe}:token_bucket"]);
            false
        }
    });
    // Four of ten are used; of six, two are left, whoever asks.
    assert_eq!((pay(&new, "ada").status, pay(&old, "ada").status), (200, 200));
    assert_eq!((pay(&new, "ada").status, pay(&old, "ada").status), (429, 429));
}

#[test]
fn what_would_be_is_explained_without_being_charged() {
    let redis = Redis::start();
    let gateway = Gateway::with(&rules(2, EXACT), setup(&redis));
    let admin = gateway.program().wait_address("admin on http://");
    let question = br#"{"path":"/pay","headers":{"x-user":"ada"}}"#;
    let explain = || {
        let answer = request(admin, "POST", "/v1/explain", &[("content-type", "application/json")], question);
        serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()
    };
    for _ in 0..5 {
        assert_eq!(explain()["resource"]["limits"][0]["remaining"], 1);
    }
    assert_eq!(admitted(&[&gateway], 5, "ada"), 2);
    assert_eq!(explain()["verdict"]["reason"], "quota-exceeded");
    assert_eq!(keys(&redis, "per-user").len(), 1);
}

#[test]
fn a_user_of_redis_may_be_named_and_a_password_is_told_nobody() {
    // What docs/operate.md says that a user needs, and no more.
    let user = "gateway on >swordfish ~tg:* +@read +@write +@scripting +@connection +info +time";
    let redis = Redis::with(RedisOptions::new().password("other").user(user));
    let url = format!("redis://gateway:swordfish@{}", redis.address());
    let one = Gateway::with(&rules(2, EXACT), patient(&url, "20s"));
    assert_eq!(admitted(&[&one], 5, "ada"), 2);
    // The same by a file, which is what secrets are mounted as.
    std::fs::write(one.dir().path().join("redis-url"), format!("{url}\n")).unwrap();
    let by_file = Setup {
        flags: vec!["--redis-url-file".to_owned(), one.dir().path().join("redis-url").display().to_string()],
        ..setup(&redis)
    };
    let two = Gateway::with(&rules(2, EXACT), by_file);
    assert_eq!(pay(&two, "ada").status, 429);
    for gateway in [&one, &two] {
        let said = gateway.program().printed(tidegate_testkit::program::Stream::Err);
        assert!(!said.contains("swordfish"), "{said}");
    }
    let wrong = url.replace("redis://", "http://");
    write_rules(two.dir(), &rules(2, EXACT));
    for flags in [vec!["--redis", wrong.as_str()], vec!["--redis", "redis://gateway:swordfish@a:b"]] {
        let (status, said) = refused_start(two.dir(), &[&["--rules", "rules.yaml"], &flags[..]].concat());
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("--redis:1:1: ") && !said.contains("swordfish"), "{said}");
    }
}

#[test]
fn without_a_store_nothing_is_shared_and_with_one_each_rule_says_so() {
    let dir = tidegate_testkit::temp_dir();
    let redis = Redis::start();
    for (rest, flags, word) in [
        (EXACT, vec![], "configure a shared store with `--redis URL`"),
        ("mode: enforce", vec!["--redis".to_owned(), redis.url()], "`sharing` is missing"),
        (
            "sharing: leased, on_store_failure: fail_closed",
            vec!["--redis".to_owned(), redis.url()],
            "`sharing: leased` is not in this release",
        ),
    ] {
        write_rules(&dir, &rules(2, rest));
        let flags: Vec<&str> =
            ["--rules", "rules.yaml"].into_iter().chain(flags.iter().map(String::as_str)).collect();
        let (status, said) = refused_start(&dir, &flags);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(word), "{said}");
    }
}
