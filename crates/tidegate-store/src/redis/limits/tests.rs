use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_core::limit::Decision;
use tidegate_core::rule::model::{Algorithm, Mode, Rate};
use tidegate_testkit::Redis;
use tidegate_testkit::redis::Session;

use super::*;
use crate::shared::*;

mod agreement;
mod buckets;
mod cases;
mod combine;
mod exact;
mod keys;
mod permits;
mod reservations;
mod several;
mod storage;
mod versions;

/// 2023-11-14T22:13:20Z in microseconds: the start of a window of any usual length but days.
const TODAY: u64 = 1_700_000_000_000_000;
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const PERMIT_LIFE: Duration = Duration::from_secs(30);
/// Longer than any stall of the machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Tests that run at the same time share a server; the last of them ends it.
static SHARED: Mutex<Weak<Redis>> = Mutex::new(Weak::new());
/// Numbers for rules and calls, so that tests on one server do not meet.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A server, and a connection on which scripts are run at chosen times.
struct Server {
    redis: Arc<Redis>,
    stream: BufReader<TcpStream>,
    /// By script, and whether it is told the time.
    digests: HashMap<(Script, bool), String>,
}

impl Server {
    /// The one that tests share: each has rules of its own there.
    fn start() -> Self {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let redis = shared.upgrade().unwrap_or_else(|| Arc::new(Redis::start()));
        *shared = Arc::downgrade(&redis);
        Self::on(redis)
    }

    /// One that no other test uses.
    fn alone() -> Self {
        Self::on(Arc::new(Redis::start()))
    }

    fn on(redis: Arc<Redis>) -> Self {
        let stream = TcpStream::connect(redis.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        Self { redis, stream: BufReader::new(stream), digests: HashMap::new() }
    }

    /// Runs commands at their times, in microseconds since the epoch, all sent before any is answered.
    fn run_all(&mut self, commands: &[(Command, u64)]) -> Vec<Value> {
        let mut bytes = Vec::new();
        for (command, now) in commands {
            let digest = self.digest(command.script, true);
            let mut args = command.args.clone();
            args.push(now.to_string());
            push(&mut bytes, &evalsha(&digest, &command.keys, &args));
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
        commands.iter().map(|_| self.reply()).collect()
    }

    /// Runs one command at a time of the test's choice.
    fn run_at(&mut self, command: &Command, now: u64) -> Value {
        self.run_all(&[(command.clone(), now)]).remove(0)
    }

    /// Runs one command as in production: at the server's time.
    fn run(&mut self, command: &Command) -> Value {
        let digest = self.digest(command.script, false);
        let mut bytes = Vec::new();
        push(&mut bytes, &evalsha(&digest, &command.keys, &command.args));
        self.stream.get_mut().write_all(&bytes).unwrap();
        self.reply()
    }

    fn digest(&mut self, script: Script, timed: bool) -> String {
        if let Some(digest) = self.digests.get(&(script, timed)) {
            return digest.clone();
        }
        let text = if timed { script.timed() } else { script.text() };
        let mut bytes = Vec::new();
        push(&mut bytes, &["SCRIPT".to_owned(), "LOAD".to_owned(), text.to_owned()]);
        self.stream.get_mut().write_all(&bytes).unwrap();
        let Value::BulkString(digest) = self.reply() else { panic!("no digest") };
        let digest = String::from_utf8(digest).unwrap();
        self.digests.insert((script, timed), digest.clone());
        digest
    }

    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            ":" => Value::Int(rest.parse().unwrap()),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Value::BulkString(bytes)
            }
            "*" => Value::Array((0..rest.parse::<usize>().unwrap()).map(|_| self.reply()).collect()),
            _ => panic!("{line}"),
        }
    }

    fn session(&self) -> Session {
        self.redis.session()
    }

    /// An id that no other call has.
    #[expect(clippy::unused_self, reason = "numbers are given for all servers, and asked for at one")]
    fn id(&self) -> String {
        format!("id-{}", next())
    }

    /// A counter that nobody else has.
    #[expect(clippy::unused_self, reason = "numbers are given for all servers, and asked for at one")]
    fn counter(&self, algorithm: &Algorithm) -> Counter {
        counter(&format!("rule-{}", next()), algorithm)
    }

    /// What calls of these costs, made in one batch, get from `counters`.
    fn batch(&mut self, counters: &[Counter], costs: &[&[u64]], now: u64) -> Decided {
        let ids: Vec<_> = costs.iter().map(|_| self.id()).collect();
        let calls: Vec<_> = ids.iter().zip(costs).map(|(id, costs)| call(id, costs)).collect();
        self.calls(counters, &calls, Purpose::Charge, now)
    }

    fn calls(&mut self, counters: &[Counter], calls: &[Call<'_>], purpose: Purpose, now: u64) -> Decided {
        let reply = self.run_at(&encode(counters, calls, purpose), now);
        decode(counters, calls, purpose, &reply).unwrap()
    }

    fn ask(&mut self, counter: &Counter, cost: u64, now: u64) -> Decision {
        self.batch(std::slice::from_ref(counter), &[&[cost]], now).calls[0].decisions[0]
    }

    /// How many of `count` calls at one time pass.
    fn burst(&mut self, counter: &Counter, count: usize, now: u64) -> usize {
        let mut passed = 0;
        for start in (0..count).step_by(MAX_BATCH) {
            let costs = vec![[1].as_slice(); MAX_BATCH.min(count - start)];
            let decided = self.batch(std::slice::from_ref(counter), &costs, now);
            passed += decided.calls.iter().filter(|call| call.admitted).count();
        }
        passed
    }

    fn admits(&mut self, counter: &Counter, costs: &[u64], now: u64) -> Vec<bool> {
        let costs: Vec<_> = costs.iter().map(std::slice::from_ref).collect();
        let decided = self.batch(std::slice::from_ref(counter), &costs, now);
        decided.calls.iter().map(|call| call.admitted).collect()
    }
}

fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn counter(rule: &str, algorithm: &Algorithm) -> Counter {
    let numbers = Numbers::new(algorithm, PERMIT_LIFE);
    let key = KeySpace::new(rule, &[] as &[&str]).counter([], &numbers);
    Counter { key, numbers, ordinal: 1, mode: Mode::Enforce }
}

fn call<'a>(id: &'a str, costs: &[u64]) -> Call<'a> {
    Call { id, costs: SmallVec::from_slice(costs) }
}

fn evalsha(digest: &str, keys: &[String], args: &[String]) -> Vec<String> {
    let mut words = vec!["EVALSHA".to_owned(), digest.to_owned(), keys.len().to_string()];
    words.extend_from_slice(keys);
    words.extend_from_slice(args);
    words
}

fn push(bytes: &mut Vec<u8>, words: &[String]) {
    write!(bytes, "*{}\r\n", words.len()).unwrap();
    for word in words {
        write!(bytes, "${}\r\n{word}\r\n", word.len()).unwrap();
    }
}

fn token_bucket(capacity: u64, count: u64, per: Duration) -> Algorithm {
    Algorithm::TokenBucket { capacity, refill: Rate { count, per } }
}

fn leaky_bucket(count: u64, per: Duration, queue: u64) -> Algorithm {
    Algorithm::LeakyBucket { rate: Rate { count, per }, queue }
}

fn fixed_window(limit: u64, window: Duration) -> Algorithm {
    Algorithm::FixedWindow { limit, window }
}

fn sliding_window(limit: u64, window: Duration) -> Algorithm {
    Algorithm::SlidingWindow { limit, window }
}

fn sliding_log(limit: u64, window: Duration) -> Algorithm {
    Algorithm::SlidingLog { limit, window }
}

fn concurrency(max: u64) -> Algorithm {
    Algorithm::Concurrency { max }
}

/// One of each kind that holds `limit` units and frees itself of all within a second.
fn one_of_each(limit: u64) -> [Algorithm; 6] {
    let second = Duration::from_secs(1);
    [
        token_bucket(limit, limit, second),
        leaky_bucket(limit, second, limit - 1),
        fixed_window(limit, second),
        sliding_window(limit, second),
        sliding_log(limit, second),
        concurrency(limit),
    ]
}

fn micros(now: u64) -> Timestamp {
    Timestamp::from_nanos(now * 1000)
}
