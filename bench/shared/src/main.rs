//! Limits on one Redis: Tidegate's exact decisions beside a bare script and beside limitador.
//!
//! `shared/run.sh [repetitions] [milliseconds]` starts the Redis on cpu 1 and this on cpu 0.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::limit::key;
use tidegate_core::rule::{Deployment, Source, load};
use tidegate_store::redis::limits::RedisLimits;
use tidegate_store::redis::{Redis, RedisConfig};
use tidegate_store::shared::{Purpose, SharedAsk, SharedLimitStore, SharedRule};

/// A token bucket as small as a script can be: one key, one number.
const BARE: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1])) or now
if tat < now then tat = now end
if tat + ARGV[1] - now > ARGV[1] * ARGV[2] then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tat + ARGV[1]), 'PX', 60000)
return 1";

const KEYS: usize = 10_000;

type Call = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = bool>>>>;

struct Case {
    name: &'static str,
    callers: usize,
    call: Call,
}

struct Figures {
    rate: f64,
    p50: f64,
    p99: f64,
    own: f64,
    redis: f64,
}

fn case<F: Future<Output = bool> + 'static>(
    name: &'static str,
    callers: usize,
    call: impl Fn(usize) -> F + 'static,
) -> Case {
    Case { name, callers, call: Arc::new(move |at| Box::pin(call(at))) }
}

async fn cases(url: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let script = Arc::new(redis::Script::new(BARE));
    let bare = move |key: usize| {
        let (mut connection, script) = (connection.clone(), Arc::clone(&script));
        async move {
            let call = script.key(format!("bare:{key}")).arg(1).arg(1_000_000_000_u64).invoke_async(&mut connection).await;
            let admitted: i64 = call.unwrap();
            admitted == 1
        }
    };
    cases.push(case("bare EVALSHA, one at a time, uniform", 1, {
        let bare = bare.clone();
        move |at| bare(at % KEYS)
    }));
    cases.push(case("bare EVALSHA, pipelined, uniform", 64, {
        let bare = bare.clone();
        move |at| bare(at % KEYS)
    }));
    cases.push(case("bare EVALSHA, pipelined, one key", 64, move |_| bare(0)));

    let text = "apiVersion: tidegate/v1\nresources: [ { id: r } ]\nlimits: [ { id: l, resources: [r], token_bucket: { capacity: 1000000000, refill: 1000000/s }, sharing: exact, on_store_failure: fail_closed } ]";
    let loaded = load(&[Source::new("bench.yaml", text)], &Deployment { shared_store: true, ..Deployment::default() }).unwrap();
    let config = RedisConfig::from_url(url).unwrap().with_timeout(Duration::from_secs(5)).unwrap();
    let store = Arc::new(RedisLimits::new(Redis::new(config).unwrap()));
    let mut limit = loaded.rules.limits[0].clone();
    limit.key = vec!["user".to_owned()];
    let rule = Arc::new(SharedRule::new(&limit, Duration::from_secs(30)));
    let exact = move |key: usize| {
        let (store, rule) = (Arc::clone(&store), Arc::clone(&rule));
        async move {
            let user = key.to_string();
            let counter = rule.counter(0, &key::encode([Some(user.as_str())]), 1).unwrap();
            let asks = [SharedAsk { counter, cost: 1 }];
            store.decide(&asks, "id", Purpose::Charge).await.unwrap().admitted
        }
    };
    cases.push(case("tidegate exact, one at a time, uniform", 1, {
        let exact = exact.clone();
        move |at| exact(at % KEYS)
    }));
    cases.push(case("tidegate exact, uniform", 64, {
        let exact = exact.clone();
        move |at| exact(at % KEYS)
    }));
    cases.push(case("tidegate exact, one key", 64, move |_| exact(0)));

    #[cfg(feature = "limitador")]
    cases.extend(peer(url).await);
    cases
}

