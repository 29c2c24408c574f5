//! One server.

use kit::proxy::Mode;
use kit::{Proxy, RedisOptions};
use tidegate_store::redis::{Lost, NotSent, RefusalCode, Role};

use super::*;

#[tokio::test]
async fn a_script_is_loaded_when_the_server_does_not_know_it() {
    let mut server = kit::Redis::start();
    let redis = client(&server.url());
    let script = Script::new("return tonumber(ARGV[1]) + #KEYS");
    for round in 0..3_i64 {
        let value = redis.run(&script, &["a", "b"], &[round]).await;
        assert_eq!(value, Ok(Value::Int(round + 2)));
        assert_eq!(server.command(&["SCRIPT", "EXISTS", script.sha()]).list()[0].number(), 1);
        match round {
            0 => assert!(server.command(&["SCRIPT", "FLUSH"]).is_ok()),
            1 => server.restart_empty(),
            _ => {}
        }
        notices(&redis).await;
    }
}

#[tokio::test]
async fn a_paused_server_leaves_it_unknown_within_the_timeout() {
    let server = kit::Redis::start();
    let redis = hasty(&server.url());
    recovers(&redis, &count(), "a").await;
    server.pause();
    let fault = run(&redis, &count(), "a").await.unwrap_err();
    assert_eq!(fault, RedisFault::Unknown(Lost::Timeout(Duration::from_millis(50))));
    server.resume();
    // It ran after all: once.
    kit::wait_until("the call that was sent", || server.command(&["GET", "a"]).number() == 2);
    recovers(&client(&server.url()), &count(), "a").await;
    assert_eq!(server.command(&["GET", "a"]).number(), 3);
}

#[tokio::test]
async fn a_silent_connection_is_given_up() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(server.address());
    let redis = hasty(&format!("redis://{}", proxy.address()));
    recovers(&redis, &count(), "a").await;
    proxy.set(Mode::BlackHole);
    let deadline = Deadline::after(DEADLINE);
    while run(&redis, &count(), "a").await.unwrap_err().may_have_run() {
        assert!(!deadline.passed(), "the silent connection is still used");
    }
    assert!(proxy.connections() <= 2, "{}", proxy.connections());
}

#[tokio::test]
async fn nothing_is_sent_to_a_dead_server_and_recovery_needs_nobody() {
    let mut server = kit::Redis::start();
    let redis = hasty(&server.url());
    recovers(&redis, &count(), "a").await;
    server.kill();
    let deadline = Deadline::after(DEADLINE);
    let mut not_sent = 0;
    while not_sent < 20 {
        match run(&redis, &count(), "a").await.unwrap_err() {
            RedisFault::NotSent(_) => not_sent += 1,
            // The driver may not have heard of the end yet.
            fault => assert_eq!(not_sent, 0, "{fault}"),
        }
        assert!(!deadline.passed());
    }
    server.restart();
    assert_eq!(recovers(&redis, &count(), "a").await, 1);
}

#[tokio::test]
async fn a_server_that_was_never_there_is_named() {
    let port = kit::redis::Port::reserve();
    let redis = client(&format!("redis://:hidden@{}", port.address()));
    let fault = run(&redis, &count(), "a").await.unwrap_err();
    assert!(matches!(fault, RedisFault::NotSent(NotSent::Connect(_))), "{fault}");
    assert!(fault.to_string().contains(&port.address().to_string()), "{fault}");
    let again = run(&redis, &count(), "a").await.unwrap_err();
    assert!(matches!(again, RedisFault::NotSent(NotSent::BackOff(_))), "{again}");
}

async fn refusal(redis: &Redis, script: &Script) -> RefusalCode {
    let fault = run(redis, script, "a").await.unwrap_err();
    assert!(!fault.may_have_run(), "{fault}");
    fault.refusal().unwrap_or_else(|| panic!("not refused: {fault}"))
}

