//! Requests over several limits, on one server and as in a cluster.

use std::sync::{Arc, Mutex};

use super::super::exact::{DecideFault, Reach, Runner, SharedLimits};
use super::*;
use crate::traits::BoxFuture;

/// Runs scripts at [`TODAY`], and loses what a test wants lost.
struct At {
    server: Mutex<Server>,
    /// Which scripts run and whose answers are lost.
    unanswered: Mutex<Vec<Lost>>,
    now: Mutex<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// It never ran.
    Call(Script),
    /// It ran.
    Answer(Script),
}

impl Runner for At {
    type Fault = &'static str;

    fn run<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Value, &'static str>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let lost = self.unanswered.lock().unwrap().clone();
            if lost.contains(&Lost::Call(command.script)) {
                return Err("not sent");
            }
            let now = *self.now.lock().unwrap();
            let reply = self.server.lock().unwrap().run_at(command, now);
            if lost.contains(&Lost::Answer(command.script)) { Err("no answer") } else { Ok(reply) }
        })
    }
}

struct World {
    runtime: tokio::runtime::Runtime,
    limits: SharedLimits<Arc<At>>,
    at: Arc<At>,
}

impl Runner for Arc<At> {
    type Fault = &'static str;

    fn run<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Value, &'static str>> {
        At::run(self, command)
    }
}

