use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

#[test]
fn calls_are_counted_from_start_to_end() {
    let stats = ResourceStats::default();
    let running: Vec<_> = (0..5).map(|_| stats.start()).collect();
    let now = stats.snapshot(NOW);
    assert_eq!((now.admitted, now.in_flight, now.succeeded, now.failed), (5, 5, 0, 0));
    for (place, call) in running.into_iter().enumerate() {
        match place {
            0 | 1 => call.finish(Ended::Succeeded, Duration::from_millis(10), NOW),
            2 => call.finish(Ended::Failed, Duration::from_secs(1), NOW),
            _ => drop(call),
        }
    }
    let now = stats.snapshot(NOW);
    assert_eq!((now.admitted, now.in_flight, now.succeeded, now.failed), (5, 0, 2, 1));
    assert_eq!(now.latency.calls, 3, "a cancelled call has no latency");
    assert!(now.latency.p50 < Duration::from_millis(11) && now.latency.p99 >= Duration::from_secs(1));
    assert_eq!(stats.snapshot(NOW + LATENCY_WINDOW * 2).latency, Quantiles::default());
}

#[test]
fn blocks_are_counted_by_gate_and_rule_up_to_a_bound() {
    let stats = ResourceStats::default();
    let rule: Arc<str> = "pay".into();
    stats.block(Gate::Limit, &rule);
    stats.block(Gate::Limit, &rule);
    stats.block(Gate::Breaker, &rule);
    assert_eq!(
        stats.snapshot(NOW).blocked,
        [(Gate::Limit, Arc::clone(&rule), 2), (Gate::Breaker, Arc::clone(&rule), 1)]
    );
    for number in 0..MAX_BLOCKING_RULES {
        stats.block(Gate::Limit, &format!("r{number}").into());
    }
    stats.block(Gate::Limit, &rule);
    let blocked = stats.snapshot(NOW).blocked;
    assert_eq!(blocked.len(), MAX_BLOCKING_RULES + 1);
    let count = |name: &str| blocked.iter().find(|(gate, rule, _)| *gate == Gate::Limit && &**rule == name);
    assert_eq!(count(OTHER).unwrap().2, 2);
    assert_eq!(count("pay").unwrap().2, 3);
}

#[test]
fn threads_lose_nothing() {
    let stats = ResourceStats::default();
    let rule: Arc<str> = "pay".into();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    stats.start().finish(Ended::Succeeded, Duration::from_millis(1), NOW);
                    stats.block(Gate::Idempotency, &rule);
                }
            });
        }
    });
    let now = stats.snapshot(NOW);
    assert_eq!((now.admitted, now.succeeded, now.in_flight, now.latency.calls), (2_000, 2_000, 0, 2_000));
    assert_eq!(now.blocked, [(Gate::Idempotency, rule, 2_000)]);
}

#[test]
fn resources_keep_their_figures_across_rule_versions() {
    let stats = Stats::new();
    let first = stats.apply(["a", "b"]);
    drop(first[1].start());
    let second = stats.apply(["b", "c", "b"]);
    assert_eq!(second[0].snapshot(NOW).admitted, 1);
    assert_eq!(second[1].snapshot(NOW).admitted, 0);
    assert!(Arc::ptr_eq(&second[0], &second[2]));
    drop(stats.apply(["a"]));
    assert_eq!(stats.apply(["b"])[0].snapshot(NOW).admitted, 0, "a resource that was gone starts anew");
}
