//! Redis as the store of shared limits.

use ::redis::Value;
use std::time::Duration;

use tidegate_core::Timestamp;

use super::batch::{Command, Malformed};
use super::exact::{DecideFault, Runner as _, SharedLimits};
use super::runner::RedisRunner;
use super::script::Script;
use crate::redis::{Redis, RedisFault};
use crate::shared::numbers::micros;
use crate::shared::{
    CounterKey, Permit, Pulse, Purpose, SharedAsk, SharedFault, SharedLimitStore, SharedOutcome,
};
use crate::traits::BoxFuture;

/// Who lives, and whether the data is what it was. The braces put both keys into one slot.
const INSTANCES: &str = "tg:{tidegate}:instances";
const EPOCH: &str = "tg:{tidegate}:epoch";
/// In which order rules were published.
const VERSIONS: &str = "tg:{tidegate}:versions";

/// Shared limits on a Redis.
pub struct RedisLimits {
    limits: SharedLimits<RedisRunner>,
}

impl RedisLimits {
    /// On this server, or these.
    pub fn new(redis: Redis) -> Self {
        let runner = RedisRunner::new(redis);
        let reach = runner.reach();
        let patience = runner.redis().config().timeout();
        Self { limits: SharedLimits::new(runner, reach, patience) }
    }

    /// The client.
    pub fn redis(&self) -> &Redis {
        self.limits.runner().redis()
    }

    async fn run(&self, script: Script, keys: &[&str], args: Vec<String>) -> Result<Value, SharedFault> {
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        Ok(self.limits.runner().run(&Command { script, keys, args }).await?)
    }
}

impl SharedLimitStore for RedisLimits {
    fn decide<'a>(
        &'a self,
        asks: &'a [SharedAsk],
        id: &'a str,
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<SharedOutcome, SharedFault>> {
        Box::pin(async move { Ok(self.limits.decide(asks, id, purpose).await?) })
    }

    fn give_back<'a>(&'a self, asks: &'a [SharedAsk], id: &'a str) -> BoxFuture<'a, Result<(), SharedFault>> {
        Box::pin(async move { Ok(self.limits.give_back(asks, id).await?) })
    }

    fn release<'a>(&'a self, permits: &'a [Permit]) -> BoxFuture<'a, Result<Vec<bool>, SharedFault>> {
        Box::pin(async move { Ok(self.limits.release(permits).await?) })
    }

    fn renew<'a>(
        &'a self,
        permits: &'a [Permit],
        life: Duration,
    ) -> BoxFuture<'a, Result<Vec<bool>, SharedFault>> {
        Box::pin(async move { Ok(self.limits.renew(permits, life).await?) })
    }

    fn pulse<'a>(
        &'a self,
        instance: &'a str,
        life: Duration,
        known: Option<Pulse>,
    ) -> BoxFuture<'a, Result<Pulse, SharedFault>> {
        Box::pin(async move {
            let (epoch, seen) = match known {
                Some(known) => (format!("{:032x}", known.epoch), known.seen.to_string()),
                None => (String::new(), String::new()),
            };
            let fresh = format!("{:032x}", rand::random::<u128>());
            let args = vec![instance.to_owned(), micros(life).to_string(), epoch, seen, fresh];
            let reply = self.run(Script::Pulse, &[INSTANCES, EPOCH], args).await?;
            read_pulse(&reply).ok_or_else(|| Malformed("no sign of life").into())
        })
    }

    fn ordinal<'a>(&'a self, digest: &'a str, publish: bool) -> BoxFuture<'a, Result<u64, SharedFault>> {
        Box::pin(async move {
            let args = vec![digest.to_owned(), u8::from(publish).to_string()];
            match self.run(Script::Ordinal, &[VERSIONS], args).await? {
                Value::Int(ordinal) => {
                    u64::try_from(ordinal).map_err(|_| Malformed("a negative ordinal").into())
                }
                _ => Err(Malformed("no ordinal").into()),
            }
        })
    }

    fn forget<'a>(&'a self, key: &'a CounterKey) -> BoxFuture<'a, Result<bool, SharedFault>> {
        Box::pin(async move {
            let keys = [key.as_str(), &key.reservations()];
            match self.run(Script::Forget, &keys, Vec::new()).await? {
                Value::Int(forgotten) => Ok(forgotten > 0),
                _ => Err(Malformed("no count of what was forgotten").into()),
            }
        })
    }

    fn name(&self) -> String {
        self.redis().config().to_string()
    }
}

fn read_pulse(reply: &Value) -> Option<Pulse> {
    let Value::Array(values) = reply else { return None };
    let number = |at: usize| match values.get(at) {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let epoch = match values.get(3) {
        Some(Value::BulkString(text)) => u128::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()?,
        _ => return None,
    };
    Some(Pulse {
        now: at(number(0)?),
        instances: u32::try_from(number(1)?).ok()?.max(1),
        rank: u32::try_from(number(2)?).ok()?,
        epoch,
        since: at(number(4)?),
        lost: number(5)? == 1,
        seen: number(6)?,
    })
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros.saturating_mul(1000))
}

impl From<RedisFault> for SharedFault {
    fn from(fault: RedisFault) -> Self {
        Self { may_have_run: fault.may_have_run(), message: fault.to_string().into() }
    }
}

impl From<Malformed> for SharedFault {
    fn from(malformed: Malformed) -> Self {
        Self { may_have_run: true, message: malformed.to_string().into() }
    }
}

impl From<DecideFault<RedisFault>> for SharedFault {
    fn from(fault: DecideFault<RedisFault>) -> Self {
        match fault {
            DecideFault::Store(fault) => fault.into(),
            DecideFault::Malformed(malformed) => malformed.into(),
            not_sent @ (DecideFault::AskedTwice(_) | DecideFault::Behind) => {
                Self { may_have_run: false, message: not_sent.to_string().into() }
            }
            unknown @ (DecideFault::Late(_) | DecideFault::Abandoned) => {
                Self { may_have_run: true, message: unknown.to_string().into() }
            }
        }
    }
}
