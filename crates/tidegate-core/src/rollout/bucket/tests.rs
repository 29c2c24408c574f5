use super::*;

/// Subjects of the distribution tests: `u0` … `u99999`.
const SUBJECTS: u32 = 100_000;

fn share(hundredths: u16) -> Percentage {
    Percentage::from_hundredths(hundredths).unwrap()
}

fn buckets(flag: &str) -> Vec<u16> {
    (0..SUBJECTS).map(|n| bucket(flag, &format!("u{n}"))).collect()
}

fn count(flag: &[u16], below: u16) -> usize {
    flag.iter().filter(|bucket| hits(share(below), **bucket)).count()
}

#[test]
fn golden_vectors() {
    let check = |flag, subject, expected| assert_eq!(bucket(flag, subject), expected, "{flag}:{subject}");
    check("new-checkout", "user-1", 7683);
    check("dark-mode", "user-1", 5320);
    check("new-checkout", "😀", 2525);
    // Subjects are not normalised: composed and decomposed é are two subjects.
    check("f", "\u{e9}", 2555);
    check("f", "e\u{301}", 8653);
    check("new-checkout", "user-6502", 9999);
    check("new-checkout", "user-7760", 0);
}

#[test]
fn r1_bucket_9999_is_on_at_100_and_off_at_99_99() {
    let at = bucket("new-checkout", "user-6502");
    assert!(hits(share(10_000), at));
    assert!(!hits(share(9_999), at));
}

#[test]
fn r2_bucket_0_is_off_at_0_and_on_at_0_01() {
    let at = bucket("new-checkout", "user-7760");
    assert!(!hits(share(0), at));
    assert!(hits(share(1), at));
}

#[test]
fn r3_every_percentage_hits_exactly_its_buckets() {
    for hundredths in 0..=10_000 {
        let hit = (0..BUCKETS).filter(|bucket| hits(share(hundredths), *bucket)).count();
        assert_eq!(hit, usize::from(hundredths));
    }
    assert_eq!(Percentage::from_hundredths(10_001), None);
}

#[test]
fn shares_are_even_and_only_grow() {
    let buckets = buckets("new-checkout");
    assert_eq!(count(&buckets, 1_000), 10_066);
    assert_eq!(count(&buckets, 2_000), 19_977);
    // Hit at 10 % implies hit at 20 %, for each subject and by the same comparison for any two shares.
    assert!(buckets.iter().all(|at| !hits(share(1_000), *at) || hits(share(2_000), *at)));
}

#[test]
fn the_flag_is_the_salt() {
    let (left, right, unsalted) = (buckets("new-checkout"), buckets("dark-mode"), buckets(""));
    let ten = share(1_000);
    let common = left.iter().zip(&right).filter(|(left, right)| hits(ten, **left) && hits(ten, **right));
    assert_eq!(common.count(), 1_027);
    // Without a salt both flags hit the very same subjects.
    assert_eq!(count(&unsalted, 1_000), 10_085);
}

#[test]
fn a_rollout_from_10_to_50_changes_only_the_subjects_between() {
    let buckets = buckets("new-checkout");
    let before: Vec<bool> = buckets.iter().map(|at| hits(share(1_000), *at)).collect();
    let after: Vec<bool> = buckets.iter().map(|at| hits(share(5_000), *at)).collect();
    assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 39_935);
    let back: Vec<bool> = buckets.iter().map(|at| hits(share(1_000), *at)).collect();
    assert_eq!(back, before);
}

#[test]
fn a_node_that_is_behind_flips_subjects_without_a_pin() {
    // Node A has 50 % from 0 s on, node B only from 30 s on; six calls, 10 s apart, alternate.
    let (mut flipped, mut changes) = (0, 0);
    for n in 0..10_000 {
        let at = bucket("new-checkout", &format!("u{n}"));
        let answer = |call: usize| {
            let behind = call % 2 == 1 && call * 10 < 30;
            hits(share(if behind { 1_000 } else { 5_000 }), at)
        };
        let flips = (1..6).filter(|call| answer(*call) != answer(*call - 1)).count();
        flipped += usize::from(flips > 1);
        changes += flips;
    }
    assert_eq!((flipped, changes), (3_961, 7_922));
}

#[test]
fn the_draw_between_variants_is_independent_of_the_share() {
    let chosen: Vec<u16> = (0..SUBJECTS)
        .map(|n| format!("u{n}"))
        .filter(|subject| hits(share(1_000), bucket("new-checkout", subject)))
        .map(|subject| split_bucket("new-checkout", &subject))
        .collect();
    let low = chosen.iter().filter(|at| **at < 5_000).count();
    // Half of 10,066 ± 4 standard deviations (50 each).
    assert!(low.abs_diff(chosen.len() / 2) < 200, "{low} of {}", chosen.len());
}

#[test]
fn hashed_in_pieces_is_hashed_whole() {
    let whole = |text: &str| {
        let digest = Sha256::digest(text);
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % 10_000
    };
    let long = "s".repeat(10_000);
    for subject in ["", "a", "a:b", &long] {
        assert_eq!(u32::from(bucket("f", subject)), whole(&format!("f:{subject}")));
        assert_eq!(u32::from(split_bucket("f", subject)), whole(&format!(":split:f:{subject}")));
    }
}

#[test]
fn a_block_holds_a_short_text_its_mark_and_its_length() {
    assert_eq!(SHORT + 1 + size_of::<u64>(), BLOCK);
    assert_eq!(BLOCK, 64);
}

/// Around the block's size the padding is ours, then the hasher's: all lengths give one function.
#[test]
fn texts_of_every_length_are_hashed_as_the_hasher_does() {
    for flag in ["", "f", "new-checkout", "a-flag-with-a-name-that-nearly-fills-a-whole-block-by-itself"] {
        for length in 0..140 {
            let subject: String = ('a'..='z').cycle().take(length).collect();
            for (text, found) in [
                (format!("{flag}:{subject}"), bucket(flag, &subject)),
                (format!(":split:{flag}:{subject}"), split_bucket(flag, &subject)),
            ] {
                let digest = Sha256::digest(&text);
                let head = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
                assert_eq!(u32::from(found), head % 10_000, "{text}");
            }
        }
    }
}
