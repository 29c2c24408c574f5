use std::cell::Cell;

use proptest::prelude::*;

use super::*;

/// A kernel's clock that is right, and a counter that is what the test makes it.
#[derive(Default)]
struct Bent {
    kernel: Cell<u64>,
    counter: Cell<u64>,
    looks: Cell<u32>,
    /// How long a look takes.
    slow: Cell<u64>,
}

impl Bent {
    fn pass(&self, real: u64, counted: i64) {
        self.kernel.set(self.kernel.get() + real);
        self.counter.set(self.counter.get().saturating_add_signed(counted));
    }
}

impl Source for Bent {
    fn counter(&self) -> u64 {
        self.counter.get()
    }

    fn scaled(&self, start: u64, end: u64) -> u64 {
        end.saturating_sub(start)
    }

    fn kernel(&self) -> u64 {
        self.looks.set(self.looks.get() + 1);
        let slow = self.slow.get();
        self.pass(slow, slow as i64);
        self.kernel.get()
    }
}

#[test]
fn the_kernel_is_asked_once_in_its_reach() {
    const STEP: u64 = REACH / 128;
    let (source, anchor) = (Bent::default(), Anchor::new());
    for step in 0..1_280 {
        assert_eq!(anchor.read(&source), step * STEP);
        source.pass(STEP, STEP as i64);
    }
    assert_eq!(source.looks.get(), 10);
}

#[test]
fn a_look_that_was_held_up_is_told_but_not_built_on() {
    let (source, anchor) = (Bent::default(), Anchor::new());
    source.slow.set(PROMPT + 1);
    assert_eq!(anchor.read(&source), PROMPT + 1);
    assert_eq!(anchor.read(&source), 2 * (PROMPT + 1));
    assert_eq!(source.looks.get(), 2);
}

#[test]
fn the_system_clock_keeps_to_the_kernels() {
    for _ in 0..10_000 {
        let earliest = CLOCKS.kernel();
        let told = nanos();
        let latest = CLOCKS.kernel();
        assert!(told + REACH >= earliest && told <= latest + REACH, "{earliest} {told} {latest}");
    }
}

/// As between two processors that count apart, or after a machine was put to sleep.
#[test]
fn a_counter_that_falls_back_to_just_after_its_anchor_is_late_for_no_longer_than_its_reach() {
    const FAR: u64 = 1_000 * REACH;
    let (source, anchor) = (Bent::default(), Anchor::new());
    let start = anchor.read(&source);
    source.pass(FAR, 1);
    assert_eq!(anchor.read(&source), start + 1, "it cannot know");
    source.pass(REACH, REACH as i64);
    assert_eq!(anchor.read(&source), start + FAR + REACH);
    // Behind the anchor it knows at once.
    source.pass(FAR, -1);
    assert_eq!(anchor.read(&source), start + 2 * FAR + REACH);
}

proptest! {
    /// Whatever the counter does, the time never goes back, and is never off by more than the reach.
    #[test]
    fn a_bent_counter_bends_time_by_no_more_than_its_reach(
        steps in prop::collection::vec((0..2 * REACH, -(3 * REACH as i64)..3 * REACH as i64), 1..200),
    ) {
        let (source, anchor) = (Bent::default(), Anchor::new());
        let mut last = 0;
        for (real, counted) in steps {
            source.pass(real, counted);
            let told = anchor.read(&source);
            prop_assert!(told >= last, "{told} after {last}");
            last = told;
            // Ahead by what the counter was believed for. Behind by what really passed while it stood
            // still or fell back by less than it had counted: that of one step here.
            prop_assert!(told <= source.kernel.get() + REACH, "{told} at {}", source.kernel.get());
        }
        // Once it counts on, the kernel is asked, and the time is right again.
        source.pass(REACH, REACH as i64);
        prop_assert!(anchor.read(&source) <= source.kernel.get() + REACH);
        source.pass(2 * REACH, 2 * REACH as i64);
        prop_assert_eq!(anchor.read(&source), source.kernel.get());
    }
}
