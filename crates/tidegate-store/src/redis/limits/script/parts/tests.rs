use super::*;

#[test]
fn fields_become_variables_and_commands_stay() {
    let check = |line: &str, expected: &str, named: &[&str]| {
        let (mut text, mut fields) = (String::new(), BTreeSet::new());
        localise(line, &mut text, &mut fields);
        assert_eq!(text, expected);
        assert!(fields.iter().eq(named), "{fields:?}");
    };
    check("s.k, s.at = s.k + 1, now", "s_k, s_at = s_k + 1, now", &["at", "k"]);
    check("redis.call('GET', s.key)", "redis.call('GET', s_key)", &["key"]);
    check("this.k = s.", "this.k = s.", &[]);
}

#[test]
fn a_straight_line_calls_nothing_rare_and_holds_each_step_once() {
    for kind in [Kind::TokenBucket, Kind::LeakyBucket, Kind::FixedWindow, Kind::SlidingWindow] {
        let text = Algorithm::of(kind).in_a_straight_line();
        assert!(!text.contains("rare_") && !text.contains("--@") && !text.contains(" s."), "{text}");
        assert_eq!(text.matches("'GET'").count(), 1, "{text}");
        assert_eq!(text.matches("'SET'").count(), 1, "{text}");
    }
    for kind in [Kind::SlidingLog, Kind::Concurrency] {
        assert_eq!(Algorithm::of(kind).in_a_straight_line(), "");
    }
}
