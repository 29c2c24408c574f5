//! One request decided on all its limits, in the shared store.
//!
//! Limits whose counters one script can reach are decided by one script, all or none. In a cluster
//! counters lie in different slots, and no script reaches two of them: each slot is charged at once under
//! the request's id, and what was charged is given back by that id as soon as one slot refuses. Nothing
//! returns by time: when a gateway dies in between, or a command is lost, what was charged stays charged
//! until its window ends. So the limits may admit less for a while, and never more.
//!
//! A slot that refused last time is asked first and alone, so that under a limit that is used up the
//! others are not charged and given back for every refused request.

use std::collections::hash_map::DefaultHasher;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tidegate_core::limit::Decision;
use tidegate_core::rule::model::Mode;

use super::batch::{Call, CallDecided, Command, Decided, Malformed};
use super::combine::Combine;
use super::returns::{answers, give_back, release, renew};
use crate::shared::{Counter, CounterKey, Kind, Permit, Purpose, SharedAsk, SharedOutcome, SharedVerdict};
use crate::traits::BoxFuture;

/// Marks for slots that refused last; counters may share one, which costs a little time and no more.
const MARKS: usize = 1024;

/// What runs a script, at most once.
pub trait Runner: Send + Sync + 'static {
    /// Why there is no reply. The script may have run.
    type Fault: Clone + Send + Sync + 'static;

    /// Runs `command` and gives its reply.
    fn run<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Value, Self::Fault>>;
}

/// What one script can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every key: one server holds them all.
    All,
    /// Only the keys of one slot.
    Slot,
}

/// Decides requests in the shared store.
pub struct SharedLimits<R: Runner> {
    combine: Combine<R>,
    reach: Reach,
    refused: Box<[AtomicBool]>,
}

/// Why a request was not decided. What may have been charged was given back, as far as the store answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideFault<F> {
    /// The store did not answer.
    #[error("{0}")]
    Store(F),
    /// The store's answer makes no sense.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The command before it, for the same counters, got no answer; this call was not sent.
    #[error("not sent: the command before it, for the same counters, got no answer")]
    Behind,
    /// No answer in time, behind other calls for the same counters.
    #[error("no answer within {0:?}, behind other calls for the same counters")]
    Late(Duration),
    /// The command's end is not known.
    #[error("the command was broken off")]
    Abandoned,
    /// A counter was asked twice in one request.
    #[error("the counter {0} is asked twice in one request; add up the costs")]
    AskedTwice(Box<str>),
}

/// The asks that one script decides.
struct Group<'a> {
    /// Their places among the request's asks.
    asks: SmallVec<[usize; 4]>,
    counters: SmallVec<[Counter; 4]>,
    call: Call<'a>,
}

/// What was decided, and by how many commands.
type Reply<F> = Result<(Decided, usize), DecideFault<F>>;

