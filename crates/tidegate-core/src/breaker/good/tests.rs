use std::sync::Arc;

use loom::sync::atomic::AtomicU64 as LoomWord;
use proptest::prelude::*;

use super::*;
use crate::breaker::Window;

const START: u64 = 1 << 60;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn shape(nanos: u64) -> Shape {
    Shape::new(Duration::from_nanos(nanos))
}

#[test]
fn an_era_differs_from_every_other_and_only_its_own_counts() {
    let good = Good::<AtomicU64>::default();
    let length = Duration::from_secs(10);
    let mut eras = vec![Shape::new(length)];
    for _ in 0..600 {
        eras.push(eras[eras.len() - 1].next(length));
    }
    assert!(!eras.contains(&Shape::CHANGING));
    let now = at(START);
    for pair in eras.windows(2) {
        good.clear();
        good.record(pair[1], now);
        good.record(pair[0], now);
        assert_eq!((good.count(pair[1], now), good.count(pair[0], now)), (1, 0));
    }
    let shorter = eras[7].next(Duration::from_secs(1));
    assert_eq!(shorter.bits() & 0xffff, shape(1_000_000_000).bits());
    assert_eq!(shorter.bits() >> 16, 8);
}

#[test]
fn the_window_says_when_a_result_leaves_it() {
    for (length, now) in [(4, START), (10_000_000_000, START + 12_345), (u64::MAX, START), (1, u64::MAX)] {
        let (good, shape) = (Good::<AtomicU64>::default(), shape(length));
        good.record(shape, at(now));
        let leaves = shape.leaves(at(now));
        assert_eq!(good.count(shape, leaves.before(Duration::from_nanos(1))), 1, "{length} {now}");
        if leaves < Timestamp::MAX {
            assert_eq!(good.count(shape, leaves), 0, "{length} {now}");
        }
    }
}

