//! Calls in flight at once for the same counters share a command.
//!
//! Whoever comes first to a set of counters asks alone and at once. Those who come while that command is
//! under way wait, and the next command carries all of them, in the order in which they came; each is
//! decided in turn. So a hot key has one command under way at a time, and decides as many calls as come in
//! a round trip; a key with one call at a time waits for nobody, and costs no task. Where a round trip takes
//! more than a fourth of the time that a call may take, those who wait are sent before it is over: else a
//! distant store would answer none of them in time.
//!
//! A command that gets no answer answers all that it carried, and those behind it are told that they were
//! not sent: they would only wait as long again. A caller that gives up while it waits is not sent. One
//! that gives up after that is charged, as without sharing; a concurrency permit that it would have got is
//! given back by its id when the answer finds nobody, and ends by itself where that cannot be done.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::batch::{Call, CallDecided, Decided, MAX_BATCH, decode, encode};
use super::exact::{DecideFault, Runner};
use super::returns::{permits_of, release};
use crate::shared::{Counter, Purpose};

/// Sets of counters are spread over so many locks, each held for a few instructions; as many again hold
/// those whose calls are remembered.
const SHARDS: usize = 64;
/// Sets of counters under one lock. Calls for more than these go alone, each by its own command.
const MAX_SETS: usize = 1024;
/// Calls that wait for one set of counters. More go alone, too.
pub(super) const MAX_WAITING: usize = 16 * MAX_BATCH;
/// After this part of its time, a call that still waits is sent beside the command before it.
const HURRY: u32 = 4;

/// What one call is told: what it was decided, and how many commands it cost (one for the first of those that
/// shared one, none for the others).
type Answer<F> = Result<(Decided, usize), DecideFault<F>>;

type Counters = Arc<[Counter]>;
type Shard<F> = Mutex<HashMap<Counters, Lane<F>>>;

/// Shares commands between calls.
pub(super) struct Combine<R: Runner>(Arc<Lanes<R>>);

struct Lanes<R: Runner> {
    runner: R,
    /// How long a call may wait for its command and for the one before it.
    patience: Duration,
    hasher: RandomState,
    /// Sets of counters that have a command under way.
    shards: Box<[Shard<R::Fault>]>,
}

/// One set of counters.
struct Lane<F> {
    /// Commands under way, or about to be sent; from 1.
    leads: usize,
    /// Who waits for the next.
    queue: VecDeque<Waiting<F>>,
    /// How many have waited.
    tickets: u64,
}

/// One call in a queue.
struct Waiting<F> {
    ticket: u64,
    id: Box<str>,
    costs: SmallVec<[u64; 4]>,
    answer: oneshot::Sender<Answer<F>>,
}

/// Where a call finds itself.
enum Place<F> {
    /// Nobody is under way: it goes at once, and owes those who come meanwhile the next command.
    Lead(Counters),
    /// In the queue.
    Wait(u64, oneshot::Receiver<Answer<F>>),
    /// There are too many; it goes at once, for itself.
    Alone,
}

impl<R: Runner> Combine<R> {
    pub(super) fn new(runner: R, patience: Duration) -> Self {
        let shards = (0..2 * SHARDS).map(|_| Mutex::default()).collect();
        Self(Arc::new(Lanes { runner, patience, hasher: RandomState::new(), shards }))
    }

    pub(super) fn runner(&self) -> &R {
        &self.0.runner
    }

    /// Decides one call on `counters`. Where it only looks, it goes alone: each such call is answered as if it
    /// were the only one.
    pub(super) async fn ask(
        &self,
        counters: &[Counter],
        call: &Call<'_>,
        purpose: Purpose,
    ) -> Answer<R::Fault> {
        let calls = std::slice::from_ref(call);
        let place =
            if purpose == Purpose::Peek { Place::Alone } else { self.0.enter(counters, call, purpose) };
        let (ticket, mut answer) = match place {
            Place::Alone => return self.0.run(counters, calls, purpose).await.map(|decided| (decided, 1)),
            Place::Lead(counters) => {
                // Dropped half-way, it leaves those behind it to a task.
                let mut lead = Lead { lanes: Arc::clone(&self.0), counters, purpose, over: false };
                let decided = self.0.run(&lead.counters, calls, purpose).await;
                lead.end(decided.is_err());
                return decided.map(|decided| (decided, 1));
            }
            Place::Wait(ticket, answer) => (ticket, answer),
        };
        let soon = self.0.patience / HURRY;
        let answered = match timeout(soon, &mut answer).await {
            Err(_) => {
                self.hurry(counters, purpose, ticket);
                timeout(self.0.patience.saturating_sub(soon), answer).await
            }
            answered => answered,
        };
        match answered {
            Ok(Ok(answer)) => answer,
            // Whoever led is gone with its runtime; the command may have been sent.
            Ok(Err(_)) => Err(DecideFault::Abandoned),
            Err(_) => Err(DecideFault::Late(self.0.patience)),
        }
    }

    /// Sends those who wait, if the one with this ticket is still among them.
    fn hurry(&self, counters: &[Counter], purpose: Purpose, ticket: u64) {
        let counters = {
            let mut lanes = self.0.shard(counters, purpose).lock();
            let Some((own, _)) = lanes.get_key_value(counters) else { return };
            let own = Arc::clone(own);
            let Some(lane) = lanes.get_mut(counters) else { return };
            if lane.queue.front().is_none_or(|first| first.ticket > ticket) {
                return;
            }
            lane.leads += 1;
            own
        };
        let mut lead = Lead { lanes: Arc::clone(&self.0), counters, purpose, over: false };
        lead.end(false);
    }
}

