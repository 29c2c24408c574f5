//! Calls in flight for one counter share commands, on a real server.

use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::super::exact::{DecideFault, Reach, Runner, SharedLimits};
use super::*;
use crate::redis::{Redis as Client, RedisConfig};
use crate::traits::BoxFuture;

/// Runs scripts on a server, each for a key with "held" in it when it is let through.
struct Gated {
    runner: RedisRunner,
    gate: Semaphore,
    /// Scripts that are refused before they are sent.
    refuse: Mutex<bool>,
    /// How many calls each command carried.
    carried: Mutex<Vec<usize>>,
}

impl Runner for Arc<Gated> {
    type Fault = &'static str;

    fn run<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Value, &'static str>> {
        Box::pin(async move {
            // Two numbers, six for the limit, and a cost for each call.
            self.carried.lock().unwrap().push(command.args.len() - 8);
            if command.keys[0].contains("held") {
                self.gate.acquire().await.unwrap().forget();
            }
            if *self.refuse.lock().unwrap() {
                return Err("refused");
            }
            self.runner.run(command).await.map_err(|_| "no answer")
        })
    }
}

struct World {
    _server: Redis,
    gated: Arc<Gated>,
    limits: Arc<SharedLimits<Arc<Gated>>>,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn new(patience: Duration) -> Self {
        let server = Redis::start();
        let config = RedisConfig::from_url(&server.url()).unwrap().with_timeout(PATIENCE).unwrap();
        let gated = Arc::new(Gated {
            runner: RedisRunner::new(Client::new(config).unwrap()),
            gate: Semaphore::new(0),
            refuse: Mutex::default(),
            carried: Mutex::default(),
        });
        let limits = Arc::new(SharedLimits::new(Arc::clone(&gated), Reach::All, patience));
        // One thread, so that what is spawned in turn comes in turn.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { _server: server, gated, limits, runtime }
    }

    /// Asks in a task of its own; the answer, or that the call was not sent.
    fn ask(
        &self,
        key: &str,
        limit: u64,
        cost: u64,
    ) -> JoinHandle<Result<SharedOutcome, DecideFault<&'static str>>> {
        let numbers = Numbers::new(&fixed_window(limit, Duration::from_hours(24 * 366)), PERMIT_LIFE);
        let key = KeySpace::new::<&str>(key, &[]).counter([], &numbers);
        let asks = [SharedAsk { counter: Counter { key, numbers, ordinal: 1, mode: Mode::Enforce }, cost }];
        let limits = Arc::clone(&self.limits);
        self.runtime.spawn(async move { limits.decide(&asks, "id", Purpose::Charge).await })
    }

    /// Lets every task run as far as it can without an answer.
    fn settle(&self) {
        self.runtime.block_on(async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        });
    }

    fn carried(&self) -> Vec<usize> {
        self.gated.carried.lock().unwrap().clone()
    }
}

#[test]
fn those_who_come_while_a_command_is_under_way_share_the_next_and_are_decided_in_turn() {
    let world = World::new(PATIENCE);
    let mut calls = vec![world.ask("held", 11, 1)];
    world.settle();
    calls.extend([6, 6, 4].map(|cost| world.ask("held", 11, cost)));
    world.settle();
    // Another counter waits for nobody.
    let other = world.runtime.block_on(world.ask("free", 1, 1)).unwrap().unwrap();
    assert!(other.admitted && other.commands == 1);
    world.gated.gate.add_permits(2);
    let said: Vec<_> = calls.into_iter().map(|call| world.runtime.block_on(call).unwrap().unwrap()).collect();
    let admitted: Vec<bool> = said.iter().map(|said| said.admitted).collect();
    assert_eq!(admitted, [true, true, false, true]);
    assert_eq!(said.iter().map(|said| said.commands).collect::<Vec<_>>(), [1, 1, 0, 0]);
    assert_eq!(world.carried(), [1, 1, 3]);
    let left = said.iter().map(|said| said.verdicts[0].decision.unwrap().remaining);
    assert_eq!(left.collect::<Vec<_>>(), [10, 4, 4, 0]);
}

#[test]
fn a_crowd_on_one_key_gets_exactly_the_limit_by_few_commands() {
    let world = World::new(PATIENCE);
    let calls: Vec<_> = (0..1000).map(|_| world.ask("held-hot", 300, 1)).collect();
    world.settle();
    world.gated.gate.add_permits(1000);
    let said = calls.into_iter().map(|call| world.runtime.block_on(call).unwrap().unwrap());
    assert_eq!(said.filter(|said| said.admitted).count(), 300);
    let carried = world.carried();
    assert_eq!(carried.iter().sum::<usize>(), 1000);
    // All others came while the first was under way.
    assert_eq!(carried, [1, MAX_BATCH, MAX_BATCH, MAX_BATCH, 999 - 3 * MAX_BATCH]);
}

#[test]
fn who_gives_up_while_waiting_is_not_sent_and_who_leads_leaves_the_others_going() {
    let world = World::new(PATIENCE);
    let leader = world.ask("held", 10, 1);
    world.settle();
    let (gone, stays) = (world.ask("held", 10, 5), world.ask("held", 10, 5));
    world.settle();
    gone.abort();
    leader.abort();
    world.settle();
    world.gated.gate.add_permits(1);
    let said = world.runtime.block_on(stays).unwrap().unwrap();
    assert_eq!((said.admitted, said.verdicts[0].decision.unwrap().remaining), (true, 5));
    assert_eq!(world.carried(), [1, 1]);
    // Nothing is left behind: the next call leads again.
    world.gated.gate.add_permits(1);
    assert_eq!(world.runtime.block_on(world.ask("held", 10, 1)).unwrap().unwrap().commands, 1);
}

#[test]
fn without_an_answer_those_who_were_sent_may_be_counted_and_those_behind_are_not() {
    let world = World::new(PATIENCE);
    let first = world.ask("held", 10, 1);
    world.settle();
    let behind = world.ask("held", 10, 1);
    world.settle();
    *world.gated.refuse.lock().unwrap() = true;
    world.gated.gate.add_permits(1);
    assert_eq!(world.runtime.block_on(first).unwrap(), Err(DecideFault::Store("refused")));
    assert_eq!(world.runtime.block_on(behind).unwrap(), Err(DecideFault::Behind));
    assert_eq!(world.carried(), [1]);
    *world.gated.refuse.lock().unwrap() = false;
    world.gated.gate.add_permits(1);
    assert!(world.runtime.block_on(world.ask("held", 10, 1)).unwrap().unwrap().admitted);
}

#[test]
fn nobody_waits_behind_a_slow_command_for_longer_than_the_patience() {
    let patience = Duration::from_millis(20);
    let world = World::new(patience);
    let leader = world.ask("held", 10, 1);
    world.settle();
    let late = world.ask("held", 10, 1);
    assert_eq!(world.runtime.block_on(late).unwrap(), Err(DecideFault::Late(patience)));
    world.gated.gate.add_permits(1);
    assert!(world.runtime.block_on(leader).unwrap().unwrap().admitted);
    assert_eq!(world.carried(), [1]);
}