#[test]
fn a_count_stops_at_its_end() {
    let (good, shape) = (Good::<AtomicU64>::default(), shape(16));
    good.record(shape, at(START));
    let full = (u64::from(shape.tag(START)) << 32) | u64::from(u32::MAX - 1);
    good.words[0].store(full, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..3 {
        good.record(shape, at(START));
    }
    assert_eq!(good.count(shape, at(START)), u64::from(u32::MAX));
}

#[test]
fn a_shape_is_its_ticks_their_number_and_its_era() {
    for (length, shift, buckets, tick) in [(16, 0, 16, START), (17, 1, 9, START / 2), (u64::MAX, 60, 16, 1)] {
        let mut made = shape(length);
        for era in 0..3 {
            assert_eq!((made.shift(), made.buckets()), (shift, buckets), "{length}");
            assert_eq!(made.bits(), (era << 16) + (u64::from(buckets) << 8) + u64::from(shift));
            assert_eq!(Shape::from_bits(made.bits()), made);
            assert_eq!(made.tick(at(START)), tick);
            assert_eq!(made.tag(tick), ((era as u32) << 24) + (tick as u32 & 0xff_ffff));
            made = made.next(Duration::from_nanos(length));
        }
    }
    assert_eq!(Shape::from_bits(0x7f).tick(at(u64::MAX)), 0, "a shift that nobody made");
    assert_eq!(shape(16).leaves(at(START)), at(START + 16));
    assert_eq!(shape(17).leaves(at(START + 1)), at(START + 18));
    assert_eq!(shape(u64::MAX).leaves(Timestamp::MAX), Timestamp::MAX);
}

#[test]
fn results_of_an_older_era_are_stragglers_and_of_a_newer_one_begin_anew() {
    let (good, old) = (Good::<AtomicU64>::default(), shape(16));
    let new = old.next(Duration::from_nanos(16));
    for _ in 0..3 {
        good.record(old, at(START));
    }
    assert_eq!((good.count(old, at(START)), good.count(new, at(START))), (3, 0));
    good.record(new, at(START));
    good.record(old, at(START));
    assert_eq!((good.count(old, at(START)), good.count(new, at(START))), (0, 1));
    good.clear();
    assert!(good.words.iter().all(|word| Word::load(word) == 0));
    assert_eq!(good.count(new, at(START)), 0);
    // In an empty ring nobody is a straggler.
    good.record(old, at(START));
    assert_eq!(good.count(old, at(START)), 1);
}

#[test]
fn a_result_counts_up_to_a_ring_late_and_for_as_many_ticks_as_the_window_has() {
    for (length, buckets) in [(16, 16), (9, 9), (1, 1)] {
        let shape = shape(length);
        for late in [0, 1, 8, 15, 16, 17, 40] {
            let good = Good::<AtomicU64>::default();
            good.record(shape, at(START + late));
            assert_eq!(good.count(shape, at(START)), u64::from(late <= 16), "{length}: {late} late");
        }
        for later in [0, 1, 8, 9, 15, 16, 17] {
            let good = Good::<AtomicU64>::default();
            good.record(shape, at(START));
            assert_eq!(
                good.count(shape, at(START + later)),
                u64::from(later < buckets),
                "{length}: {later} later"
            );
        }
        // A late result joins a bucket that is a ring ahead, and no other.
        for (ahead, counted) in [(16, 2), (32, 1)] {
            let good = Good::<AtomicU64>::default();
            good.record(shape, at(START + ahead));
            good.record(shape, at(START));
            let word = Word::load(&good.words[START as usize & 15]);
            assert_eq!(word & u64::from(u32::MAX), counted, "{length}: {ahead} ahead");
        }
    }
}

proptest! {
    /// What a window counts of one class, with the same clock, forwards and in small steps back.
    #[test]
    fn it_counts_what_a_window_counts(
        length in 1_u64..5_000,
        steps in prop::collection::vec((0_u64..400, 0_u64..3), 1..200),
    ) {
        let good = Good::<AtomicU64>::default();
        let (window, shape) = (Window::<AtomicU64>::new(Duration::from_nanos(length), BUCKETS, 1), shape(length));
        let mut now = START;
        for (step, times) in steps {
            now += step;
            for _ in 0..times {
                good.record(shape, at(now));
                window.record(0, at(now));
            }
            for later in [0, 1, length / 2, length, 2 * length] {
                prop_assert_eq!(good.count(shape, at(now + later)), window.counts(at(now + later))[0]);
            }
        }
    }

    #[test]
    fn no_input_panics_or_counts_too_much(
        length in any::<u64>(),
        times in prop::collection::vec((any::<u64>(), any::<u64>()), 1..50),
    ) {
        let good = Good::<AtomicU64>::default();
        for (index, (now, bits)) in times.iter().enumerate() {
            good.record(shape(length), at(*now));
            let count = good.count(shape(length), at(*now));
            prop_assert!((1..=index as u64 + 1).contains(&count), "{}", count);
            // A shape that nobody made.
            let odd = Shape::from_bits(*bits);
            let other = Good::<AtomicU64>::default();
            other.record(odd, at(*now));
            other.count(odd, at(*now));
            odd.leaves(at(*now));
        }
    }
}

/// A thread that was admitted in one era and is held up until the next has begun.
#[test]
fn loom_a_straggler_counts_for_nothing_in_the_next_era() {
    loom::model(|| {
        let good: Arc<Good<LoomWord>> = Arc::new(Good::default());
        let old = shape(1);
        let new = old.next(Duration::from_nanos(1));
        good.record(old, at(START));
        let other = Arc::clone(&good);
        let straggler = loom::thread::spawn(move || other.record(old, at(START)));
        let word = &good.words[START as usize & 15];
        let mut seen = Word::load(word);
        while let Err(found) = word.replace(seen, 0) {
            seen = found;
        }
        good.record(new, at(START));
        good.record(new, at(START));
        assert_eq!(good.count(new, at(START)), 2);
        straggler.join().unwrap();
        assert_eq!(good.count(new, at(START)), 2);
    });
}

#[test]
fn loom_of_two_that_count_none_is_lost_as_the_ring_comes_round() {
    loom::model(|| {
        let good: Arc<Good<LoomWord>> = Arc::new(Good::default());
        let shape = shape(16);
        good.record(shape, at(START));
        let other = Arc::clone(&good);
        let thread = loom::thread::spawn(move || other.record(shape, at(START + 40 * 16)));
        good.record(shape, at(START + 40 * 16));
        thread.join().unwrap();
        assert_eq!(good.count(shape, at(START + 40 * 16)), 2);
    });
}