impl<R: Runner> SharedLimits<R> {
    /// Decides by scripts that `runner` runs.
    ///
    /// A call waits for at most `patience`, its own command and the one before it for the same counters.
    pub fn new(runner: R, reach: Reach, patience: Duration) -> Self {
        Self {
            combine: Combine::new(runner, patience),
            reach,
            refused: (0..MARKS).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Decides one request. `id` names it and nobody else's.
    ///
    /// When the future is dropped before it is done, what was charged stays charged.
    pub async fn decide(
        &self,
        asks: &[SharedAsk],
        id: &str,
        purpose: Purpose,
    ) -> Result<SharedOutcome, DecideFault<R::Fault>> {
        for (at, ask) in asks.iter().enumerate() {
            if asks.iter().take(at).any(|other| other.counter.key == ask.counter.key) {
                return Err(DecideFault::AskedTwice(ask.counter.key.as_str().into()));
            }
        }
        let groups = self.groups(asks, id);
        let mut outcome = SharedOutcome::unasked(asks);
        if let [group] = groups.as_slice() {
            let (decided, commands) = self.ask(group, purpose).await?;
            outcome.commands = commands;
            outcome.add(group, &decided, |call| &call.decisions);
            outcome.finish(asks, id);
            return Ok(outcome);
        }
        if purpose != Purpose::Peek {
            return self.decide_apart(&groups, asks, id, outcome).await;
        }
        let peeked = all(groups.iter().map(|group| Box::pin(self.ask(group, purpose))).collect()).await;
        for (group, peeked) in groups.iter().zip(peeked) {
            let (decided, commands) = peeked?;
            outcome.commands += commands;
            outcome.add(group, &decided, |call| &call.decisions);
        }
        Ok(outcome)
    }

    /// Gives back what the request `id` was charged with [`Purpose::Reserve`], permits included: each
    /// counter once, and only in the window that it was charged in.
    pub async fn give_back(&self, asks: &[SharedAsk], id: &str) -> Result<(), DecideFault<R::Fault>> {
        let groups = self.groups(asks, id);
        let commands: Vec<_> = groups.iter().flat_map(|group| group.returns_all(id)).collect();
        let given = all(commands.iter().map(|(command, _)| self.runner().run(command)).collect()).await;
        for (reply, (_, count)) in given.into_iter().zip(&commands) {
            answers(&reply.map_err(DecideFault::Store)?, *count)?;
        }
        Ok(())
    }

    /// What runs the scripts.
    pub fn runner(&self) -> &R {
        self.combine.runner()
    }

    /// Charges each group and gives back when one refuses.
    async fn decide_apart(
        &self,
        groups: &[Group<'_>],
        asks: &[SharedAsk],
        id: &str,
        mut outcome: SharedOutcome,
    ) -> Result<SharedOutcome, DecideFault<R::Fault>> {
        let mut replies: Vec<(&Group<'_>, Reply<R::Fault>)> = Vec::with_capacity(groups.len());
        let (first, rest): (Vec<_>, Vec<_>) = groups.iter().partition(|group| self.refused_last(group));
        let mut going = true;
        for group in first {
            if going {
                let reply = self.ask(group, Purpose::Reserve).await;
                going = admits(&reply);
                replies.push((group, reply));
            }
        }
        if going {
            let asked = rest.iter().map(|group| Box::pin(self.ask(group, Purpose::Reserve))).collect();
            replies.extend(rest.into_iter().zip(all(asked).await));
        }
        for (group, reply) in &replies {
            outcome.commands += reply.as_ref().map_or(1, |(_, commands)| *commands);
            if reply.is_ok() {
                self.mark(group, !admits(reply));
            }
        }
        if replies.iter().all(|(_, reply)| admits(reply)) {
            for (group, reply) in &replies {
                if let Ok((decided, _)) = reply {
                    outcome.add(group, decided, |call| &call.decisions);
                }
            }
            outcome.finish(asks, id);
            return Ok(outcome);
        }
        let commands: Vec<_> = replies.iter().flat_map(|(group, reply)| group.returns(reply, id)).collect();
        outcome.commands += commands.len();
        let given = all(commands.iter().map(|(command, _)| self.runner().run(command)).collect()).await;
        for (reply, (_, count)) in given.into_iter().zip(&commands) {
            let given = reply.ok().and_then(|reply| answers(&reply, *count).ok());
            let given = given.map_or(0, |given| given.iter().filter(|given| **given).count());
            outcome.stranded += count.saturating_sub(given);
        }
        for (group, reply) in replies {
            let (decided, _) = reply?;
            outcome.add(group, &decided, |call| if call.admitted { &call.returned } else { &call.decisions });
        }
        outcome.admitted = false;
        outcome.finish(asks, id);
        Ok(outcome)
    }

    /// Gives permits back, each once. Which of them were still held, in their order.
    pub async fn release(&self, permits: &[Permit]) -> Result<Vec<bool>, DecideFault<R::Fault>> {
        self.on_permits(permits, release).await
    }

    /// Lets permits live for `life` from now on. Which of them are still held, in their order.
    pub async fn renew(
        &self,
        permits: &[Permit],
        life: Duration,
    ) -> Result<Vec<bool>, DecideFault<R::Fault>> {
        self.on_permits(permits, |key, permits| renew(key, life, permits)).await
    }

    async fn on_permits(
        &self,
        permits: &[Permit],
        command: impl Fn(&CounterKey, &[Permit]) -> Command,
    ) -> Result<Vec<bool>, DecideFault<R::Fault>> {
        let mut held = Vec::with_capacity(permits.len());
        // Those of one counter that follow each other share a script.
        for permits in permits.chunk_by(|one, next| one.key() == next.key()) {
            if let Some(first) = permits.first() {
                let reply = self.runner().run(&command(first.key(), permits)).await;
                held.extend(answers(&reply.map_err(DecideFault::Store)?, permits.len())?);
            }
        }
        Ok(held)
    }

    async fn ask(&self, group: &Group<'_>, purpose: Purpose) -> Reply<R::Fault> {
        self.combine.ask(&group.counters, &group.call, purpose).await
    }

    fn groups<'a>(&self, asks: &[SharedAsk], id: &'a str) -> SmallVec<[Group<'a>; 4]> {
        let mut groups: SmallVec<[Group<'a>; 4]> = SmallVec::new();
        for (at, ask) in asks.iter().enumerate() {
            let found = groups.iter_mut().find(|group| {
                let tag = group.counters.first().map(|counter| counter.key.tag());
                self.reach == Reach::All || tag == Some(ask.counter.key.tag())
            });
            if let Some(group) = found {
                group.asks.push(at);
                group.counters.push(ask.counter.clone());
                group.call.costs.push(ask.cost);
            } else {
                groups.push(Group {
                    asks: SmallVec::from_slice(&[at]),
                    counters: std::iter::once(ask.counter.clone()).collect(),
                    call: Call { id, costs: SmallVec::from_slice(&[ask.cost]) },
                });
            }
        }
        groups
    }

    fn mark_of(&self, group: &Group<'_>) -> Option<&AtomicBool> {
        let mut hasher = DefaultHasher::new();
        group.counters.first()?.key.tag().hash(&mut hasher);
        self.refused.get((hasher.finish() % MARKS as u64) as usize)
    }

    fn refused_last(&self, group: &Group<'_>) -> bool {
        self.mark_of(group).is_some_and(|mark| mark.load(Ordering::Relaxed))
    }

    fn mark(&self, group: &Group<'_>, refused: bool) {
        if let Some(mark) = self.mark_of(group) {
            mark.store(refused, Ordering::Relaxed);
        }
    }
}

impl Group<'_> {
    /// What gives back all that `reply` says was charged, or may have been charged where there is none:
    /// each command with how many answers it has.
    fn returns<F>(&self, reply: &Reply<F>, id: &str) -> SmallVec<[(Command, usize); 2]> {
        if matches!(reply, Err(DecideFault::Behind)) {
            return SmallVec::new();
        }
        match reply.as_ref().ok().and_then(|(decided, _)| decided.calls.first()) {
            Some(call) if !call.admitted => SmallVec::new(),
            decided => self.returns_of(decided, id),
        }
    }

    /// What gives back everything that the call may have been charged.
    fn returns_all(&self, id: &str) -> SmallVec<[(Command, usize); 2]> {
        self.returns_of(None, id)
    }

    fn returns_of(&self, decided: Option<&CallDecided>, id: &str) -> SmallVec<[(Command, usize); 2]> {
        let mut commands = SmallVec::new();
        let mut charged = Vec::new();
        for (at, (counter, cost)) in self.counters.iter().zip(&self.call.costs).enumerate() {
            let admitted = decided.and_then(|call| call.decisions.get(at)).is_none_or(Decision::admitted);
            if counter.mode == Mode::Off || *cost == 0 || !admitted {
                continue;
            }
            if counter.numbers.kind == Kind::Concurrency {
                let permit = Permit::new(counter.key.clone(), id, *cost);
                commands.push((release(&counter.key, &[permit]), 1));
            } else {
                charged.push((counter, *cost));
            }
        }
        if !charged.is_empty() {
            commands.push((give_back(id, &charged), charged.len()));
        }
        commands
    }
}

impl SharedOutcome {
    fn unasked(asks: &[SharedAsk]) -> Self {
        let unasked =
            |ask: &SharedAsk| SharedVerdict { mode: ask.counter.mode, decision: None, window: None };
        Self {
            verdicts: asks.iter().map(unasked).collect(),
            admitted: true,
            wait: Duration::ZERO,
            permits: Vec::new(),
            stranded: 0,
            commands: 0,
        }
    }

    fn add(
        &mut self,
        group: &Group<'_>,
        decided: &Decided,
        decisions: impl Fn(&CallDecided) -> &SmallVec<[Decision; 4]>,
    ) {
        let Some(call) = decided.calls.first() else { return };
        self.admitted &= call.admitted;
        let said = decisions(call).iter().zip(&decided.windows);
        for (at, (decision, window)) in group.asks.iter().zip(said) {
            if let Some(verdict) = self.verdicts.get_mut(*at) {
                (verdict.decision, verdict.window) = (Some(*decision), *window);
            }
        }
    }

    fn finish(&mut self, asks: &[SharedAsk], id: &str) {
        if !self.admitted {
            return;
        }
        for (ask, verdict) in asks.iter().zip(&self.verdicts) {
            let Some(decision) = verdict.decision.filter(Decision::admitted) else { continue };
            if verdict.mode == Mode::Enforce {
                self.wait = self.wait.max(decision.wait());
            }
            let counter = &ask.counter;
            if counter.numbers.kind == Kind::Concurrency && counter.mode != Mode::Off && ask.cost > 0 {
                self.permits.push(Permit::new(counter.key.clone(), id, ask.cost));
            }
        }
    }
}

fn admits<F>(reply: &Reply<F>) -> bool {
    reply.as_ref().is_ok_and(|(decided, _)| decided.calls.first().is_some_and(|call| call.admitted))
}

/// Waits for all of them at once.
async fn all<T, F: Future<Output = T> + ?Sized>(mut futures: Vec<Pin<Box<F>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *done = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}