#[tokio::test]
async fn what_the_server_refuses_did_not_run() {
    let server = kit::Redis::start();
    let redis = client(&server.url());
    let script = count();
    assert_eq!(run(&redis, &script, "a").await, Ok(1));
    let set = |name: &str, value: &str| assert!(server.command(&["CONFIG", "SET", name, value]).is_ok());

    set("maxmemory", "1");
    assert_eq!(refusal(&redis, &script).await, RefusalCode::OutOfMemory);
    set("maxmemory", "0");

    let nowhere = kit::redis::Port::reserve().number().to_string();
    assert!(server.command(&["REPLICAOF", "127.0.0.1", &nowhere]).is_ok());
    for _ in 0..20 {
        assert_eq!(refusal(&redis, &script).await, RefusalCode::ReadOnly);
    }
    assert!(server.command(&["REPLICAOF", "NO", "ONE"]).is_ok());
    assert_eq!(run(&redis, &script, "a").await, Ok(2));

    let broken = Script::new("redis.call('INCR', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'x')");
    let fault = run(&redis, &broken, "a").await.unwrap_err();
    assert!(matches!(fault, RedisFault::Unknown(Lost::Script(_))), "{fault}");
    assert_eq!(run(&redis, &script, "a").await, Ok(4));
}

#[tokio::test]
async fn a_server_that_is_loading_refuses() {
    let mut server = kit::Redis::with(
        RedisOptions::new().config("key-load-delay 200").config("loading-process-events-interval-bytes 1024"),
    );
    let redis = client(&server.url());
    assert_eq!(run(&redis, &count(), "a").await, Ok(1));
    // Enough keys that reading them back takes a while.
    let fill = Script::new("for i = 1, 20000 do redis.call('SET', 'k' .. i, i) end return 1");
    assert_eq!(run(&redis, &fill, "a").await, Ok(1));
    assert!(server.command(&["SAVE"]).is_ok());
    server.restart_loading();
    let deadline = Deadline::after(DEADLINE);
    loop {
        let fault = run(&redis, &count(), "a").await.unwrap_err();
        assert!(
            !fault.may_have_run() || matches!(fault, RedisFault::Unknown(Lost::Disconnected(_))),
            "{fault}"
        );
        if fault.refusal() == Some(RefusalCode::Loading) {
            break;
        }
        assert!(!deadline.passed(), "{fault}");
    }
    assert!(server.command(&["CONFIG", "SET", "key-load-delay", "0"]).is_ok());
    assert_eq!(recovers(&redis, &count(), "a").await, 2);
}

#[tokio::test]
async fn a_script_whose_answer_is_lost_is_not_sent_again() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(server.address());
    let redis = client(&format!("redis://{}", proxy.address()));
    let mut sent = recovers(&redis, &count(), "a").await;
    for _ in 0..5 {
        proxy.set(Mode::CutReplies);
        let fault = run(&redis, &count(), "a").await.unwrap_err();
        assert!(matches!(fault, RedisFault::Unknown(Lost::Disconnected(_))), "{fault}");
        sent += 1;
        proxy.set(Mode::Pass);
        assert_eq!(recovers(&redis, &count(), "a").await, sent + 1);
        sent += 1;
    }
    assert_eq!(server.command(&["GET", "a"]).number(), sent);
}

#[tokio::test]
async fn callers_share_a_connection_and_one_attempt_to_get_it_back() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(server.address());
    let redis = client(&format!("redis://{}", proxy.address()));
    for round in 1..=3 {
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let redis = redis.clone();
                tokio::spawn(async move { recovers(&redis, &count(), "a").await })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(proxy.connections(), round);
        proxy.set(Mode::Cut);
        kit::wait_until("the end of the connection", || proxy.open_connections() == 0);
        proxy.set(Mode::Pass);
        notices(&redis).await;
    }
    assert_eq!(server.command(&["GET", "a"]).number(), 300);
}

#[tokio::test]
async fn a_slow_network_does_not_break_the_connection() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(server.address());
    let url = format!("redis://{}", proxy.address());
    proxy.set(Mode::Delay(Duration::from_millis(200)));
    let redis = hasty(&url);
    let fault = run(&redis, &count(), "a").await.unwrap_err();
    assert_eq!(fault, RedisFault::NotSent(NotSent::Timeout(Duration::from_millis(50))));
    let patient = client(&url);
    assert_eq!(run(&patient, &count(), "a").await, Ok(1));
    let took = patient.ping().await.unwrap();
    assert!(took >= Duration::from_millis(200), "{took:?}");
}

