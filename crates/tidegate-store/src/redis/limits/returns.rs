//! Giving back what calls took, and holding on to what they still use.

use std::time::Duration;

use redis::Value;
use tidegate_core::rule::model::Mode;

use super::batch::{CallDecided, Command, Malformed};
use super::script::Script;
use crate::shared::numbers::micros;
use crate::shared::{Counter, CounterKey, Kind, Permit};

/// The permits that an admitted call got.
pub(super) fn permits_of(counters: &[Counter], id: &str, costs: &[u64], call: &CallDecided) -> Vec<Permit> {
    let asked = counters.iter().zip(costs).zip(&call.decisions);
    let got = asked.filter(|((counter, cost), decision)| {
        call.admitted
            && counter.numbers.kind == Kind::Concurrency
            && counter.mode != Mode::Off
            && **cost > 0
            && decision.admitted()
    });
    got.map(|((counter, cost), _)| Permit::new(counter.key.clone(), id, *cost)).collect()
}

/// Gives permits of one counter back, each once. The reply says which were still held.
pub fn release(key: &CounterKey, permits: &[Permit]) -> Command {
    let args = permits.iter().map(|permit| permit.member().to_owned()).collect();
    Command { script: Script::Release, keys: vec![key.as_str().to_owned()], args }
}

/// Lets permits of one counter live for `life` from now on. The reply says which are still held.
pub fn renew(key: &CounterKey, life: Duration, permits: &[Permit]) -> Command {
    let mut args = vec![micros(life).to_string()];
    args.extend(permits.iter().map(|permit| permit.member().to_owned()));
    Command { script: Script::Renew, keys: vec![key.as_str().to_owned()], args }
}

/// Gives back what the reserved call `id` was charged: `charged` has each counter and the cost. The reply
/// says for which there was something to give back: not twice, not in a later window, not what time has
/// paid already, not after the numbers changed or the clock was set back.
///
/// Concurrency is given back by [`release`].
pub fn give_back(id: &str, charged: &[(&Counter, u64)]) -> Command {
    let mut keys = Vec::with_capacity(2 * charged.len());
    let mut args = Vec::with_capacity(4 * charged.len());
    for (counter, cost) in charged {
        keys.push(counter.key.as_str().to_owned());
        keys.push(counter.key.reservations());
        args.push(counter.numbers.kind.letter().to_owned());
        args.push(counter.numbers.b.to_string());
        args.push(id.to_owned());
        args.push(cost.to_string());
    }
    Command { script: Script::GiveBack, keys, args }
}

/// A reply of `count` yes or no.
pub fn answers(reply: &Value, count: usize) -> Result<Vec<bool>, Malformed> {
    let Value::Array(values) = reply else {
        return Err(Malformed("not a list"));
    };
    if values.len() != count {
        return Err(Malformed("not one answer for each"));
    }
    values
        .iter()
        .map(|value| match value {
            Value::Int(0) => Ok(false),
            Value::Int(1) => Ok(true),
            _ => Err(Malformed("neither yes nor no")),
        })
        .collect()
}
