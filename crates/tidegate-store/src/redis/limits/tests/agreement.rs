//! The same seeded traces through the core and through the scripts.

use tidegate_core::limit::{
    Concurrency, Counter as Core, FixedWindow, LeakyBucket, MAX_COUNT, MAX_PERIOD, SlidingLog, SlidingWindow,
    TokenBucket,
};

use super::*;

/// Calls of each algorithm.
const STEPS: usize = 100_000;
/// Commands that are sent before their replies are read.
const PIPELINE: usize = 250;

/// What the core says, keeping what a script keeps: nothing of a call that was not charged, unless the
/// clock was set back.
struct Reference<C: Core> {
    numbers: C,
    state: Option<C::State>,
    at: Timestamp,
}

impl<C: Core> Reference<C> {
    fn step(&mut self, cost: u64, now: Timestamp) -> Decision {
        let mut state = self.state.clone().unwrap_or_else(|| self.numbers.fresh(now));
        self.numbers.settle(&mut state, now);
        let decision = self.numbers.test(&state, cost, now);
        let charged = decision.admitted() && cost > 0;
        if charged {
            self.numbers.take(&mut state, cost, now);
        }
        if charged || (now < self.at && self.state.is_some()) {
            (self.state, self.at) = (Some(state), now);
        }
        decision
    }
}

/// A seeded stream of choices.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// When the next call comes: often at once or just when a denied one would pass, seldom after days
    /// or before the last one.
    fn next_time(&mut self, now: u64, scale: u64, last: &Decision) -> u64 {
        match self.below(100) {
            0..35 => now,
            35..60 => now + self.below(scale.saturating_mul(2)),
            60..75 => match last.retry_after() {
                Some(wait) => {
                    let micros = u64::try_from(wait.as_nanos().div_ceil(1000)).unwrap().min(400 * DAY);
                    now + micros.saturating_sub(self.below(2))
                }
                None => now + 1,
            },
            75..90 => now + self.below(20),
            90..93 => (now / scale + 1).saturating_mul(scale) - self.below(2),
            93..96 => now - self.below(SECOND + 2),
            96 => now - SECOND,
            97 => now - self.below(2 * HOUR),
            98 => now + self.below(3 * DAY),
            _ => now - self.below(5 * DAY),
        }
        .clamp(TODAY - 3_000 * DAY, TODAY + 3_000 * DAY)
    }

    fn cost(&mut self, limit: u64) -> u64 {
        match self.below(20) {
            0 => 0,
            1..12 => 1,
            12..18 => 1 + self.below(limit / 2 + 1),
            18 => limit.saturating_add(self.below(2)),
            _ => 1 + self.below(3),
        }
    }
}

/// The same calls on `twin`, in the shape for any number of limits: that one takes calls with ids.
fn in_general(command: &Command, twin: &Counter, calls: usize) -> Command {
    let mut general = command.clone();
    general.keys = vec![twin.key.as_str().to_owned()];
    general.args[1] = "1".to_owned();
    let costs = general.args.split_off(command.args.len() - calls);
    general.args.extend(costs.into_iter().flat_map(|cost| ["x".to_owned(), cost]));
    general
}

/// Runs the trace of one set of numbers, by both shapes of the script. Times may differ from the core's by
/// `tolerance`; all else is equal.
fn agree<C: Core>(server: &mut Server, algorithm: &Algorithm, tolerance: Duration, steps: usize, seed: u64) {
    let (counter, twin) = (server.counter(algorithm), server.counter(algorithm));
    let counters = std::slice::from_ref(&counter);
    let mut reference =
        Reference { numbers: C::compile(algorithm).unwrap(), state: None, at: Timestamp::EPOCH };
    let mut random = Random(seed);
    let scale = match counter.numbers.kind() {
        Kind::TokenBucket | Kind::LeakyBucket => (counter.numbers.b / counter.numbers.c).max(1),
        _ => counter.numbers.b,
    };
    let mut now = TODAY;
    let mut last = reference.step(0, micros(now));
    let mut done = 0;
    while done < steps {
        let (mut commands, mut expected) = (Vec::new(), Vec::new());
        while commands.len() < PIPELINE && done < steps {
            now = random.next_time(now, scale, &last);
            // Half of the commands carry one call, the others up to twenty: both take their own way.
            let calls = if random.below(2) == 0 { 1 } else { 1 + random.below(20) };
            let costs: Vec<u64> = (0..calls).map(|_| random.cost(counter.numbers.a)).collect();
            let calls: Vec<_> = costs.iter().map(|cost| call("x", &[*cost])).collect();
            let command = encode(counters, &calls, Purpose::Charge);
            let general = in_general(&command, &twin, costs.len());
            commands.extend([(command, now), (general, now)]);
            let decisions: Vec<Decision> =
                costs.iter().map(|cost| reference.step(*cost, micros(now))).collect();
            last = *decisions.last().unwrap();
            done += costs.len();
            expected.push((costs, decisions));
        }
        let replies = server.run_all(&commands);
        for (at, (replies, (costs, expected))) in replies.chunks(2).zip(&expected).enumerate() {
            let [reply, general] = replies else { panic!("half an answer") };
            let calls: Vec<_> = costs.iter().map(|cost| call("x", &[*cost])).collect();
            let said = || format!("{algorithm:?} at {}, costs {costs:?}, {reply:?}", commands[2 * at].1);
            assert_eq!(reply, general, "{}", said());
            let decided = decode(counters, &calls, Purpose::Charge, reply)
                .unwrap_or_else(|error| panic!("{error}: {}", said()));
            for (decided, expected) in decided.calls.iter().zip(expected) {
                assert_eq!(decided.admitted, expected.admitted(), "{expected:?}: {}", said());
                same(&decided.decisions[0], expected, tolerance, said);
            }
        }
    }
}

