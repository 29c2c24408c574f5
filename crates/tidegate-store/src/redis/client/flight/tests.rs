use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;

const TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
struct Thing {
    number: u32,
    broken: Arc<AtomicBool>,
}

impl Thing {
    fn new(number: u32) -> Self {
        Self { number, broken: Arc::default() }
    }
}

impl Usable for Thing {
    fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }
}

fn fault() -> ConnectFault {
    ConnectFault::NoMap { why: "a test".into() }
}

async fn get(flight: &Arc<Flight<Thing>>, made: Result<Thing, ConnectFault>) -> Result<u32, NotSent> {
    let make = || async { made };
    flight.get(Instant::now() + TIMEOUT, TIMEOUT, make).await.map(|thing| thing.number)
}

#[tokio::test(start_paused = true)]
async fn many_callers_share_one_attempt() {
    let flight = Flight::new();
    let made = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let (flight, made) = (Arc::clone(&flight), Arc::clone(&made));
            tokio::spawn(async move {
                let make = || async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Ok(Thing::new(made.fetch_add(1, Ordering::Relaxed)))
                };
                flight.get(Instant::now() + TIMEOUT, TIMEOUT, make).await.map(|thing| thing.number)
            })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Ok(0));
    }
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_at_once_until_the_next_attempt_is_due() {
    let flight = Flight::new();
    for attempt in 1..12 {
        assert_eq!(get(&flight, Err(fault())).await, Err(NotSent::Connect(fault())));
        assert_eq!(get(&flight, Ok(Thing::new(1))).await, Err(NotSent::BackOff(fault())));
        let longest = FIRST_PAUSE.saturating_mul(1 << (attempt - 1)).min(MAX_PAUSE);
        tokio::time::advance(longest.mul_f64(0.49)).await;
        assert_eq!(get(&flight, Ok(Thing::new(1))).await, Err(NotSent::BackOff(fault())));
        tokio::time::advance(longest.mul_f64(0.52)).await;
    }
    assert_eq!(get(&flight, Ok(Thing::new(7))).await, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn a_value_that_breaks_is_made_again_at_once_only_if_it_had_proved_itself() {
    let flight = Flight::new();
    let (first, second) = (Thing::new(1), Thing::new(2));
    assert_eq!(get(&flight, Ok(first.clone())).await, Ok(1));
    flight.prove();
    first.broken.store(true, Ordering::Relaxed);
    assert!(flight.current().is_none());
    assert_eq!(get(&flight, Ok(second.clone())).await, Ok(2));
    second.broken.store(true, Ordering::Relaxed);
    assert!(matches!(get(&flight, Ok(Thing::new(3))).await, Err(NotSent::BackOff(_))));
    tokio::time::advance(FIRST_PAUSE).await;
    assert_eq!(get(&flight, Ok(Thing::new(3))).await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_outlives_the_callers_that_gave_up() {
    let flight = Flight::new();
    let slow = || async {
        tokio::time::sleep(TIMEOUT * 2).await;
        Ok(Thing::new(1))
    };
    let waited = flight.get(Instant::now() + TIMEOUT, TIMEOUT, slow).await;
    assert_eq!(waited.map(|thing| thing.number), Err(NotSent::Timeout(TIMEOUT)));
    tokio::time::sleep(TIMEOUT * 2).await;
    assert_eq!(get(&flight, Err(fault())).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_leaves_the_old_value_in_service_and_is_not_repeated_at_once() {
    let flight = Flight::new();
    assert_eq!(get(&flight, Ok(Thing::new(1))).await, Ok(1));
    flight.prove();
    flight.renew(|| async { Err(fault()) });
    tokio::task::yield_now().await;
    assert_eq!(get(&flight, Err(fault())).await, Ok(1));
    tokio::time::advance(RENEW_PAUSE).await;
    for number in 2..4 {
        flight.renew(|| async move { Ok(Thing::new(number)) });
        tokio::task::yield_now().await;
        assert_eq!(get(&flight, Err(fault())).await, Ok(2));
    }
}

#[test]
fn an_attempt_that_is_dropped_with_its_runtime_blocks_nobody() {
    let flight = Flight::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let gone = runtime();
    gone.block_on(async {
        let never = || std::future::pending::<Result<Thing, ConnectFault>>();
        let timeout = Duration::from_millis(1);
        assert!(flight.get(Instant::now() + timeout, timeout, never).await.is_err());
    });
    drop(gone);
    runtime().block_on(async {
        assert_eq!(get(&flight, Ok(Thing::new(1))).await, Err(NotSent::BackOff(ConnectFault::BrokenOff)));
        tokio::time::sleep(FIRST_PAUSE).await;
        assert_eq!(get(&flight, Ok(Thing::new(1))).await, Ok(1));
    });
}
