use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

impl Word for loom::sync::atomic::AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }

    fn replace(&self, old: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).map(drop)
    }
}

const START: u64 = 1 << 60;

fn window(nanos: u64, buckets: u32, classes: usize) -> Window {
    Window::new(Duration::from_nanos(nanos), buckets, classes)
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

#[test]
fn a_length_becomes_buckets_of_a_power_of_two() {
    for (length, most, buckets, tick) in [
        (0, 16, 1, 1),
        (1, 16, 1, 1),
        (16, 16, 16, 1),
        (17, 16, 9, 2),
        (1_000, 16, 16, 64),
        (1_024, 16, 16, 64),
        (1_025, 16, 9, 128),
        (10_000_000_000, 16, 10, 1 << 30),
        (1_000, 1, 1, 1_024),
        (1_000, 0, 1, 1_024),
        (u64::MAX, 16, 16, 1 << 60),
        (u64::MAX, 1, 1, u64::MAX),
    ] {
        let made = window(length, most, 1);
        assert_eq!(made.buckets(), buckets, "{length} {most}");
        assert_eq!(made.tick_length(), Duration::from_nanos(tick), "{length} {most}");
    }
}

#[test]
fn counts_leave_the_window_tick_by_tick() {
    let made = window(4, 4, 2);
    assert_eq!((made.buckets(), made.tick_length()), (4, Duration::from_nanos(1)));
    for tick in 0..4 {
        for _ in 0..=tick {
            made.record(0, at(START + tick));
        }
    }
    made.record(1, at(START + 3));
    for (now, expected) in
        [(3, [10, 1]), (4, [9, 1]), (5, [7, 1]), (6, [4, 1]), (7, [0, 0]), (8, [0, 0]), (1 << 20, [0, 0])]
    {
        assert_eq!(made.counts(at(START + now)).as_slice(), expected, "{now}");
    }
}

#[test]
fn a_class_out_of_range_counts_in_the_last() {
    let made = window(4, 4, 2);
    for tick in 0..4 {
        made.record(7, at(START + tick));
        assert_eq!(made.counts(at(START + tick)).as_slice(), [0, tick + 1]);
    }
    let made = window(4, 4, 0);
    made.record(0, at(START));
    made.record(1, at(START));
    assert_eq!(made.counts(at(START)).as_slice(), [2]);
}

#[test]
fn adding_up_adds_to_what_is_there_and_saturates() {
    let made = window(4, 4, 2);
    made.record(0, at(START));
    made.record(1, at(START));
    let mut counts = [5, u64::MAX];
    made.add_to(&mut counts, at(START));
    assert_eq!(counts, [6, u64::MAX]);
}

#[test]
fn b16_one_bucket_zero_length_a_frozen_and_a_backward_clock_stay_bounded() {
    for made in [window(0, 0, 2), window(0, 16, 2), window(1_000, 1, 2), window(u64::MAX, 1, 2)] {
        for now in [0, 0, START, START, START - 1, u64::MAX, 0, 5] {
            made.record(1, at(now));
            let counts = made.counts(at(now));
            assert!((1..=8).contains(&counts[1]), "{counts:?}");
            assert_eq!(counts[0], 0);
        }
    }
    // Frozen: all of them stay.
    let frozen = window(1_000, 16, 1);
    for _ in 0..100 {
        frozen.record(0, at(START));
    }
    assert_eq!(frozen.counts(at(START)).as_slice(), [100]);
    // Back by less than the window: nothing is forgotten, and new results count.
    frozen.record(0, at(START - 300));
    assert_eq!(frozen.counts(at(START - 300)).as_slice(), [101]);
    // Back by far more: old buckets are recycled as they are met.
    let back = window(4, 4, 1);
    for tick in 0..4 {
        back.record(0, at(START + tick));
    }
    for tick in 0..4 {
        back.record(0, at(START - 1_000 + tick));
    }
    assert_eq!(back.counts(at(START - 997)).as_slice(), [4]);
}

#[test]
fn what_comes_one_lap_late_counts_as_new() {
    let made = window(4, 4, 1);
    made.record(0, at(START + 4));
    made.record(0, at(START));
    assert_eq!(made.counts(at(START + 4)).as_slice(), [2]);
    assert_eq!(made.counts(at(START)).as_slice(), [2], "a slow reader sees it as well");
    // Two laps late is no slow thread but a clock that stepped.
    made.record(0, at(START - 4));
    assert_eq!(made.counts(at(START - 4)).as_slice(), [1]);
}

#[test]
fn a_count_stops_at_its_end_instead_of_spilling_into_the_tick() {
    let made = window(4, 4, 1);
    made.record(0, at(START));
    let slot = (START % 4) as usize;
    let full = Word::load(&made.words[slot]) | u64::from(u32::MAX);
    made.words[slot].store(full - 1, Ordering::SeqCst);
    for _ in 0..3 {
        made.record(0, at(START));
    }
    assert_eq!(made.counts(at(START)).as_slice(), [u64::from(u32::MAX)]);
}

proptest! {
    #[test]
    fn it_counts_what_a_plain_list_counts(
        length in 1_u64..5_000,
        buckets in 1_u32..20,
        steps in prop::collection::vec((0_u64..400, 0_usize..3), 1..200),
    ) {
        let made = window(length, buckets, 3);
        let tick = u64::try_from(made.tick_length().as_nanos()).unwrap();
        prop_assert!(made.buckets() <= buckets);
        prop_assert!(u64::from(made.buckets()) * tick >= length);
        prop_assert!((u64::from(made.buckets()) - 1) * tick < length);
        let mut list = Vec::new();
        let mut now = START;
        for (step, class) in steps {
            now += step;
            made.record(class, at(now));
            list.push((now / tick, class));
            let first = now / tick + 1 - u64::from(made.buckets());
            for class in 0..3 {
                let expected = list.iter().filter(|(t, c)| *t >= first && *c == class).count() as u64;
                prop_assert_eq!(made.counts(at(now))[class], expected);
            }
        }
    }

    #[test]
    fn no_input_panics_or_counts_too_much(
        length in any::<u64>(),
        buckets in any::<u32>(),
        times in prop::collection::vec(any::<u64>(), 1..50),
    ) {
        let made = window(length, buckets.min(64), 2);
        for (index, now) in times.iter().enumerate() {
            made.record(index % 2, at(*now));
            let counts = made.counts(at(*now));
            prop_assert!(counts[index % 2] >= 1);
            prop_assert!(counts[0] + counts[1] <= index as u64 + 1);
        }
    }
}

#[test]
fn two_threads_that_recycle_one_bucket_lose_nothing() {
    for round in 0..200_u64 {
        let made = Arc::new(window(4, 4, 2));
        made.record(1, at(START + round));
        let later = at(START + round + 40);
        std::thread::scope(|scope| {
            for class in 0..2 {
                let made = &made;
                scope.spawn(move || (0..50).for_each(|_| made.record(class, later)));
            }
            let made = &made;
            scope.spawn(move || (0..50).for_each(|_| made.record(1, later)));
        });
        assert_eq!(made.counts(later).as_slice(), [50, 100], "{round}");
    }
}

#[test]
fn loom_two_threads_recycle_one_bucket() {
    loom::model(|| {
        let made: Arc<Window<loom::sync::atomic::AtomicU64>> =
            Arc::new(Window::new(Duration::from_nanos(2), 2, 2));
        made.record(1, at(START));
        let other = Arc::clone(&made);
        let thread = loom::thread::spawn(move || other.record(1, at(START + 40)));
        made.record(1, at(START + 40));
        thread.join().unwrap();
        assert_eq!(made.counts(at(START + 40)).as_slice(), [0, 2]);
    });
}

#[test]
fn loom_a_late_thread_neither_empties_nor_doubles_a_newer_bucket() {
    loom::model(|| {
        let made: Arc<Window<loom::sync::atomic::AtomicU64>> =
            Arc::new(Window::new(Duration::from_nanos(2), 2, 1));
        let other = Arc::clone(&made);
        let thread = loom::thread::spawn(move || other.record(0, at(START)));
        made.record(0, at(START + 2));
        let counted = made.counts(at(START + 2))[0];
        assert!((1..=2).contains(&counted), "{counted}");
        thread.join().unwrap();
        let counted = made.counts(at(START + 2))[0];
        assert!((1..=2).contains(&counted), "{counted}");
    });
}

#[test]
fn loom_of_two_that_count_and_add_up_one_sees_both() {
    loom::model(|| {
        let made: Arc<Window<loom::sync::atomic::AtomicU64>> =
            Arc::new(Window::new(Duration::from_nanos(1), 1, 1));
        let other = Arc::clone(&made);
        let thread = loom::thread::spawn(move || {
            other.record(0, at(START));
            other.counts(at(START))[0]
        });
        made.record(0, at(START));
        let mine = made.counts(at(START))[0];
        assert_eq!(mine.max(thread.join().unwrap()), 2);
    });
}
