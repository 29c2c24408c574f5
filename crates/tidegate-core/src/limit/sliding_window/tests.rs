use super::*;
use crate::limit::tests::{Bench, SECOND, ms};

#[test]
fn the_last_window_weighs_by_its_overlap() {
    let mut bench = Bench::new(SlidingWindow::new(100, SECOND), ms(0));
    assert_eq!(bench.burst(200, ms(500)), 100);
    // (at, what passes): the whole last window still counts at its end, then less and less.
    for (at, expected) in [(1000, 0), (1005, 0), (1010, 1), (1500, 49), (1999, 49), (2000, 1)] {
        assert_eq!(bench.burst(200, ms(at)), expected, "at {at} ms");
    }
}

#[test]
fn retry_is_told_within_a_window_and_across_the_next() {
    let mut bench = Bench::new(SlidingWindow::new(10, SECOND), ms(0));
    assert_eq!(bench.burst(10, ms(300)), 10);
    // In the next window one unit fits once ⌈10 × left⌉ is 9, at 1100 ms.
    assert_eq!(bench.ask(1, ms(300)).retry_after(), Some(Duration::from_millis(800)));
    bench.check_retry(1, ms(300));
    assert_eq!(bench.ask(10, ms(300)).retry_after(), Some(Duration::from_millis(1700)));
    bench.check_retry(10, ms(300));
    assert_eq!(bench.ask(3, ms(1200)).retry_after(), Some(Duration::from_millis(100)));
    bench.check_retry(3, ms(1200));
}

#[test]
fn the_counter_is_fresh_again_two_windows_after_a_call() {
    let mut bench = Bench::new(SlidingWindow::new(10, SECOND), ms(0));
    // (at, cost, how long until the counter equals a fresh one)
    for (at, cost, reset) in
        [(300, 0, 0), (300, 1, 1700), (400, 0, 1600), (1200, 0, 800), (1999, 0, 1), (2000, 0, 0)]
    {
        assert_eq!(bench.ask(cost, ms(at)).reset_after(), Duration::from_millis(reset), "{at}");
    }
}

#[test]
fn another_window_starts_fresh_and_another_limit_does_not() {
    let mut bench = Bench::new(SlidingWindow::new(4, SECOND), ms(0));
    assert_eq!(bench.burst(9, ms(0)), 4);
    bench.change(SlidingWindow::new(6, SECOND), ms(0));
    assert_eq!(bench.burst(9, ms(0)), 2);
    bench.change(SlidingWindow::new(6, 2 * SECOND), ms(0));
    assert_eq!(bench.burst(9, ms(0)), 6);
}