#[cfg(feature = "limitador")]
async fn peer(url: &str) -> Vec<Case> {
    use limitador::limit::{Context, Limit, Namespace};
    use limitador::storage::redis::AsyncRedisStorage;
    use std::collections::HashMap;

    let mut cases = Vec::new();
    let storage = AsyncRedisStorage::new(url).await.unwrap();
    let limiter = Arc::new(limitador::AsyncRateLimiter::new_with_storage(Box::new(storage)));
    limiter.add_limit(Limit::new("ns", 1 << 40, 3600, vec![], vec!["user".try_into().unwrap()]));
    let namespace: Namespace = "ns".into();
    let limitador = move |key: usize| {
        let (limiter, namespace) = (Arc::clone(&limiter), namespace.clone());
        async move {
            let values: HashMap<String, String> = [("user".to_owned(), key.to_string())].into();
            let context: Context = values.into();
            !limiter.check_rate_limited_and_update(&namespace, &context, 1, false).await.unwrap().limited
        }
    };
    cases.push(case("limitador, redis_storage, uniform", 64, {
        let limitador = limitador.clone();
        move |at| limitador(at % KEYS)
    }));
    cases.push(case("limitador, redis_storage, one key", 64, move |_| limitador(0)));
    cases
}

/// CPU time of a process in seconds.
fn cpu(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // Ticks of a hundredth of a second.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

async fn measure(case: &Case, span: Duration, redis: &str) -> Figures {
    let (own, theirs, start) = (cpu("self"), cpu(redis), Instant::now());
    let callers = (0..case.callers).map(|caller| {
        let (call, callers) = (Arc::clone(&case.call), case.callers);
        tokio::task::spawn_local(async move {
            let (mut at, mut waits) = (caller, Vec::new());
            while start.elapsed() < span {
                let began = Instant::now();
                assert!(call(at).await);
                waits.push(began.elapsed().as_secs_f64() * 1e6);
                // A stride that meets every key.
                at += callers * 7 + 1;
            }
            waits
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut waits = Vec::new();
    for caller in callers {
        waits.extend(caller.await.unwrap());
    }
    let (took, count) = (start.elapsed().as_secs_f64(), waits.len() as f64);
    waits.sort_by(f64::total_cmp);
    Figures {
        rate: count / took,
        p50: waits[waits.len() / 2],
        p99: waits[waits.len() * 99 / 100],
        own: (cpu("self") - own) * 1e6 / count,
        redis: (cpu(redis) - theirs) * 1e6 / count,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (url, pid) = (args.next().expect("the URL of a Redis"), args.next().expect("its pid"));
    let repetitions: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(5);
    let span = Duration::from_millis(args.next().and_then(|arg| arg.parse().ok()).unwrap_or(1000));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let cases = cases(&url).await;
        let mut all: Vec<Vec<Figures>> = cases.iter().map(|_| Vec::new()).collect();
        // Round robin: a noisy spell hits all of them alike. The first round warms up.
        for round in 0..=repetitions {
            for (case, figures) in cases.iter().zip(&mut all) {
                let measured = measure(case, span, &pid).await;
                if round > 0 {
                    figures.push(measured);
                }
            }
        }
        let of = |figures: &[Figures], one: fn(&Figures) -> f64| median(figures.iter().map(one).collect());
        let floor = of(&all[1], |figures| figures.rate);
        println!(
            "{:<42} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9}",
            "case", "per s", "× floor", "p50 µs", "p99 µs", "own µs", "redis µs"
        );
        for (case, figures) in cases.iter().zip(&all) {
            let rate = of(figures, |figures| figures.rate);
            println!(
                "{:<42} {:>9.0} {:>8.2} {:>8.0} {:>8.0} {:>9.1} {:>9.1}",
                case.name,
                rate,
                rate / floor,
                of(figures, |figures| figures.p50),
                of(figures, |figures| figures.p99),
                of(figures, |figures| figures.own),
                of(figures, |figures| figures.redis),
            );
        }
    });
}
