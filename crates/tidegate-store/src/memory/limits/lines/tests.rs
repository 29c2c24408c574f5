use std::sync::Arc;

use super::*;

impl Word for loom::sync::atomic::AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn replace(&self, old: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

const ALICE: Print = Print(0x15_5555_5555_5555);
const BOB: Print = Print(0x15_5555_5555_5556);

fn kept(params: u32, word: u64) -> Kept {
    Kept { params, word }
}

/// Counts one more, up to `most`.
fn count(most: u64) -> impl FnMut(u64) -> Option<(bool, u64)> {
    move |word| Some(if word < most { (true, word + 1) } else { (false, word) })
}

fn never(_: Kept) -> bool {
    false
}

#[test]
fn a_counter_is_found_by_its_print_and_decided_by_its_numbers() {
    let lines: Lines = Lines::new(3);
    assert_eq!(lines.insert(ALICE, kept(7, 100), false, never), Some(0));
    assert_eq!(lines.quick(ALICE, 7, count(102)), Some(true));
    assert_eq!(lines.quick(ALICE, 8, count(102)), None, "other numbers");
    assert_eq!(lines.quick(BOB, 7, count(102)), None, "another key");
    let at = lines.find(ALICE).unwrap();
    assert_eq!(lines.get(at), Some(kept(7, 101)));
    assert_eq!(lines.hold(at), Some(kept(7, 101)));
    assert_eq!(lines.quick(ALICE, 7, count(102)), None, "held");
    assert!(lines.put(at, kept(8, 102), true));
    assert_eq!(lines.quick(ALICE, 8, count(200)), None, "still held");
    assert!(lines.put(at, kept(8, 102), false));
    assert_eq!(lines.quick(ALICE, 8, count(102)), Some(false));
    assert_eq!(lines.remove(at), Some(kept(8, 102)));
    assert_eq!((lines.find(ALICE), lines.get(at)), (None, None));
    assert_eq!(lines.quick(ALICE, 8, count(200)), None);
}

#[test]
fn words_of_a_slot_never_go_back() {
    let lines: Lines = Lines::new(1);
    lines.insert(ALICE, kept(1, 100), false, never);
    let at = lines.find(ALICE).unwrap();
    lines.hold(at);
    // (next, whether it may be stored)
    for (next, fits) in [
        (kept(1, 99), false),
        (kept(2, 100), false),
        (kept(MAX_PARAMS, 101), false),
        (kept(1, 100 + HELD / 2), false),
        (kept(1, 100), true),
        (kept(2, 101), true),
    ] {
        assert_eq!(lines.put(at, next, true), fits, "{next:?}");
    }
    lines.remove(at);
    // The slot keeps 102; the other three of the line are new.
    for n in 0..3 {
        assert_eq!(lines.insert(Print(1 + n), kept(0, 50), false, never), Some(0));
    }
    assert_eq!(lines.insert(BOB, kept(0, 102), false, never), None);
    assert_eq!(lines.insert(BOB, kept(0, 103), false, never), Some(0));
    // Full: only what may go makes room, and never what is held or is later.
    assert_eq!(lines.insert(ALICE, kept(0, 200), false, never), None);
    assert_eq!(lines.insert(ALICE, kept(0, 49), false, |_| true), None);
    let held = lines.find(Print(1)).unwrap();
    lines.hold(held);
    assert_eq!(lines.insert(ALICE, kept(0, 51), false, |there| there.word == 50), Some(1));
    assert!(lines.find(Print(1)).is_some());
    assert_eq!(lines.quick(ALICE, 0, count(60)), Some(true));
}

#[test]
fn an_empty_print_is_no_empty_slot() {
    let lines: Lines = Lines::new(1);
    assert_eq!(lines.find(Print(0)), None);
    assert_eq!(lines.insert(Print(0), kept(0, 1), false, never), Some(0));
    assert_eq!(lines.quick_single(0, count(9)), Some(true));
    assert_eq!(lines.quick(Print(0), 0, count(9)), Some(true));
}

#[test]
fn all_move_with_their_words_and_the_old_slots_are_closed() {
    let prints: Vec<Print> =
        (0..2000_u64).map(|n| Print::new(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let mut lines: Lines = Lines::new(1);
    let mut refused = 0;
    for (n, print) in prints.iter().enumerate() {
        if lines.is_crowded(n + 1 - refused) {
            let next = lines.moved(lines.len() * 3 / 2 + 1).unwrap();
            for print in &prints[..n] {
                assert!(lines.quick(*print, 3, count(u64::MAX)).is_none());
            }
            lines = next;
        }
        refused += usize::from(lines.insert(*print, kept(3, 1 + n as u64), false, never).is_none());
    }
    for (n, print) in prints.iter().enumerate() {
        if let Some(at) = lines.find(*print) {
            assert_eq!(lines.get(at), Some(kept(3, 1 + n as u64)));
        }
    }
    assert!(refused <= 20, "{refused} of 2000 found no room");
    assert!(lines.moved(300).is_none(), "2000 in 1200 slots");
    assert!(
        prints.iter().any(|print| lines.quick(*print, 3, count(u64::MAX)).is_some()),
        "closed all the same"
    );
}

#[test]
fn a_table_loaded_to_three_quarters_has_room_for_nearly_all() {
    let keys = 60_000;
    let lines: Lines = Lines::new(Lines::<AtomicU64>::for_keys(keys));
    assert!(!lines.is_crowded(keys) && lines.slots() * 3 <= keys * 4 + 12);
    let mut state = 1_u64;
    let mut print = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        Print::new(state ^ (state >> 29))
    };
    let refused = (0..keys).filter(|_| lines.insert(print(), kept(0, 1), false, never).is_none()).count();
    assert!(refused < keys / 200, "{refused} of {keys}");
}

// ---- under the model checker -----------------------------------------------------------------------

type Model = Lines<loom::sync::atomic::AtomicU64>;

#[test]
fn loom_two_deciders_admit_exactly_the_limit() {
    loom::model(|| {
        let lines = Arc::new(Model::new(1));
        lines.insert(ALICE, kept(0, 10), false, never);
        let other = Arc::clone(&lines);
        let thread = loom::thread::spawn(move || other.quick(ALICE, 0, count(11)));
        let mine = lines.quick(ALICE, 0, count(11));
        let theirs = thread.join().unwrap();
        assert_eq!([mine, theirs].iter().filter(|said| **said == Some(true)).count(), 1);
        assert_eq!(lines.get(lines.find(ALICE).unwrap()), Some(kept(0, 11)));
    });
}

/// While the owner gives Alice's slot to Bob, she is charged before, or told to ask; Bob never pays.
#[test]
fn loom_a_slot_given_away_is_not_charged_for_its_former_key() {
    loom::model(|| {
        let lines = Arc::new(Model::new(1));
        for n in 0..3 {
            lines.insert(Print(1 + n), kept(0, 1000), false, never);
        }
        lines.insert(ALICE, kept(0, 10), false, never);
        let other = Arc::clone(&lines);
        let thread = loom::thread::spawn(move || other.quick(ALICE, 0, count(12)));
        let given = lines.insert(BOB, kept(0, 50), false, |there| there.word == 10);
        let charged = thread.join().unwrap();
        if given.is_some() {
            assert_eq!((charged, lines.find(ALICE)), (None, None));
            assert_eq!(lines.get(lines.find(BOB).unwrap()), Some(kept(0, 50)));
        } else {
            // Charged in time, so that she may not go.
            assert_eq!((charged, lines.find(BOB)), (Some(true), None));
        }
    });
}

/// A denial is Alice's own, too.
#[test]
fn loom_a_slot_given_away_does_not_answer_for_its_former_key() {
    loom::model(|| {
        let lines = Arc::new(Model::new(1));
        lines.insert(ALICE, kept(0, 10), false, never);
        let other = Arc::clone(&lines);
        let at = lines.find(ALICE).unwrap();
        // Only a word of Bob's is denied; Alice's would be charged nothing.
        let look = |word: u64| Some((word < 40, word));
        let thread = loom::thread::spawn(move || other.quick(ALICE, 0, look));
        lines.remove(at);
        lines.insert(BOB, kept(0, 50), false, never);
        assert_ne!(thread.join().unwrap(), Some(false));
    });
}

/// Between an owner's look at a counter and what it does about it, nobody else decides.
#[test]
fn loom_an_owner_decides_alone() {
    loom::model(|| {
        let lines = Arc::new(Model::new(1));
        lines.insert(ALICE, kept(0, 10), false, never);
        let other = Arc::clone(&lines);
        let thread = loom::thread::spawn(move || other.quick(ALICE, 0, count(11)));
        let at = lines.find(ALICE).unwrap();
        let before = lines.hold(at).unwrap();
        let mine = before.word < 11;
        if mine {
            assert!(lines.put(at, kept(0, before.word + 1), true));
        }
        assert!(lines.put(at, lines.get(at).unwrap(), false));
        let theirs = thread.join().unwrap();
        // Told to ask, it would be denied by the owner.
        assert!(!(mine && theirs == Some(true)) && (mine || theirs == Some(true)));
        assert_eq!(lines.get(at), Some(kept(0, 11)));
    });
}

#[test]
fn loom_nothing_charged_is_lost_in_a_move() {
    loom::model(|| {
        let lines = Arc::new(Model::new(1));
        lines.insert(ALICE, kept(0, 10), false, never);
        let other = Arc::clone(&lines);
        let thread = loom::thread::spawn(move || other.quick(ALICE, 0, count(20)));
        let next = lines.moved(2).unwrap();
        let charged = thread.join().unwrap().is_some();
        assert_eq!(next.get(next.find(ALICE).unwrap()), Some(kept(0, 10 + u64::from(charged))));
        assert!(lines.quick(ALICE, 0, count(20)).is_none());
    });
}

/// A key that is taken out and put back, where it was or elsewhere, with what its owner saw: what is charged
/// meanwhile was charged before, and is carried along.
#[test]
fn loom_nothing_charged_is_lost_when_a_key_comes_back() {
    for elsewhere in [false, true] {
        loom::model(move || {
            let lines = Arc::new(Model::new(1));
            lines.insert(ALICE, kept(0, 10), false, never);
            let other = Arc::clone(&lines);
            let thread = loom::thread::spawn(move || other.quick(ALICE, 0, count(20)));
            let seen = lines.remove(lines.find(ALICE).unwrap()).unwrap();
            // Its former slot takes nothing that is not later; the next one takes all.
            let back = if elsewhere { seen.word } else { seen.word + 5 };
            assert_eq!(lines.insert(ALICE, kept(0, back), false, never), Some(0));
            let charged = thread.join().unwrap();
            let now = lines.get(lines.find(ALICE).unwrap()).unwrap().word;
            assert_eq!(now - (back - seen.word), 10 + u64::from(charged.is_some()));
        });
    }
}
