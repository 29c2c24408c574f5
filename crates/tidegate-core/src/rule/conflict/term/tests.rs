//! The bounds of what is unfolded and compared.

use super::*;
use crate::rule::model::{Scalar, ScalarKind};

fn scalar(text: &str) -> Scalar {
    Scalar { text: text.to_owned(), kind: ScalarKind::String }
}

fn on(name: &str, test: Test) -> Condition {
    Condition::Attribute { name: name.to_owned(), test }
}

/// One test of each of so many attributes, none of which says anything about another.
fn leaves(prefix: &str, count: usize) -> Vec<Condition> {
    (0..count).map(|n| on(&format!("{prefix}{n}"), Test::Equals(scalar("x")))).collect()
}

/// How many alternatives the condition has; `None` when it is too complex.
fn terms(segments: &[Segment], condition: &Condition) -> Option<usize> {
    Space::new(segments).unfold(Some(condition)).ok().map(|terms| terms.len())
}

fn nested(levels: usize, inner: Condition, wrap: fn(Condition) -> Condition) -> Condition {
    (0..levels).fold(inner, |inner, _| wrap(inner))
}

const NOT: fn(Condition) -> Condition = |inner| Condition::Not(Box::new(inner));
const ALL: fn(Condition) -> Condition = |inner| Condition::All(vec![inner]);
const ANY: fn(Condition) -> Condition = |inner| Condition::Any(vec![inner]);

#[test]
fn nesting_is_followed_to_its_bound_through_segments_too() {
    let leaf = || on("a", Test::Equals(scalar("x")));
    for wrap in [NOT, ALL, ANY] {
        assert_eq!(terms(&[], &nested(MAX_DEPTH, leaf(), wrap)), Some(1));
        for more in [1, 9] {
            assert_eq!(terms(&[], &nested(MAX_DEPTH + more, leaf(), wrap)), None);
        }
        for (inside, found) in [(MAX_DEPTH - 33, Some(1)), (MAX_DEPTH - 32, None)] {
            let segments = [Segment { id: "s".to_owned(), when: nested(inside, leaf(), wrap) }];
            let outside = nested(32, Condition::Segment("s".to_owned()), wrap);
            assert_eq!(terms(&segments, &outside), found, "{inside}");
        }
    }
}

#[test]
fn alternatives_are_bounded() {
    for (count, found) in [(MAX_TERMS, Some(MAX_TERMS)), (MAX_TERMS + 1, None), (MAX_TERMS + 9, None)] {
        assert_eq!(terms(&[], &Condition::Any(leaves("a", count))), found);
    }
    let pairs = |left, right| {
        let lists = vec![Condition::Any(leaves("a", left)), Condition::Any(leaves("b", right))];
        terms(&[], &Condition::All(lists))
    };
    for (left, right, found) in
        [(8, 16, Some(128)), (16, 8, Some(128)), (3, 43, None), (43, 3, None), (128, 2, None)]
    {
        assert_eq!(pairs(left, right), found, "{left} {right}");
    }
    // Equal alternatives count once: 12 with themselves and 66 pairs.
    let segments = [Segment { id: "s".to_owned(), when: Condition::Any(leaves("a", 12)) }];
    let twice = Condition::All(vec![Condition::Segment("s".to_owned()); 2]);
    assert_eq!(terms(&segments, &twice), Some(78));
}

#[test]
fn tests_in_one_alternative_are_bounded() {
    for (count, found) in [(MAX_LITERALS, Some(1)), (MAX_LITERALS + 1, None), (MAX_LITERALS + 9, None)] {
        assert_eq!(terms(&[], &Condition::All(leaves("a", count))), found, "{count}");
    }
}

#[test]
fn steps_are_bounded() {
    let mut space = Space::new(&[]);
    assert!(space.step(MAX_STEPS as usize - 1).is_ok() && space.step(1).is_ok());
    for _ in 0..2 {
        assert!(space.step(1).is_err());
    }
    assert!(Space::new(&[]).step(MAX_STEPS as usize + 9).is_err());
}

#[test]
fn comparing_is_counted_as_the_work_it_is() {
    let steps = |condition: &Condition| {
        let mut space = Space::new(&[]);
        assert!(space.unfold(Some(condition)).is_ok());
        space.steps
    };
    // Tests of one attribute are held against each other.
    let alike = |count| Condition::All(vec![on("a", Test::StartsWith("x".to_owned())); count]);
    assert!(steps(&alike(100)) >= 100 * 101 * 201 / 6, "the squares up to that of 100");
    // Each value of a list is held against every other test.
    let list = Test::In((0..5_000).map(|n| scalar(&format!("v{n}"))).collect());
    let listed = Condition::All(vec![on("a", list), on("a", Test::StartsWith("w".to_owned()))]);
    assert!((10_000..11_000).contains(&steps(&listed)), "{}", steps(&listed));
    // Each test of an alternative is looked at, and one at the least.
    let apart = steps(&Condition::All(leaves("a", 100)));
    assert!(apart >= 100 * 101 / 2, "{apart}");
    assert!(steps(&Condition::All(vec![Condition::All(vec![]); 100])) >= 200);
}