#[tokio::test]
async fn users_sign_in_and_no_message_shows_the_password() {
    let rules = "ana on >hid-den ~own:* +evalsha +script|load +incr +ping";
    let server = kit::Redis::with(RedisOptions::new().password("hid-den-too").user(rules));
    let at = server.address();
    let by_default = client(&format!("redis://:hid-den-too@{at}"));
    assert_eq!(run(&by_default, &count(), "own:a").await, Ok(1));
    let ana = Redis::new(config(&format!("redis://ana@{at}")).with_password("hid-den")).unwrap();
    assert_eq!(run(&ana, &count(), "own:a").await, Ok(2));
    let mut faults = vec![run(&ana, &count(), "other").await.unwrap_err(), ana.info().await.unwrap_err()];
    for fault in &faults {
        assert_eq!(fault.refusal(), Some(RefusalCode::NoPermission), "{fault}");
    }
    let del = Script::new("redis.call('INCR', KEYS[1]) return redis.call('DEL', KEYS[1])");
    faults.push(run(&ana, &del, "own:a").await.unwrap_err());
    assert!(matches!(faults[2], RedisFault::Unknown(Lost::Script(_))), "{}", faults[2]);
    for url in
        [format!("redis://ana:hid-den-not@{at}"), format!("redis://:hid-den@{at}"), format!("redis://{at}")]
    {
        let redis = client(&url);
        let fault = run(&redis, &count(), "own:a").await.unwrap_err();
        assert!(!fault.may_have_run(), "{fault}");
        assert!(!format!("{redis:?}").contains("hid-den"));
        faults.push(fault);
    }
    for fault in faults {
        assert!(!format!("{fault} {fault:?}").contains("hid-den"), "{fault}");
    }
}

#[tokio::test]
async fn tls_trusts_the_given_authority_only() {
    let options = RedisOptions::new().tls().config("tls-auth-clients optional");
    let server = kit::Redis::with(options);
    let ca = || server.tls().ca.clone().into_bytes();
    let redis = Redis::new(config(&server.url()).with_authority(ca())).unwrap();
    assert_eq!(run(&redis, &count(), "a").await, Ok(1));
    // Of another authority, of the system's, and without TLS at all.
    let other = kit::Redis::with(RedisOptions::new().tls());
    let other =
        Redis::new(config(&server.url()).with_authority(other.tls().ca.clone().into_bytes())).unwrap();
    for redis in [other, client(&server.url()), client(&format!("redis://{}", server.address()))] {
        let fault = run(&redis, &count(), "a").await.unwrap_err();
        assert!(matches!(fault, RedisFault::NotSent(NotSent::Connect(_))), "{fault}");
    }
    // A server that asks for the client's certificate.
    assert!(server.command(&["CONFIG", "SET", "tls-auth-clients", "yes"]).is_ok());
    let without = Redis::new(config(&server.url()).with_authority(ca())).unwrap();
    assert!(!run(&without, &count(), "a").await.unwrap_err().may_have_run());
    let own = server.tls().clone();
    let shown = config(&server.url())
        .with_authority(ca())
        .with_certificate(own.certificate.into_bytes(), own.key.into_bytes());
    assert_eq!(run(&Redis::new(shown).unwrap(), &count(), "a").await, Ok(2));
}

#[tokio::test]
async fn a_server_says_what_it_is() {
    let server = kit::Redis::with(
        RedisOptions::new().config("maxmemory 100mb").config("maxmemory-policy allkeys-lru"),
    );
    let redis = client(&server.url());
    let info = redis.info().await.unwrap();
    let [info] = info.as_slice() else { panic!("{info:?}") };
    assert_eq!(info.address.to_string(), server.address().to_string());
    assert_eq!(
        (info.role, info.maxmemory_policy.as_str(), info.maxmemory),
        (Role::Master, "allkeys-lru", 100 << 20)
    );
    assert!(
        info.version.starts_with(|first: char| first.is_ascii_digit()) && info.used_memory > 0,
        "{info:?}"
    );
    assert!(redis.ping().await.unwrap() < PATIENT);
}
