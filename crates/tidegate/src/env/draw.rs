//! Numbers for jitter, drawn without a lock, a reference count or a block of a cipher.

use std::cell::Cell;

use rand::RngExt as _;

thread_local!(static STATE: Cell<Option<u64>> = const { Cell::new(None) });

/// The next number of the thread's own `SplitMix64` sequence, which the process's generator seeds.
///
/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators", figure 13 with Stafford's
/// mix 13.
#[inline]
pub(super) fn next() -> u64 {
    STATE.with(|cell| {
        let state = cell.get().unwrap_or_else(seed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        cell.set(Some(state));
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cold]
fn seed() -> u64 {
    rand::rng().random()
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn numbers_are_spread_evenly_and_differ_between_threads() {
        let mut slots = [0_u32; 16];
        for _ in 0..16_000 {
            slots[(next() >> 60) as usize] += 1;
        }
        // Standard deviation 31: six of them are 184.
        assert!(slots.iter().all(|count| (800..1_200).contains(count)), "{slots:?}");
        let other = std::thread::spawn(next).join().unwrap();
        assert_ne!(next(), other);
    }
}
