//! Calls in flight for one counter share commands, on a real server.

use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::super::combine::MAX_WAITING;
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
            if let Script::Decide(_) = command.script {
                // Two numbers, six for the limit, and for each call a cost, behind its id where it has one.
                let each = if command.args[1] == "0" { 1 } else { 2 };
                self.carried.lock().unwrap().push((command.args.len() - 8) / each);
            }
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

type Asked = JoinHandle<Result<SharedOutcome, DecideFault<&'static str>>>;

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
    fn ask(&self, key: &str, limit: u64, cost: u64) -> Asked {
        let window = fixed_window(limit, Duration::from_hours(24 * 366));
        self.ask_as("id", &counter(key, &window), cost, Purpose::Charge)
    }

    fn ask_as(&self, id: &'static str, counter: &Counter, cost: u64, purpose: Purpose) -> Asked {
        let asks = [SharedAsk { counter: counter.clone(), cost }];
        let limits = Arc::clone(&self.limits);
        self.runtime.spawn(async move { limits.decide(&asks, id, purpose).await })
    }

    /// Lets every task run as far as it can without an answer: thousands of them, some dozens at each turn.
    fn settle(&self) {
        self.runtime.block_on(async {
            for _ in 0..200 {
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
    // It had been sent, beside the command before it, and was counted.
    world.gated.gate.add_permits(2);
    assert!(world.runtime.block_on(leader).unwrap().unwrap().admitted);
    assert_eq!(world.carried(), [1, 1]);
}

#[test]
fn who_waits_behind_a_slow_command_is_sent_beside_it() {
    let world = World::new(Duration::from_millis(400));
    let leader = world.ask("held", 3, 1);
    world.settle();
    let behind = [1, 1].map(|cost| world.ask("held", 3, cost));
    world.runtime.block_on(async {
        while world.carried() != [1, 2] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(!leader.is_finished());
    // Others come while two commands are under way, and wait for the first of them to end.
    let late = world.ask("held", 3, 1);
    world.settle();
    world.gated.gate.add_permits(3);
    let said = [leader].into_iter().chain(behind).chain([late]);
    let said: Vec<_> = said.map(|call| world.runtime.block_on(call).unwrap().unwrap().admitted).collect();
    assert_eq!(said, [true, true, true, false]);
    assert_eq!(world.carried(), [1, 2, 1]);
    // Nothing is left behind.
    world.gated.gate.add_permits(1);
    assert_eq!(world.runtime.block_on(world.ask("held", 3, 1)).unwrap().unwrap().commands, 1);
}

#[test]
fn calls_that_can_be_given_back_share_commands_among_themselves() {
    let world = World::new(PATIENCE);
    let counter = counter("held", &sliding_log(10, Duration::from_hours(24)));
    let ask = |id, cost, purpose| world.ask_as(id, &counter, cost, purpose);
    let mut calls = vec![ask("a", 1, Purpose::Reserve)];
    world.settle();
    calls.extend([
        ask("b", 2, Purpose::Reserve),
        ask("c", 3, Purpose::Reserve),
        ask("d", 1, Purpose::Charge),
    ]);
    world.settle();
    assert_eq!(world.carried(), [1, 1]);
    world.gated.gate.add_permits(3);
    for call in calls {
        assert!(world.runtime.block_on(call).unwrap().unwrap().admitted);
    }
    assert_eq!(world.carried(), [1, 1, 2]);
    // Each is known by its own id. What only looks goes alone.
    world.gated.gate.add_permits(2);
    let asks = [SharedAsk { counter: counter.clone(), cost: 2 }];
    world.runtime.block_on(world.limits.give_back(&asks, "b")).unwrap();
    let left = world.runtime.block_on(ask("e", 1, Purpose::Peek)).unwrap().unwrap();
    assert_eq!(left.verdicts[0].decision.unwrap().remaining, 4);
}

#[test]
fn a_permit_whose_caller_has_gone_is_given_back() {
    let world = World::new(PATIENCE);
    let counter = counter("held", &concurrency(10));
    let ask = |id, cost| world.ask_as(id, &counter, cost, Purpose::Charge);
    let leader = ask("leader", 1);
    world.settle();
    let (gone, stays) = (ask("gone", 5), ask("stays", 2));
    world.settle();
    world.gated.gate.add_permits(1);
    world.runtime.block_on(leader).unwrap().unwrap();
    world.settle();
    assert_eq!(world.carried(), [1, 2]);
    gone.abort();
    world.settle();
    world.gated.gate.add_permits(1);
    let said = world.runtime.block_on(stays).unwrap().unwrap();
    // It was charged in its turn; when nobody took the answer, it went back.
    assert_eq!((said.permits.len(), said.verdicts[0].decision.unwrap().remaining), (1, 2));
    world.gated.gate.add_permits(1_000);
    let free = async {
        while world
            .limits
            .decide(&[SharedAsk { counter: counter.clone(), cost: 1 }], "look", Purpose::Peek)
            .await
            .unwrap()
            .verdicts[0]
            .decision
            .unwrap()
            .remaining
            != 6
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    world.runtime.block_on(async { tokio::time::timeout(PATIENCE, free).await }).unwrap();
}

#[test]
fn a_queue_is_bounded_and_what_finds_it_full_goes_alone() {
    let world = World::new(PATIENCE);
    let mut calls = vec![world.ask("held", 2, 1)];
    world.settle();
    calls.extend((0..MAX_WAITING).map(|_| world.ask("held", 2, 1)));
    world.settle();
    assert_eq!(world.carried(), [1]);
    calls.push(world.ask("held", 2, 1));
    world.settle();
    assert_eq!(world.carried(), [1, 1]);
    world.gated.gate.add_permits(2 + MAX_WAITING / MAX_BATCH);
    let said = calls.into_iter().map(|call| world.runtime.block_on(call).unwrap().unwrap());
    assert_eq!(said.filter(|said| said.admitted).count(), 2);
}