impl<R: Runner> Lanes<R> {
    fn enter(&self, counters: &[Counter], call: &Call<'_>, purpose: Purpose) -> Place<R::Fault> {
        let mut lanes = self.shard(counters, purpose).lock();
        let Some(lane) = lanes.get_mut(counters) else {
            if lanes.len() >= MAX_SETS {
                return Place::Alone;
            }
            let counters: Counters = counters.into();
            lanes.insert(Arc::clone(&counters), Lane { leads: 1, queue: VecDeque::new(), tickets: 0 });
            return Place::Lead(counters);
        };
        if lane.queue.len() >= MAX_WAITING {
            return Place::Alone;
        }
        let (answer, answered) = oneshot::channel();
        lane.tickets += 1;
        let ticket = lane.tickets;
        lane.queue.push_back(Waiting { ticket, id: call.id.into(), costs: call.costs.clone(), answer });
        Place::Wait(ticket, answered)
    }

    fn shard(&self, counters: &[Counter], purpose: Purpose) -> &Shard<R::Fault> {
        let at = self.hasher.hash_one(counters.first().map(|counter| &counter.key)) as usize % SHARDS;
        &self.shards[if purpose == Purpose::Reserve { SHARDS + at } else { at }]
    }

    async fn run(
        &self,
        counters: &[Counter],
        calls: &[Call<'_>],
        purpose: Purpose,
    ) -> Result<Decided, DecideFault<R::Fault>> {
        let reply = self.runner.run(&encode(counters, calls, purpose)).await;
        Ok(decode(counters, calls, purpose, &reply.map_err(DecideFault::Store)?)?)
    }
}

/// Whoever has a command under way for these counters, and owes the queue behind it the next.
struct Lead<R: Runner> {
    lanes: Arc<Lanes<R>>,
    counters: Counters,
    purpose: Purpose,
    over: bool,
}

impl<R: Runner> Lead<R> {
    /// The command has ended.
    fn end(&mut self, failed: bool) {
        self.over = true;
        if failed { self.give_up() } else { self.hand_over() }
    }

    /// Leaves the queue to a task of its own, if anybody waits.
    fn hand_over(&self) {
        let batch = self.next();
        if batch.is_empty() {
            return;
        }
        let own = Self {
            lanes: Arc::clone(&self.lanes),
            counters: Arc::clone(&self.counters),
            purpose: self.purpose,
            over: false,
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(own.serve(batch));
        } else {
            // Without a runtime nothing can be sent any more.
            let mut own = own;
            own.end(true);
            for waiting in batch {
                let _ = waiting.answer.send(Err(DecideFault::Behind));
            }
        }
    }

    /// The next calls, without those that have given up. With none, this lead is over.
    fn next(&self) -> Vec<Waiting<R::Fault>> {
        let mut lanes = self.lanes.shard(&self.counters, self.purpose).lock();
        let Some(lane) = lanes.get_mut(&self.counters) else { return Vec::new() };
        let mut batch = Vec::with_capacity(lane.queue.len().min(MAX_BATCH));
        while batch.len() < MAX_BATCH
            && let Some(waiting) = lane.queue.pop_front()
        {
            if !waiting.answer.is_closed() {
                batch.push(waiting);
            }
        }
        if batch.is_empty() {
            lane.leads -= 1;
            if lane.leads == 0 {
                lanes.remove(&self.counters);
            }
        }
        batch
    }

    /// Everybody in the queue is told that they were not sent, and this lead is over.
    fn give_up(&self) {
        let queue = {
            let mut lanes = self.lanes.shard(&self.counters, self.purpose).lock();
            let Some(lane) = lanes.get_mut(&self.counters) else { return };
            let queue = std::mem::take(&mut lane.queue);
            lane.leads -= 1;
            if lane.leads == 0 {
                lanes.remove(&self.counters);
            }
            queue
        };
        for waiting in queue {
            // Who has gone needs no answer.
            let _ = waiting.answer.send(Err(DecideFault::Behind));
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
                self.lanes.run(&self.counters, &calls, self.purpose).await
            };
            match decided {
                Ok(decided) => self.tell(batch, decided),
                Err(fault) => {
                    self.end(true);
                    for waiting in batch {
                        let _ = waiting.answer.send(Err(fault.clone()));
                    }
                    return;
                }
            }
            batch = self.next();
        }
        self.over = true;
    }

    /// Tells each caller its part.
    fn tell(&self, batch: Vec<Waiting<R::Fault>>, decided: Decided) {
        let Decided { now, windows, calls } = decided;
        let mut unclaimed = Vec::new();
        for (at, (waiting, one)) in batch.into_iter().zip(calls).enumerate() {
            let calls: SmallVec<[CallDecided; 1]> = smallvec![one];
            let decided = Decided { now, windows: windows.clone(), calls };
            let (id, costs) = (waiting.id, waiting.costs);
            if let Err(Ok((decided, _))) = waiting.answer.send(Ok((decided, usize::from(at == 0))))
                && let Some(one) = decided.calls.first()
            {
                unclaimed.extend(permits_of(&self.counters, &id, &costs, one));
            }
        }
        if unclaimed.is_empty() {
            return;
        }
        // Nobody holds these. Those behind do not wait for it.
        let lanes = Arc::clone(&self.lanes);
        tokio::spawn(async move {
            for permit in unclaimed {
                // What is not given back ends by itself.
                let _ = lanes.runner.run(&release(permit.key(), std::slice::from_ref(&permit))).await;
            }
        });
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