pub(super) fn same(ours: &Decision, core: &Decision, tolerance: Duration, said: impl Fn() -> String) {
    let near = |a: Duration, b: Duration| a.abs_diff(b) <= tolerance;
    let equal = ours.admitted() == core.admitted()
        && (ours.limit, ours.remaining) == (core.limit, core.remaining)
        && near(ours.wait(), core.wait())
        && near(ours.reset_after(), core.reset_after())
        && match (ours.retry_after(), core.retry_after()) {
            (Some(ours), Some(core)) => near(ours, core),
            (ours, core) => ours == core,
        };
    assert!(equal, "{ours:?} is not {core:?}: {}", said());
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Rates whose interval is a multiple of an eighth of a nanosecond, which the core takes exactly.
pub(super) fn exact_rates() -> Vec<(u64, u64, Duration)> {
    vec![
        (1, 1, secs(1)),
        (10, 10, secs(1)),
        (20, 20, secs(1)),
        (20, 2_000, secs(1)),
        (7, 3, secs(1)),
        (100, 7, secs(1)),
        (10, 10, secs(30)),
        (10, 10, secs(60)),
        (2, 1, secs(5)),
        (1_000_000, 1_000_000, secs(3600)),
        (1_000, 1_000_000_000, secs(1)),
        (MAX_COUNT, 1_000_000_000, secs(1)),
        (3, 400_000_000, secs(1)),
        (4_000_000_000, 8_000_000_000, secs(1) * 64),
        (4, 1, MAX_PERIOD),
        ((1 << 32) - 1, 86_400_000, secs(86_400)),
        (5_000, 5_000, secs(1)),
        (50, 1, Duration::from_micros(1)),
    ]
}

/// Rates whose interval the core takes to the nearest 2 ns.
fn near_rates() -> Vec<(u64, u64, Duration)> {
    vec![(11, 11, secs(1)), (100, 13, secs(60)), (1_000, 499, secs(1)), (5, 9, secs(7)), (40, 97, secs(3))]
}

#[test]
fn token_buckets_agree_to_the_microsecond() {
    let mut server = Server::start();
    let exact = exact_rates().into_iter().map(|rate| (rate, Duration::ZERO));
    let near = near_rates().into_iter().map(|rate| (rate, Duration::from_nanos(2)));
    let sets: Vec<_> = exact.chain(near).collect();
    for (seed, ((capacity, count, per), tolerance)) in sets.iter().enumerate() {
        let algorithm = token_bucket(*capacity, *count, *per);
        agree::<TokenBucket>(&mut server, &algorithm, *tolerance, STEPS / sets.len() + 1, seed as u64);
    }
}

#[test]
fn leaky_buckets_agree_to_the_microsecond() {
    let mut server = Server::start();
    let exact = exact_rates().into_iter().map(|rate| (rate, Duration::ZERO));
    let near = near_rates().into_iter().map(|rate| (rate, Duration::from_nanos(2)));
    let sets: Vec<_> = exact.chain(near).collect();
    for (seed, ((places, count, per), tolerance)) in sets.iter().enumerate() {
        let algorithm = leaky_bucket(*count, *per, places - 1);
        agree::<LeakyBucket>(&mut server, &algorithm, *tolerance, STEPS / sets.len() + 1, 1000 + seed as u64);
    }
}

fn windows() -> Vec<(u64, Duration)> {
    vec![
        (1, secs(1)),
        (10, secs(1)),
        (3, secs(10)),
        (100, secs(60)),
        (1_000, secs(3600)),
        (7, Duration::from_millis(1)),
        (5, Duration::from_micros(1)),
        (50, Duration::from_micros(999_983)),
        (MAX_COUNT, secs(1)),
        (MAX_COUNT, MAX_PERIOD),
        (MAX_COUNT - 1, Duration::from_micros(31_622_399_999_999)),
        (999_999_999_989, secs(86_399)),
        (20, MAX_PERIOD),
        (1_000_000_007, Duration::from_micros(31_622_399_999_981)),
    ]
}

fn windows_agree<C: Core>(algorithm: impl Fn(u64, Duration) -> Algorithm, seed: u64) {
    let mut server = Server::start();
    let sets = windows();
    for (at, (limit, window)) in sets.iter().enumerate() {
        let algorithm = algorithm(*limit, *window);
        agree::<C>(&mut server, &algorithm, Duration::ZERO, STEPS / sets.len() + 1, seed + at as u64);
    }
}

#[test]
fn fixed_windows_agree_exactly() {
    windows_agree::<FixedWindow>(fixed_window, 2000);
}

#[test]
fn sliding_windows_agree_exactly() {
    windows_agree::<SlidingWindow>(sliding_window, 3000);
}

#[test]
fn sliding_logs_agree_exactly() {
    windows_agree::<SlidingLog>(sliding_log, 4000);
}

/// What one command of the trace of permits does.
enum Did {
    /// Gave a permit back, which was held or not.
    Released(bool),
    /// Asked for permits of these ids and costs, and should be told so.
    Asked(Vec<(String, u64)>, Vec<Decision>),
}

#[test]
fn concurrency_agrees_exactly() {
    let mut server = Server::start();
    let limits = [1, 2, 10, 1_000, MAX_COUNT];
    for (seed, max) in limits.into_iter().enumerate() {
        let counter = server.counter(&concurrency(max));
        let counters = std::slice::from_ref(&counter);
        let numbers = Concurrency::new(max);
        let mut state = numbers.fresh(micros(TODAY));
        let mut random = Random(5000 + seed as u64);
        let mut held: Vec<(String, u64)> = Vec::new();
        let mut next = 0_u64;
        let mut done = 0;
        while done < STEPS / limits.len() {
            let (mut commands, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..PIPELINE {
                if random.below(3) > 0 && !held.is_empty() {
                    done += 1;
                    let at = random.below(held.len() as u64) as usize;
                    let given = random.below(4) > 0;
                    let (id, cost) =
                        if given { held.swap_remove(at) } else { ("nobody".to_owned(), held[at].1) };
                    if given {
                        Concurrency::release(&mut state, cost);
                    }
                    commands.push((permits::release(&counter, &[(&id, cost)]), TODAY));
                    expected.push(Did::Released(given));
                    continue;
                }
                let calls = if random.below(2) == 0 { 1 } else { 1 + random.below(8) };
                let (mut asked, mut decisions) = (Vec::new(), Vec::new());
                for _ in 0..calls {
                    let (id, cost) = (format!("call-{next}"), random.cost(max));
                    next += 1;
                    let (decision, after) = numbers.decide(state, cost, micros(TODAY));
                    state = after;
                    if decision.admitted() && cost > 0 {
                        held.push((id.clone(), cost));
                    }
                    asked.push((id, cost));
                    decisions.push(decision);
                }
                done += asked.len();
                let calls: Vec<_> = asked.iter().map(|(id, cost)| call(id, &[*cost])).collect();
                commands.push((encode(counters, &calls, Purpose::Charge), TODAY));
                expected.push(Did::Asked(asked, decisions));
            }
            for (reply, did) in server.run_all(&commands).iter().zip(&expected) {
                match did {
                    Did::Released(given) => {
                        assert_eq!(*reply, Value::Array(vec![Value::Int(i64::from(*given))]));
                    }
                    Did::Asked(asked, decisions) => {
                        let calls: Vec<_> = asked.iter().map(|(id, cost)| call(id, &[*cost])).collect();
                        let decided = decode(counters, &calls, Purpose::Charge, reply).unwrap();
                        let said = decided.calls.iter().map(|call| call.decisions[0]);
                        assert!(said.eq(decisions.iter().copied()), "{asked:?}: {decided:?}");
                    }
                }
            }
        }
    }
}
