//! A batch of calls as a script's keys and arguments, and its reply as decisions.

use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::{Answer, Decision};
use tidegate_core::rule::model::Mode;

use super::script::Script;
use crate::shared::numbers::State;
use crate::shared::{Counter, Kind, Numbers, Purpose};

/// Calls that one script decides at most: a server serves nobody else while it runs.
pub const MAX_BATCH: usize = 256;
/// What precedes the limits among the arguments, and what each limit takes.
const HEAD: usize = 2;
const PER_LIMIT: usize = 6;

/// One call of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Names the call, for giving back what it took: any text without spaces that nobody else uses. Needed
    /// where a counter is of concurrency.
    pub id: &'a str,
    /// What it costs each counter. A cost of 0 takes nothing.
    pub costs: SmallVec<[u64; 4]>,
}

/// A script call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to run.
    pub script: Script,
    /// Every key that it touches; all in one slot, or all on one server.
    pub keys: Vec<String>,
    /// Its arguments.
    pub args: Vec<String>,
}

/// What a batch got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The store's time, in whole microseconds.
    pub now: Timestamp,
    /// For each counter the start of the window that it counts; for windows only.
    pub windows: SmallVec<[Option<Timestamp>; 4]>,
    /// For each call, in order.
    pub calls: SmallVec<[CallDecided; 1]>,
}

/// What one call got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDecided {
    /// Whether every enforced limit admits it. If not, it was charged nowhere.
    pub admitted: bool,
    /// What each counter said. Where another one refused, what is left is as if the call had not come.
    pub decisions: SmallVec<[Decision; 4]>,
    /// What each counter would say to the call if it had been charged and given back; only for
    /// [`Purpose::Reserve`].
    pub returned: SmallVec<[Decision; 4]>,
}

