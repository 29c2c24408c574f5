use super::*;
use crate::limit::tests::{Bench, SECOND, TODAY, ms, secs};

#[test]
fn l9_denied_calls_are_not_charged() {
    let mut bench = Bench::new(FixedWindow::new(10, SECOND), TODAY);
    assert_eq!(bench.burst(50, TODAY), 10);
    bench.change(FixedWindow::new(20, SECOND), TODAY);
    assert_eq!(bench.burst(50, TODAY), 10);
}

#[test]
fn windows_are_aligned_to_the_epoch_and_meet_at_their_boundary() {
    let mut bench = Bench::new(FixedWindow::new(100, SECOND), ms(0));
    assert_eq!((bench.burst(100, ms(990)), bench.burst(100, ms(1000))), (100, 100));
    let denied = bench.ask(1, ms(1999));
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(1)));
    assert_eq!(denied.reset_after(), Duration::from_millis(1));
    bench.check_retry(1, ms(1999));
}

#[test]
fn a_hot_update_admits_no_more_than_the_lowered_limit() {
    let mut bench = Bench::new(FixedWindow::new(1000, 60 * SECOND), secs(60));
    let first = bench.burst(600, secs(61));
    bench.change(FixedWindow::new(800, 60 * SECOND), secs(62));
    assert_eq!(first + bench.burst(900, secs(63)), 800);
    assert_eq!(bench.ask(1, secs(63)).remaining, 0);
}

#[test]
fn another_window_starts_fresh() {
    let mut bench = Bench::new(FixedWindow::new(10, SECOND), TODAY);
    assert_eq!(bench.burst(10, TODAY), 10);
    bench.change(FixedWindow::new(10, 2 * SECOND), TODAY);
    assert_eq!(bench.burst(20, TODAY), 10);
}
