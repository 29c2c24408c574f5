//! Redis from outside: real servers, and a network that fails as it is told.

use std::time::Duration;

use tidegate_store::redis::{Redis, RedisConfig, RedisFault, Script, Value};
use tidegate_testkit as kit;
use tidegate_testkit::wait::{DEADLINE, Deadline};

mod client;
mod group;
mod limits;

/// Long enough that a busy machine does not spoil a test that is not about time.
const PATIENT: Duration = Duration::from_secs(5);

fn client(url: &str) -> Redis {
    Redis::new(config(url)).unwrap()
}

fn config(url: &str) -> RedisConfig {
    RedisConfig::from_url(url).unwrap().with_timeout(PATIENT).unwrap()
}

fn hasty(url: &str) -> Redis {
    Redis::new(RedisConfig::from_url(url).unwrap()).unwrap()
}

/// Counts its own runs under its key and gives the count.
fn count() -> Script {
    Script::new("return redis.call('INCR', KEYS[1])")
}

async fn run(redis: &Redis, script: &Script, key: &str) -> Result<i64, RedisFault> {
    match redis.run::<_, &str>(script, &[key], &[]).await? {
        Value::Int(number) => Ok(number),
        other => panic!("not a number: {other:?}"),
    }
}

/// Until the driver has heard that a connection is closed, a call is sent into it and lost: here, a harmless one.
async fn notices(redis: &Redis) {
    let deadline = Deadline::after(DEADLINE);
    while let Err(fault) = redis.ping().await {
        assert!(!deadline.passed(), "{fault}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs it until it gives a number; faults on the way must be ones after which it has not run.
async fn recovers(redis: &Redis, script: &Script, key: &str) -> i64 {
    let deadline = Deadline::after(DEADLINE);
    loop {
        match run(redis, script, key).await {
            Ok(number) => return number,
            Err(fault) => {
                assert!(!fault.may_have_run(), "{fault}");
                assert!(!deadline.passed(), "no recovery: {fault}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}
