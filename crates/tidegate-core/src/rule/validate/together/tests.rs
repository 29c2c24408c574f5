use super::*;
use crate::rule::model::{Condition, Scalar, ScalarKind, Segment, Test};

fn rules(test: Test) -> RuleSet {
    let when = Condition::Attribute { name: "a".to_owned(), test };
    RuleSet { segments: vec![Segment { id: "s".to_owned(), when }], ..RuleSet::default() }
}

fn messages(rules: &RuleSet) -> Vec<String> {
    written_out(rules, &Positions::default()).into_iter().map(|found| found.message).collect()
}

#[test]
fn rules_written_out_may_have_as_many_bytes_as_a_document() {
    let sized = |bytes: usize| rules(Test::StartsWith("x".repeat(bytes)));
    let room = MAX_BYTES - version::document(&sized(0)).render().len();
    assert_eq!(messages(&sized(room)), [""; 0]);
    assert_eq!(
        messages(&sized(room + 1)),
        ["written out in full, the rules have 4194305 bytes, and 4194304 are the most"]
    );
}

#[test]
fn rules_written_out_may_have_as_many_values_as_a_document() {
    let one = || Scalar { text: "1".to_owned(), kind: ScalarKind::Number };
    let listed = |count: usize| rules(Test::In(std::iter::repeat_with(one).take(count).collect()));
    let room = (MAX_NODES - version::document(&listed(0)).count()) as usize;
    assert_eq!(messages(&listed(room)), [""; 0]);
    assert_eq!(
        messages(&listed(room + 1)),
        ["written out in full, the rules have 1000001 values, and 1000000 are the most"]
    );
}
