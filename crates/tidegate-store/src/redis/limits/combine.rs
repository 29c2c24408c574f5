//! Calls in flight at once for the same counters share a command.
//!
//! Whoever comes first to a set of counters asks alone and at once. Those who come while that command is
//! under way wait, and the next command carries all of them, in the order in which they came; each is
//! decided in turn. So a hot key has one command under way at a time, and decides as many calls as come in
//! a round trip; a key with one call at a time waits for nobody.
//!
//! A command that gets no answer answers all that it carried, and those behind it are told that they were
//! not sent: they would only wait as long again. A caller that gives up while it waits is not sent; one
//! that gives up after that is charged, as without sharing.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::batch::{Call, CallDecided, Decided, MAX_BATCH, decode, encode};
use super::exact::{DecideFault, Runner};
use crate::shared::{Counter, Purpose};

/// Sets of counters are spread over so many locks, each held for a few instructions.
const SHARDS: usize = 64;

/// What one call is told: what it was decided, and how many commands it cost (one for the first of those that
/// shared one, none for the others).
type Answer<F> = Result<(Decided, usize), DecideFault<F>>;

type Counters = SmallVec<[Counter; 1]>;
type Shard<F> = Mutex<HashMap<Counters, VecDeque<Waiting<F>>>>;

/// Shares commands between calls.
pub(super) struct Combine<R: Runner>(Arc<Lanes<R>>);

struct Lanes<R: Runner> {
    runner: R,
    /// How long a call may wait for its command and for the one before it.
    patience: Duration,
    hasher: RandomState,
    /// Sets of counters that have a command under way, with who waits for the next.
    shards: Box<[Shard<R::Fault>]>,
}

/// One call in a queue. There are as many as requests under way, which is what bounds the queue.
struct Waiting<F> {
    id: Box<str>,
    costs: SmallVec<[u64; 4]>,
    answer: oneshot::Sender<Answer<F>>,
}

impl<R: Runner> Combine<R> {
    pub(super) fn new(runner: R, patience: Duration) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self(Arc::new(Lanes { runner, patience, hasher: RandomState::new(), shards }))
    }

    pub(super) fn runner(&self) -> &R {
        &self.0.runner
    }

    /// Decides one call on `counters`, charging what is admitted.
    pub(super) async fn ask(&self, counters: &[Counter], call: &Call<'_>) -> Answer<R::Fault> {
        let Some(answer) = self.0.enter(counters, call) else {
            // Nobody is under way: this call leads. Dropped half-way, it leaves those behind it to a task.
            let mut lead = Lead { lanes: Arc::clone(&self.0), counters: counters.into(), over: false };
            let calls = std::slice::from_ref(call);
            let answer = self.0.run(counters, calls).await.map(|decided| (decided, 1));
            lead.end(answer.as_ref().err());
            return answer;
        };
        match tokio::time::timeout(self.0.patience, answer).await {
            Ok(Ok(answer)) => answer,
            // Whoever led is gone with its runtime; the command may have been sent.
            Ok(Err(_)) => Err(DecideFault::Abandoned),
            Err(_) => Err(DecideFault::Late(self.0.patience)),
        }
    }
}

impl<R: Runner> Lanes<R> {
    /// A place in the queue; `None` when there is none, and the caller leads.
    fn enter(&self, counters: &[Counter], call: &Call<'_>) -> Option<oneshot::Receiver<Answer<R::Fault>>> {
        let mut lanes = self.shard(counters).lock();
        let Some(queue) = lanes.get_mut(counters) else {
            lanes.insert(counters.into(), VecDeque::new());
            return None;
        };
        let (answer, answered) = oneshot::channel();
        queue.push_back(Waiting { id: call.id.into(), costs: call.costs.clone(), answer });
        Some(answered)
    }

    fn shard(&self, counters: &[Counter]) -> &Shard<R::Fault> {
        let at = self.hasher.hash_one(counters.first().map(|counter| &counter.key)) as usize % SHARDS;
        &self.shards[at]
    }

    async fn run(&self, counters: &[Counter], calls: &[Call<'_>]) -> Result<Decided, DecideFault<R::Fault>> {
        let reply = self.runner.run(&encode(counters, calls, Purpose::Charge)).await;
        Ok(decode(counters, calls, Purpose::Charge, &reply.map_err(DecideFault::Store)?)?)
    }

    /// The next calls, without those that have given up. With none, the counters are free.
    fn next(&self, counters: &Counters) -> Vec<Waiting<R::Fault>> {
        let mut lanes = self.shard(counters).lock();
        let Some(queue) = lanes.get_mut(counters) else { return Vec::new() };
        let mut batch = Vec::with_capacity(queue.len().min(MAX_BATCH));
        while batch.len() < MAX_BATCH
            && let Some(waiting) = queue.pop_front()
        {
            if !waiting.answer.is_closed() {
                batch.push(waiting);
            }
        }
        if batch.is_empty() {
            lanes.remove(counters);
        }
        batch
    }

    /// Everybody in the queue is told that they were not sent, and the counters are free.
    fn give_up(&self, counters: &Counters) {
        let queue = self.shard(counters).lock().remove(counters);
        for waiting in queue.into_iter().flatten() {
            // Who has gone needs no answer.
            let _ = waiting.answer.send(Err(DecideFault::Behind));
        }
    }
}

/// Whoever has a command under way for these counters, and owes the queue behind it the next.
struct Lead<R: Runner> {
    lanes: Arc<Lanes<R>>,
    counters: Counters,
    over: bool,
}

impl<R: Runner> Lead<R> {
    /// The command has ended.
    fn end(&mut self, fault: Option<&DecideFault<R::Fault>>) {
        self.over = true;
        match fault {
            None => self.hand_over(),
            Some(_) => self.lanes.give_up(&self.counters),
        }
    }

    /// Leaves the queue to a task of its own, if anybody waits.
    fn hand_over(&self) {
        let batch = self.lanes.next(&self.counters);
        if batch.is_empty() {
            return;
        }
        let (lanes, counters) = (Arc::clone(&self.lanes), self.counters.clone());
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(Lead { lanes, counters, over: false }.serve(batch));
            }
            // Without a runtime nothing can be sent any more; those in the batch learn it by its end.
            Err(_) => lanes.give_up(&counters),
        }
    }

    /// Command after command, until nobody waits.
    async fn serve(mut self, mut batch: Vec<Waiting<R::Fault>>) {
        while !batch.is_empty() {
            let decided = {
                let calls: Vec<Call<'_>> = batch
                    .iter()
                    .map(|waiting| Call { id: &waiting.id, costs: waiting.costs.clone() })
                    .collect();
                self.lanes.run(&self.counters, &calls).await
            };
            match decided {
                Ok(decided) => {
                    let Decided { now, windows, calls } = decided;
                    for (at, (waiting, one)) in batch.into_iter().zip(calls).enumerate() {
                        let calls: SmallVec<[CallDecided; 1]> = smallvec![one];
                        let decided = Decided { now, windows: windows.clone(), calls };
                        let _ = waiting.answer.send(Ok((decided, usize::from(at == 0))));
                    }
                }
                Err(fault) => {
                    self.end(Some(&fault));
                    for waiting in batch {
                        let _ = waiting.answer.send(Err(fault.clone()));
                    }
                    return;
                }
            }
            batch = self.lanes.next(&self.counters);
        }
        self.over = true;
    }
}

impl<R: Runner> Drop for Lead<R> {
    fn drop(&mut self) {
        if !self.over {
            // Broken off: what was sent may have been counted, what waits goes on.
            self.hand_over();
        }
    }
}
