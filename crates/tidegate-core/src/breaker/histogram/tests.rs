use proptest::prelude::*;

use super::*;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

#[test]
fn classes_cover_every_latency_without_a_gap() {
    assert_eq!(class(0), 0);
    for index in 0..CLASSES - 1 {
        assert_eq!(class(upper_edge(index)), index);
        assert_eq!(class(upper_edge(index) + 1), index + 1);
    }
    for long in [upper_edge(CLASSES - 1), upper_edge(CLASSES - 1) + 1, u64::MAX] {
        assert_eq!(class(long), CLASSES - 1);
    }
    assert_eq!((class(1_023), class(1_024), upper_edge(0)), (0, 1, 1_023));
    assert_eq!(CLASSES, 464);
}

#[test]
fn an_empty_histogram_says_zero() {
    let made: Histogram = Histogram::new(Duration::from_mins(1));
    assert_eq!(made.quantiles(at(0)), Quantiles::default());
    assert_eq!(made.quantiles(Timestamp::MAX), Quantiles::default());
}

#[test]
fn a_mean_hides_what_the_tail_shows() {
    let made: Histogram = Histogram::new(Duration::from_mins(1));
    let now = Timestamp::from_secs(1_000);
    for _ in 0..98 {
        made.record(Duration::from_millis(10), now);
    }
    made.record(Duration::from_secs(3), now);
    made.record(Duration::from_secs(3), now);
    let seen = made.quantiles(now);
    assert_eq!(seen.calls, 100);
    for (got, low, high) in [(seen.p50, 10, 11), (seen.p90, 10, 11), (seen.p99, 3_000, 3_188)] {
        assert!(got >= Duration::from_millis(low) && got <= Duration::from_millis(high), "{seen:?}");
    }
    assert_eq!(made.quantiles(now + Duration::from_secs(100)), Quantiles::default(), "the past is past");
}

#[test]
fn parts_are_added_up() {
    let now = Timestamp::from_secs(1_000);
    let parts: [Histogram; 2] = std::array::from_fn(|_| Histogram::new(Duration::from_mins(1)));
    parts[0].record(Duration::from_millis(1), now);
    parts[1].record(Duration::from_millis(100), now);
    let seen = quantiles(&parts, now);
    assert_eq!(seen.calls, 2);
    assert!(seen.p50 < Duration::from_millis(2) && seen.p99 >= Duration::from_millis(100), "{seen:?}");
}

proptest! {
    #[test]
    fn quantiles_are_never_below_and_at_most_a_sixteenth_above(
        mut latencies in prop::collection::vec(0_u64..4_000_000_000_000, 1..300),
    ) {
        let now = Timestamp::from_secs(1_000);
        let made: Histogram = Histogram::new(Duration::from_mins(1));
        for latency in &latencies {
            made.record(Duration::from_nanos(*latency), now);
        }
        latencies.sort_unstable();
        let seen = made.quantiles(now);
        prop_assert_eq!(seen.calls, latencies.len() as u64);
        for (percent, got) in [(50, seen.p50), (90, seen.p90), (99, seen.p99)] {
            let truth = latencies[(latencies.len() * percent).div_ceil(100) - 1];
            let got = nanos(got);
            prop_assert!(got >= truth && got <= truth + truth / 16 + 1_024, "p{percent}: {got} for {truth}");
        }
    }
}