impl World {
    fn new(reach: Reach) -> Self {
        let at = Arc::new(At {
            server: Mutex::new(Server::start()),
            unanswered: Mutex::default(),
            now: Mutex::new(TODAY),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { runtime, limits: SharedLimits::new(Arc::clone(&at), reach, PATIENCE), at }
    }

    fn counter(&self, algorithm: &Algorithm) -> Counter {
        self.at.server.lock().unwrap().counter(algorithm)
    }

    fn left(&self, counter: &Counter) -> u64 {
        self.at.server.lock().unwrap().ask(counter, 0, TODAY).remaining
    }

    fn decide(&self, counters: &[(&Counter, u64)]) -> Result<SharedOutcome, DecideFault<&'static str>> {
        let id = self.at.server.lock().unwrap().id();
        let asks: Vec<_> = counters
            .iter()
            .map(|(counter, cost)| SharedAsk { counter: (*counter).clone(), cost: *cost })
            .collect();
        self.runtime.block_on(self.limits.decide(&asks, &id, Purpose::Charge))
    }

    fn lose(&self, lost: &[Lost]) {
        *self.at.unanswered.lock().unwrap() = lost.to_vec();
    }
}

#[test]
fn l10_a_refused_request_is_charged_nowhere_in_one_slot_and_in_several() {
    for reach in [Reach::All, Reach::Slot] {
        let world = World::new(reach);
        for algorithm in one_of_each(10) {
            let [free, full] =
                [world.counter(&algorithm), world.counter(&fixed_window(2, Duration::from_secs(1)))];
            let said: Vec<_> = (0..4).map(|_| world.decide(&[(&free, 1), (&full, 1)]).unwrap()).collect();
            let admitted: Vec<_> = said.iter().map(|outcome| outcome.admitted).collect();
            assert_eq!(admitted, [true, true, false, false], "{algorithm:?} {reach:?}");
            assert_eq!(world.left(&free), 8, "{algorithm:?} {reach:?}");
            assert!(said.iter().all(|outcome| outcome.stranded == 0));
            let verdict = said[2].verdicts[0].decision.unwrap();
            assert_eq!((verdict.admitted(), verdict.remaining), (true, 8), "{algorithm:?} {reach:?}");
            let commands: Vec<_> = said.iter().map(|outcome| outcome.commands).collect();
            // The one that refused is asked first, and the other one not at all.
            let expected = if reach == Reach::All { [1, 1, 1, 1] } else { [2, 2, 3, 1] };
            assert_eq!(commands, expected, "{algorithm:?}");
            let permits = usize::from(free.numbers.kind() == Kind::Concurrency);
            assert_eq!([said[0].permits.len(), said[2].permits.len()], [permits, 0]);
        }
    }
}

#[test]
fn l24_limits_in_different_slots_admit_what_both_allow() {
    let world = World::new(Reach::Slot);
    let [a, b] = [5, 3].map(|limit| world.counter(&sliding_log(limit, Duration::from_secs(1))));
    let admitted = (0..10).filter(|_| world.decide(&[(&a, 1), (&b, 1)]).unwrap().admitted).count();
    assert_eq!(admitted, 3);
    assert_eq!(world.decide(&[(&a, 1)]).unwrap().verdicts[0].decision.unwrap().remaining, 1);
}

#[test]
fn an_answer_that_is_lost_is_given_back_and_never_admits_more() {
    for algorithm in one_of_each(10) {
        let world = World::new(Reach::Slot);
        let kind = Numbers::new(&algorithm, PERMIT_LIFE).kind();
        let other = if kind == Kind::FixedWindow {
            leaky_bucket(1, Duration::from_secs(1), 9)
        } else {
            fixed_window(10, Duration::from_secs(1))
        };
        let [a, b] = [world.counter(&algorithm), world.counter(&other)];
        world.lose(&[Lost::Answer(Script::Decide(kind))]);
        assert_eq!(world.decide(&[(&a, 3), (&b, 3)]), Err(DecideFault::Store("no answer")));
        assert_eq!([world.left(&a), world.left(&b)], [10, 10], "{algorithm:?}");
        world.lose(&[Lost::Call(Script::Decide(kind))]);
        assert_eq!(world.decide(&[(&a, 3), (&b, 3)]), Err(DecideFault::Store("not sent")));
        assert_eq!([world.left(&a), world.left(&b)], [10, 10], "{algorithm:?}");
        // What cannot be given back stays charged.
        let back = [Script::GiveBack, Script::Release].map(Lost::Call);
        world.lose(&[&back[..], &[Lost::Answer(Script::Decide(kind))]].concat());
        assert!(world.decide(&[(&a, 3), (&b, 3)]).is_err());
        assert_eq!([world.left(&a), world.left(&b)], [7, 7], "{algorithm:?}");
    }
}

#[test]
fn what_could_not_be_given_back_is_counted() {
    let world = World::new(Reach::Slot);
    let [a, b, c] = [10, 10, 1].map(|limit| world.counter(&fixed_window(limit, Duration::from_secs(1))));
    world.lose(&[Lost::Call(Script::GiveBack)]);
    let outcome = world.decide(&[(&a, 1), (&b, 1), (&c, 2)]).unwrap();
    assert_eq!((outcome.admitted, outcome.stranded), (false, 2));
    assert_eq!([world.left(&a), world.left(&b), world.left(&c)], [9, 9, 1]);
}

#[test]
fn permits_are_renewed_and_given_back() {
    let world = World::new(Reach::All);
    let [a, b] = [world.counter(&concurrency(1)), world.counter(&concurrency(5))];
    let outcome = world.decide(&[(&a, 1), (&b, 2)]).unwrap();
    assert_eq!(outcome.permits.len(), 2);
    let renewed = world.runtime.block_on(world.limits.renew(&outcome.permits, PERMIT_LIFE));
    assert_eq!(renewed, Ok(vec![true, true]));
    for held in [true, false] {
        let released = world.runtime.block_on(world.limits.release(&outcome.permits));
        assert_eq!(released, Ok(vec![held, held]));
    }
    assert_eq!([world.left(&a), world.left(&b)], [1, 5]);
}

#[test]
fn requests_are_decided_on_a_real_server_by_its_own_clock() {
    let redis = Redis::start();
    let config = crate::redis::RedisConfig::from_url(&redis.url()).unwrap();
    let config = config.with_timeout(Duration::from_secs(5)).unwrap();
    let runner = RedisRunner::new(crate::redis::Redis::new(config).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limits = SharedLimits::new(runner.clone(), runner.reach(), PATIENCE);
    let counter = |algorithm: &Algorithm, id| {
        let numbers = Numbers::new(algorithm, PERMIT_LIFE);
        let key = KeySpace::new(id, &[] as &[&str]).counter([], &numbers);
        Counter { key, numbers, ordinal: 1, mode: Mode::Enforce }
    };
    // L14, at the store: of a hundred at once exactly one.
    let day = Duration::from_hours(24);
    let asks = [
        SharedAsk { counter: counter(&fixed_window(1, 366 * day), "one"), cost: 1 },
        SharedAsk { counter: counter(&concurrency(200), "two"), cost: 1 },
    ];
    let admitted = runtime.block_on(async {
        let ids: Vec<_> = (0..100).map(|id| format!("id-{id}")).collect();
        let mut admitted = 0;
        for id in &ids {
            admitted += usize::from(limits.decide(&asks, id, Purpose::Charge).await.unwrap().admitted);
        }
        admitted
    });
    assert_eq!(admitted, 1);
}

#[test]
fn l24_every_script_runs_in_a_real_cluster() {
    let cluster = tidegate_testkit::redis::Cluster::start();
    let url = format!("redis+cluster://{}", cluster.addresses()[0]);
    let config = crate::redis::RedisConfig::from_url(&url).unwrap();
    let config = config.with_timeout(Duration::from_secs(5)).unwrap();
    let runner = RedisRunner::new(crate::redis::Redis::new(config).unwrap());
    assert_eq!(runner.reach(), Reach::Slot);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limits = SharedLimits::new(runner.clone(), runner.reach(), PATIENCE);
    let year = Duration::from_hours(24 * 366);
    // Nothing comes back by itself while the test runs.
    let algorithms = [
        token_bucket(5, 1, year),
        leaky_bucket(1, year, 4),
        fixed_window(5, year),
        sliding_window(5, year),
        sliding_log(5, year),
        concurrency(5),
    ];
    let counters: Vec<_> = (0..2)
        .flat_map(|copy| {
            algorithms.iter().enumerate().map(move |(at, algorithm)| {
                let numbers = Numbers::new(algorithm, PERMIT_LIFE);
                let key = KeySpace::new(&format!("rule-{copy}-{at}"), &[] as &[&str]).counter([], &numbers);
                Counter { key, numbers, ordinal: 1, mode: Mode::Enforce }
            })
        })
        .collect();
    let ask = |counter: &Counter, cost| SharedAsk { counter: counter.clone(), cost };
    let decide =
        |asks: &[SharedAsk], id: &str| runtime.block_on(limits.decide(asks, id, Purpose::Charge)).unwrap();
    let all: Vec<_> = counters.iter().map(|counter| ask(counter, 2)).collect();
    let outcome = decide(&all, "first");
    assert!(outcome.admitted, "{outcome:?}");
    assert_eq!(outcome.permits.len(), 2);
    assert_eq!(runtime.block_on(limits.renew(&outcome.permits, PERMIT_LIFE)), Ok(vec![true; 2]));
    let mut more = all.clone();
    more[2].cost = 4;
    let refused = decide(&more, "second");
    assert_eq!((refused.admitted, refused.stranded), (false, 0), "{refused:?}");
    for (at, counter) in counters.iter().enumerate() {
        let left = decide(&[ask(counter, 0)], "look").verdicts[0].decision.unwrap().remaining;
        // A bucket is not credited what time has paid of the charge: a part of a token.
        let least = if at % 6 < 2 { 2 } else { 3 };
        assert!((least..=3).contains(&left), "{counter:?} {left}");
    }
    assert_eq!(runtime.block_on(limits.release(&outcome.permits)), Ok(vec![true; 2]));
    // In one slot several limits share a script here too.
    let one = |kind: usize| {
        let numbers = Numbers::new(&algorithms[kind], PERMIT_LIFE);
        let key = KeySpace::new("same-slot", &[] as &[&str]).counter([], &numbers);
        ask(&Counter { key, numbers, ordinal: 1, mode: Mode::Enforce }, 3)
    };
    let same: Vec<_> = (0..6).map(one).collect();
    let said = ["a", "b"].map(|id| decide(&same, id));
    assert_eq!([said[0].admitted, said[1].admitted], [true, false]);
    assert_eq!([said[0].commands, said[1].commands], [1, 1]);
}

#[test]
fn a_counter_is_asked_once() {
    let world = World::new(Reach::All);
    let a = world.counter(&concurrency(1));
    assert!(matches!(world.decide(&[(&a, 1), (&a, 1)]), Err(DecideFault::AskedTwice(_))));
}

#[test]
fn a_request_waits_for_the_longest_of_its_turns() {
    let world = World::new(Reach::Slot);
    let second = Duration::from_secs(1);
    let [slow, fast] = [1, 10].map(|count| world.counter(&leaky_bucket(count, second, 9)));
    let shadow = Counter { mode: Mode::Shadow, ..world.counter(&leaky_bucket(1, 60 * second, 9)) };
    let waits = [0, 1, 2].map(|_| world.decide(&[(&slow, 1), (&fast, 1), (&shadow, 1)]).unwrap().wait);
    assert_eq!(waits, [Duration::ZERO, second, 2 * second]);
}
