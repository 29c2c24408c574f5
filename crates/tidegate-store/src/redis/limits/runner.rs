//! The client as what runs limit scripts.

use std::collections::HashMap;

use ::redis::Value;

use super::batch::Command;
use super::exact::{Reach, Runner};
use super::script::Script;
use crate::redis::{Redis, RedisFault};
use crate::traits::BoxFuture;

/// Runs limit scripts on a Redis.
#[derive(Clone, Debug)]
pub struct RedisRunner {
    redis: Redis,
    /// Every script, with its digest.
    scripts: HashMap<Script, crate::redis::Script>,
}

impl RedisRunner {
    /// Runs them by this client.
    pub fn new(redis: Redis) -> Self {
        let scripts = Script::ALL.map(|script| (script, crate::redis::Script::new(script.text())));
        Self { redis, scripts: scripts.into() }
    }

    /// What one script reaches there.
    pub fn reach(&self) -> Reach {
        if self.redis.config().is_cluster() { Reach::Slot } else { Reach::All }
    }

    /// The client.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }
}

impl Runner for RedisRunner {
    type Fault = RedisFault;

    fn run<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Value, RedisFault>> {
        Box::pin(async move {
            if let Some(script) = self.scripts.get(&command.script) {
                return self.redis.run(script, &command.keys, &command.args).await;
            }
            // All are there; one that was not would be slow, not wrong.
            let script = crate::redis::Script::new(command.script.text());
            self.redis.run(&script, &command.keys, &command.args).await
        })
    }
}