/// A script's reply does not follow from its own numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a limit script's reply makes no sense ({0}); see whether another program writes keys that begin with tg:"
)]
pub struct Malformed(pub &'static str);

/// The script call that decides `calls`, at most [`MAX_BATCH`], on `counters`, each asked once.
pub fn encode(counters: &[Counter], calls: &[Call<'_>], purpose: Purpose) -> Command {
    let kind = counters.first().map(|counter| counter.numbers.kind);
    let script = match kind {
        Some(kind) if counters.iter().all(|counter| counter.numbers.kind == kind) => Script::Decide(kind),
        _ => Script::DecideMixed,
    };
    let permits = counters.iter().any(|counter| counter.numbers.kind == Kind::Concurrency);
    let ids = match purpose {
        Purpose::Reserve => "2",
        _ if permits => "1",
        _ => "0",
    };
    let mut keys: Vec<String> = counters.iter().map(|counter| counter.key.as_str().to_owned()).collect();
    if purpose == Purpose::Reserve {
        keys.extend(counters.iter().map(|counter| counter.key.reservations()));
    }
    let mut args = Vec::with_capacity(
        HEAD + PER_LIMIT * counters.len() + calls.len() * (counters.len() + usize::from(ids != "0")),
    );
    args.push(counters.len().to_string());
    args.push(ids.to_owned());
    for Counter { numbers, ordinal, mode, .. } in counters {
        args.push(numbers.kind.letter().to_owned());
        args.push(
            match (purpose, mode) {
                (Purpose::Peek, _) | (_, Mode::Off) => "o",
                (_, Mode::Enforce) => "e",
                (_, Mode::Shadow) => "s",
            }
            .to_owned(),
        );
        args.extend([*ordinal, numbers.a, numbers.b, numbers.c].map(|number| number.to_string()));
    }
    for call in calls {
        if ids != "0" {
            args.push(call.id.to_owned());
        }
        // A call says what it costs each counter; what it leaves out costs nothing.
        args.extend((0..counters.len()).map(|at| call.costs.get(at).copied().unwrap_or(0).to_string()));
    }
    Command { script, keys, args }
}

/// What the script's reply says about each call.
///
/// The reply has the counters' states before the first call and one digit for each call; the rest
/// follows from them by the same arithmetic, which checks the script on the way.
pub fn decode(
    counters: &[Counter],
    calls: &[Call<'_>],
    purpose: Purpose,
    reply: &Value,
) -> Result<Decided, Malformed> {
    let mut reader = Reader::new(reply)?;
    let now = Timestamp::from_nanos(reader.number()?.saturating_mul(1000));
    let said = reader.text()?;
    if said.len() != calls.len() {
        return Err(Malformed("not one answer for each call"));
    }
    let mut states = SmallVec::<[(Numbers, State); 4]>::new();
    for counter in counters {
        let mut numbers = counter.numbers;
        if reader.number()? == 1 {
            (numbers.a, numbers.b, numbers.c) = (reader.number()?, reader.number()?, reader.number()?);
        }
        let state = reader.numbers(numbers.kind.state_len())?;
        states
            .push((numbers, State::read(numbers.kind, &state).ok_or(Malformed("a state of another kind"))?));
    }
    let windows = states.iter().map(|(_, state)| state.window()).collect();
    let mut decided = Decided { now, windows, calls: SmallVec::new() };
    for (call, said) in calls.iter().zip(said) {
        let one = replay(counters, &mut states, call, now, purpose, &mut reader)?;
        if purpose != Purpose::Peek && one.admitted != (*said == b'1') {
            return Err(Malformed("an answer that does not follow from the state"));
        }
        decided.calls.push(one);
    }
    Ok(decided)
}

/// Decides one call again, on the states as the script had them, and charges it there.
fn replay(
    counters: &[Counter],
    states: &mut [(Numbers, State)],
    call: &Call<'_>,
    now: Timestamp,
    purpose: Purpose,
    reader: &mut Reader<'_>,
) -> Result<CallDecided, Malformed> {
    let mut one = CallDecided { admitted: true, decisions: SmallVec::new(), returned: SmallVec::new() };
    let mut held: SmallVec<[bool; 4]> = SmallVec::new();
    for (at, (counter, (numbers, state))) in counters.iter().zip(states.iter_mut()).enumerate() {
        let cost = call.costs.get(at).copied().unwrap_or(0);
        let mut again = false;
        if let State::Log { used, room, .. } = state
            && cost <= numbers.a
            && used.saturating_add(cost) > numbers.a
        {
            *room = Timestamp::from_nanos(reader.number()?.saturating_mul(1000));
        }
        if numbers.kind == Kind::Concurrency {
            again = reader.number()? == 1;
        }
        // A permit that is held already costs nothing more.
        let mut decision = numbers.test(state, if again { 0 } else { cost }, now);
        if again {
            decision.answer = Answer::Admitted { wait: Duration::ZERO };
        }
        if purpose == Purpose::Reserve {
            one.returned.push(decision.uncharged(numbers.test(state, 0, now)));
        }
        one.admitted &= counter.mode != Mode::Enforce || decision.admitted();
        one.decisions.push(decision);
        held.push(again);
    }
    if purpose == Purpose::Peek {
        return Ok(one);
    }
    for (at, (counter, (numbers, state))) in counters.iter().zip(states.iter_mut()).enumerate() {
        let Some(decision) = one.decisions.get_mut(at) else { continue };
        if counter.mode == Mode::Off || !decision.admitted() {
            continue;
        }
        if !one.admitted {
            *decision = decision.uncharged(numbers.test(state, 0, now));
        } else if held.get(at) != Some(&true) {
            state.charge(call.costs.get(at).copied().unwrap_or(0), now);
        }
    }
    Ok(one)
}

/// Takes a flat reply apart.
struct Reader<'a>(std::slice::Iter<'a, Value>);

impl<'a> Reader<'a> {
    fn new(reply: &'a Value) -> Result<Self, Malformed> {
        match reply {
            Value::Array(values) => Ok(Self(values.iter())),
            _ => Err(Malformed("not a list")),
        }
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        match self.0.next() {
            Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| Malformed("a negative number")),
            _ => Err(Malformed("no number where one belongs")),
        }
    }

    fn numbers(&mut self, count: usize) -> Result<SmallVec<[u64; 3]>, Malformed> {
        (0..count).map(|_| self.number()).collect()
    }

    fn text(&mut self) -> Result<&'a [u8], Malformed> {
        match self.0.next() {
            Some(Value::BulkString(text)) => Ok(text),
            _ => Err(Malformed("no text where one belongs")),
        }
    }
}
