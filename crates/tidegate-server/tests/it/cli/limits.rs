//! `tidegate limits` and `tidegate doctor`, with a real Redis.

use tidegate_testkit::{ClosedPort, Program, Redis, RedisOptions, request};

use super::Shell;

const RULES: &str = "\
apiVersion: tidegate/v1
resources:
  - id: pay
    match: { path: /pay }
    attributes: { user: { from: header.x-user, missing: share }, tier: { from: header.x-tier, missing: share } }
limits:
  - id: per-user
    resources: [pay]
    key: [user, tier]
    token_bucket: { capacity: 5, refill: 1/h }
    overrides: [ { when: { tier: { equals: gold } }, token_bucket: { capacity: 9, refill: 1/h } } ]
    sharing: exact
    on_store_failure: fail_closed
  - { id: here, resources: [pay], fixed_window: { limit: 100, window: 1d }, sharing: local }
";

fn gateway(shell: &Shell, redis: &Redis) -> Program {
    shell.write("rules.yaml", RULES);
    let command = format!(
        "gateway --upstream http://127.0.0.1:9 --rules rules.yaml --listen 127.0.0.1:0 --admin 127.0.0.1:0 --redis {}",
        redis.url()
    );
    Program::start(shell.command(&command).env("TIDEGATE_TIMEOUTS_REDIS", "20s"))
}

#[test]
fn a_shared_counter_is_shown_and_reset_and_the_trail_says_by_whom() {
    let (shell, redis) = (Shell::new(), Redis::start());
    let program = gateway(&shell, &redis);
    let addr = program.wait_address("listening on http://");
    let pay = |tier: &str| request(addr, "GET", "/pay", &[("x-user", "ada"), ("x-tier", tier)], b"").status;
    // The service is down, and the limits have counted all the same.
    assert_eq!((pay("gold"), pay("gold"), pay("tin")), (502, 502, 502));
    let redis_url = redis.url();
    let show = |key: &str| shell.run(&format!("limits show per-user {key} --redis {redis_url}"));
    let gold = "--key user=ada --key tier=gold";
    show(gold)
        .code(0)
        .prints_start("tg:{per-user|user=3:ada|tier=4:gold}:token_bucket: 7 of 9 left; whole again in ");
    show("--key user=ada --key tier=tin")
        .code(0)
        .prints_start("tg:{per-user|user=3:ada|tier=3:tin}:token_bucket: 4 of 5 ");
    show("--key user=bob").code(0).prints("tg:{per-user|user=3:bob|tier=-}:token_bucket: 5 of 5 left\n");
    let json = shell.run(&format!("limits show per-user {gold} --json --redis {redis_url}")).code(0).json();
    assert_eq!(
        (&json["limit"], &json["remaining"], &json["rule"]),
        (&9.into(), &7.into(), &"per-user".into())
    );

    let reset = format!("limits reset per-user {gold} --redis {redis_url} --by eve --reason ticket-7");
    shell
        .run(&reset)
        .code(0)
        .prints("tg:{per-user|user=3:ada|tier=4:gold}:token_bucket: reset; the next call finds it fresh\n");
    show(gold).code(0).prints("tg:{per-user|user=3:ada|tier=4:gold}:token_bucket: 9 of 9 left\n");
    shell
        .run(&reset)
        .code(0)
        .prints("tg:{per-user|user=3:ada|tier=4:gold}:token_bucket: nothing was counted\n");
    let admin = program.wait_address("admin on http://");
    let trail = request(admin, "GET", "/v1/audit?limit=1", &[], b"").text();
    for word in ["\"kind\":\"limit_reset\"", "\"who\":\"eve\"", "reason: ticket-7", "user=3:ada|tier=4:gold"]
    {
        assert!(trail.contains(word), "{trail}");
    }

    for (command, code, word) in [
        (
            format!("limits show none --redis {redis_url}"),
            1,
            "there is no limit none; there are: per-user, here",
        ),
        (format!("limits show here --redis {redis_url}"), 1, "counted inside each gateway"),
        (
            format!("limits show per-user --key x=1 --redis {redis_url}"),
            2,
            "x is not in the key of per-user, which is [user, tier]",
        ),
        ("limits show per-user".to_owned(), 1, "no Redis is configured"),
        (format!("limits reset per-user --redis {redis_url} --store memory:"), 1, "inside the gateway"),
        (format!("limits show per-user --redis redis://{}", ClosedPort::take().addr()), 4, "refused"),
    ] {
        shell.run(&command).code(code).prints("").says(&[word]);
    }
}

#[test]
fn the_doctor_asks_each_store_and_says_what_is_missing() {
    let shell = Shell::new();
    let good = Redis::start();
    shell.run(&format!("doctor --redis {}", good.url())).code(0).prints_start(
        "sqlite:tidegate.db\n  warning: not there yet: the gateway makes it when it starts\nredis://",
    );
    let program = gateway(&shell, &good);
    program.wait_address("listening on http://");
    let json = shell.run(&format!("doctor --redis {} --json", good.url())).code(0).json();
    let [sqlite, redis] = [&json["stores"][0], &json["stores"][1]];
    assert_eq!((&sqlite["answers"], &sqlite["about"]["journal"]), (&true.into(), &"wal".into()));
    assert_eq!(
        (&redis["about"]["role"], &redis["about"]["eviction"]),
        (&"master".into(), &"noeviction".into())
    );
    assert!(redis["about"]["version"].as_str().unwrap().starts_with("redis "), "{redis}");
    assert!(redis["about"]["latency_ms"].as_f64().unwrap() > 0.0, "{redis}");

    let evicts = Redis::with(RedisOptions::new().config("maxmemory-policy allkeys-lru"));
    let ran = shell.run(&format!("doctor --store memory: --redis {}", evicts.url())).code(0);
    for word in ["warning: a restart forgets", "warning: maxmemory-policy is allkeys-lru"] {
        assert!(ran.out.contains(word), "{}", ran.out);
    }
    let gone = format!("redis://:secret@{}", ClosedPort::take().addr());
    let ran = shell.run(&format!("doctor --redis {gone}")).code(4);
    assert!(ran.out.contains("does not answer: ") && !ran.out.contains("secret"), "{}", ran.out);
    shell
        .run("doctor --redis nonsense")
        .code(1)
        .prints("")
        .says(&["--redis:1:1: ", "a Redis URL begins with"]);
}
