//! The breaker experiments, on an injected clock.

use super::*;

/// A small generator, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }
}

#[test]
fn breaker_small_sample() {
    for (min_requests, expected) in [(1, Kind::Open), (20, Kind::Closed)] {
        let version = version(&[Breaker { min_requests, ..rule("bank") }]);
        fail(&version, &[0], 1, START);
        check(&version, 0, START, expected);
    }
}

/// Ten seconds at `per_second` calls of which every tenth fails.
fn ten_percent_errors(trip: Trip, per_second: u64) -> Kind {
    let version = version(&[Breaker { trip: vec![trip], ..rule("bank") }]);
    for call_number in 0..per_second * 10 {
        let now = at(call_number * 1_000 / per_second);
        let status = if call_number % 10 == 9 { 500 } else { 200 };
        let _ = call(&version, &[0], CallResult::Status(status), QUICK, now);
    }
    version.status(0, HOST, at(9_999)).unwrap().state
}

#[test]
fn breaker_volume() {
    let count = || Trip::ErrorCount { at_least: 150 };
    let ratio = || Trip::ErrorRatio { at_least: half() };
    assert_eq!(ten_percent_errors(count(), 100), Kind::Closed);
    assert_eq!(ten_percent_errors(count(), 200), Kind::Open);
    assert_eq!(ten_percent_errors(ratio(), 100), Kind::Closed);
    assert_eq!(ten_percent_errors(ratio(), 200), Kind::Closed);
}

#[test]
fn breaker_slow() {
    // 98 of 100 calls take 10 ms, two take 2 s: the mean is 50 ms, P99 is 2 s.
    let slow = Trip::SlowRatio {
        slower_than: Duration::from_secs(1),
        at_least: Percentage::from_hundredths(200).unwrap(),
    };
    for (trip, expected) in [(Trip::ErrorRatio { at_least: half() }, Kind::Closed), (slow, Kind::Open)] {
        let version = version(&[Breaker { trip: vec![trip], min_requests: 100, ..rule("bank") }]);
        let mut total = Duration::ZERO;
        for number in 0..100 {
            let elapsed = Duration::from_millis(if number % 50 == 49 { 2_000 } else { 10 });
            total += elapsed;
            call(&version, &[0], CallResult::Status(200), elapsed, START).unwrap();
        }
        assert!(total / 100 < Duration::from_millis(50));
        check(&version, 0, START, expected);
    }
}

#[test]
fn breaker_false_recovery() {
    let version = version(&[rule("bank")]);
    let mut random = Random(1);
    let mut openings: Vec<Duration> = Vec::new();
    let mut reached = 0;
    // Half an hour, ten calls a second. The dependency answers probes and fails everything else.
    for tick in 0..18_000 {
        let now = at(tick * 100);
        let mut moved = Vec::new();
        match version.admit(&[0], HOST, now, random.next()) {
            Ok(admission) => {
                reached += 1;
                let status = if admission.is_probe() { 200 } else { 500 };
                moved = admission.record(CallResult::Status(status), QUICK, now, random.next()).transitions;
            }
            Err(refusal) => assert!(refusal.remaining <= Duration::from_secs(72)),
        }
        if moved.last().is_some_and(|transition| transition.change.to == Kind::Open) {
            openings.push(version.peek(&[0], HOST, now).unwrap_err().remaining);
        }
    }
    for (opening, base) in openings.iter().zip([5, 10, 20, 40, 60, 60, 60]) {
        let base = Duration::from_secs(base);
        assert!(*opening >= base && *opening <= base * 6 / 5, "{openings:?}");
    }
    // Without growth there would be some 250 openings; and each costs a window's worth of calls.
    assert!((25..=32).contains(&openings.len()), "{}", openings.len());
    let cost = openings.len() * 21 - 1;
    assert!((cost..=cost + 20).contains(&reached), "{reached} calls for {} openings", openings.len());
}

#[test]
fn breaker_retry_storm() {
    const CLIENTS: usize = 200;
    let version = version(&[rule("bank")]);
    let mut random = Random(7);
    fail(&version, &[0], 20, START);
    let mut reached = 0;
    let mut next: Vec<Timestamp> = vec![START; CLIENTS];
    let mut first_waits = Vec::new();
    // Each client comes back at the very moment it was told, for five minutes; the dependency stays down.
    let end = at(300_000);
    while let Some(client) = (0..CLIENTS).min_by_key(|client| next[*client]).filter(|c| next[*c] < end) {
        let now = next[client];
        match version.admit(&[0], HOST, now, random.next()) {
            Ok(admission) => {
                assert!(admission.is_probe());
                reached += 1;
                admission.record(CallResult::Timeout, QUICK, now, random.next());
                next[client] = now + Duration::from_millis(1);
            }
            Err(refusal) => {
                if now == START {
                    first_waits.push(refusal.retry_after);
                }
                next[client] = now + refusal.retry_after;
            }
        }
    }
    let trips = version.status(0, HOST, end).unwrap().trips;
    assert_eq!(reached, trips - 1, "only probes reach the dependency");
    assert!((6..=10).contains(&reached), "{reached}");
    // The 200 next attempts are spread over the half that is added, a tenth of them in each tenth of it.
    assert_eq!(first_waits.len(), CLIENTS);
    let mut tenths = [0; 10];
    for wait in first_waits {
        let extra = wait.saturating_sub(Duration::from_secs(5));
        tenths[(extra.as_millis() / 250) as usize] += 1;
    }
    assert!(tenths.iter().all(|count| (8..=36).contains(count)), "{tenths:?}");
}
