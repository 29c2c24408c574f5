//! Decisions in process, ours beside a floor and a peer, interleaved in one run.
//!
//! `cargo run --release -p inproc -- [reps] [ms] [group]` prints, for all groups or those whose name
//! begins so, for one and two threads, the nanoseconds that one decision takes (wall time of the slowest
//! thread), as the median and range of the repetitions, and the ratio to the group's floor and peer.

mod breaker;
mod flag;
mod limit;
mod stack;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: Counting = Counting(mimalloc::MiMalloc);

/// Counts what each thread allocates.
struct Counting(mimalloc::MiMalloc);

thread_local!(static ALLOCATED: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call goes to the allocator inside, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|count| count.set(count.get() + 1));
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATED.with(|count| count.set(count.get() + 1));
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

/// What one decision allocates, on average of a thousand warm ones.
fn allocations(run: &Run) -> f64 {
    std::hint::black_box(run(1_000, 0));
    let before = ALLOCATED.get();
    std::hint::black_box(run(1_000, 0));
    (ALLOCATED.get() - before) as f64 / 1_000.0
}

/// Runs so many decisions on one thread and says how many were yes.
pub type Run = Arc<dyn Fn(u64, usize) -> u64 + Send + Sync>;

pub struct Case {
    pub group: &'static str,
    pub name: &'static str,
    pub run: Run,
}

pub fn case(
    group: &'static str,
    name: &'static str,
    run: impl Fn(u64, usize) -> u64 + Send + Sync + 'static,
) -> Case {
    Case { group, name, run: Arc::new(run) }
}

/// Repeats a decision and counts the yeses, so that the work cannot be left out.
pub fn repeat(n: u64, mut decide: impl FnMut(u64) -> bool) -> u64 {
    (0..n).map(|i| u64::from(std::hint::black_box(decide(i)))).sum()
}

fn once(run: &Run, n: u64, threads: usize) -> f64 {
    let barrier = Arc::new(Barrier::new(threads));
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (run, barrier) = (Arc::clone(run), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                let started = Instant::now();
                std::hint::black_box(run(n, thread));
                started.elapsed().as_nanos() as f64 / n as f64
            })
        })
        .collect();
    workers.into_iter().map(|worker| worker.join().expect("a worker")).fold(0.0, f64::max)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let reps: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(11);
    let ms: u64 = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(60);
    let cases: Vec<Case> =
        [limit::cases(), breaker::cases(), flag::cases(), stack::cases()].into_iter().flatten().collect();
    let group = args.next().unwrap_or_default();
    let mut plan = Vec::new();
    for case in cases.iter().filter(|case| case.group.starts_with(&group)) {
        for threads in [1, 2] {
            let mut n = 1_000;
            let ns = loop {
                let ns = once(&case.run, n, threads);
                if ns * n as f64 > 5e6 || n > 50_000_000 {
                    break ns;
                }
                n *= 4;
            };
            plan.push((case, threads, ((ms as f64 * 1e6 / ns) as u64).max(1_000), Vec::new()));
        }
    }
    // Round robin: a noisy spell hits all of them alike.
    for _ in 0..reps {
        for (case, threads, n, figures) in &mut plan {
            figures.push(once(&case.run, *n, *threads));
        }
    }
    // Decisions allocate nothing: a runtime or an index that a case makes for itself is under one in a
    // thousand.
    for case in
        cases.iter().filter(|case| case.name.starts_with("tidegate") && !case.name.contains("guarded"))
    {
        let allocated = allocations(&case.run);
        assert!(allocated < 0.1, "{}, {}: {allocated} allocations a decision", case.group, case.name);
    }
    let mut floors: BTreeMap<(&str, usize), f64> = BTreeMap::new();
    println!(
        "{:<18} {:<50} {:>2} {:>9} {:>19} {:>9} {:>7}",
        "group", "case", "t", "ns", "range", "× floor", "allocs"
    );
    for (case, threads, _, figures) in &mut plan {
        figures.sort_by(f64::total_cmp);
        let median = figures[figures.len() / 2];
        let floor = *floors.entry((case.group, *threads)).or_insert(median);
        println!(
            "{:<18} {:<50} {:>2} {:>9.1} {:>9.1}–{:<9.1} {:>9.2} {:>7.1}",
            case.group,
            case.name,
            threads,
            median,
            figures[0],
            figures[figures.len() - 1],
            median / floor,
            allocations(&case.run)
        );
    }
}
