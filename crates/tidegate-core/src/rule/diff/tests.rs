use std::time::Duration;

use super::*;
use crate::rule::model::*;
use crate::rule::sample::*;

/// What `change` makes of the sample, in words; warnings begin with `!`.
#[track_caller]
fn check(change: impl Fn(&mut RuleSet), expected: &[&str]) {
    check_from(|_| (), change, expected);
}

#[track_caller]
fn check_from(prepare: impl Fn(&mut RuleSet), change: impl Fn(&mut RuleSet), expected: &[&str]) {
    let mut old = everything();
    prepare(&mut old);
    let mut new = old.clone();
    change(&mut new);
    let found: Vec<String> = diff(&old, &new)
        .iter()
        .map(|change| format!("{}{change}", if change.severity == Severity::Warning { "! " } else { "" }))
        .collect();
    assert_eq!(found, expected);
}

fn window(limit: u64, seconds: u64) -> Algorithm {
    Algorithm::FixedWindow { limit, window: Duration::from_secs(seconds) }
}

#[test]
fn equal_rule_sets_and_other_orders_are_no_change() {
    check(|_| (), &[]);
    check(|rules| rules.resources.reverse(), &[]);
    check(|rules| rules.flags[0].variants.reverse(), &[]);
}

#[test]
fn limits_keep_what_was_used_unless_they_count_otherwise() {
    let fixed = |rules: &mut RuleSet| rules.limits[0].algorithm = window(1_000, 1);
    check_from(
        fixed,
        |rules| rules.limits[0].algorithm = window(800, 1),
        &["limit pay-per-tenant: limit 1000 → 800 per 1s; counters keep what was used"],
    );
    check_from(
        fixed,
        |rules| rules.limits[0].algorithm = window(1_000, 10),
        &["! limit pay-per-tenant: window 1s → 10s; counters start fresh: the window changed from 1s to 10s"],
    );
    check_from(
        fixed,
        |rules| rules.limits[0].algorithm = Algorithm::Concurrency { max: 8 },
        &[
            "! limit pay-per-tenant: algorithm fixed_window {\"limit\": 1000, \"window\": \"1s\"} → concurrency \
           {\"max\": 8}; counters start fresh: the algorithm changed from fixed_window to concurrency",
        ],
    );
    check(
        |rules| {
            let refill = Rate { count: 10, per: Duration::from_secs(1) };
            rules.limits[0].algorithm = Algorithm::TokenBucket { capacity: 40, refill };
        },
        &[
            "limit pay-per-tenant: capacity 20 → 40; counters keep what was used",
            "limit pay-per-tenant: refill 5/10s → 10/s; counters keep what was used",
        ],
    );
    check(
        |rules| {
            rules.limits[0].key = texts(&["tenant", "ip"]);
            rules.limits[0].sharing = Sharing::Exact;
        },
        &[
            "! limit pay-per-tenant: key tenant → tenant, ip; counters start fresh: the key changed from tenant to \
             tenant, ip, and the sharing changed from leased to exact",
            "! limit pay-per-tenant: sharing leased → exact; counters start fresh: the key changed from tenant to \
             tenant, ip, and the sharing changed from leased to exact",
        ],
    );
    check(
        |rules| rules.limits[0].overrides.clear(),
        &[
            "limit pay-per-tenant: overrides token_bucket {\"capacity\": 200, \"refill\": \"100/s\"} when {\"tenant\": \
           {\"equals\": \"app\"}} → none: a key whose window is another one now starts fresh; counters keep what was used",
        ],
    );
}

#[test]
fn each_other_field_of_a_limit_is_told() {
    check(
        |rules| rules.limits[0].mode = Mode::Enforce,
        &["limit pay-per-tenant: mode off → enforce: it refuses from now on; counters keep what was used"],
    );
    check_from(
        |rules| rules.limits[0].mode = Mode::Enforce,
        |rules| rules.limits[0].mode = Mode::Shadow,
        &[
            "! limit pay-per-tenant: mode enforce → shadow: it no longer refuses, and counts on; counters keep what was used",
        ],
    );
    check(
        |rules| {
            let limit = &mut rules.limits[0];
            limit.resources = Resources::Listed(texts(&["pay"]));
            limit.cost = Cost::Fixed(2);
            limit.on_store_failure = None;
            limit.after_store_loss = AfterStoreLoss::Fresh;
            limit.description = None;
            limit.owner = Some(text("oncall"));
        },
        &[
            "limit pay-per-tenant: resources * → pay; counters keep what was used",
            "limit pay-per-tenant: cost weight (default 1, at most 100) → 2; counters keep what was used",
            "limit pay-per-tenant: on_store_failure local_fallback → none",
            "limit pay-per-tenant: after_store_loss exhausted → fresh",
            "limit pay-per-tenant: description \"a \\\"quoted\\\"\\nline\\u2028\" → none",
            "limit pay-per-tenant: owner none → \"oncall\"",
        ],
    );
    check(
        |rules| {
            let mut other = rules.limits.remove(0);
            other.id = text("other");
            other.mode = Mode::Enforce;
            rules.limits.push(other);
        },
        &[
            "limit pay-per-tenant: removed: calls of * by tenant are no longer limited by it; its counters are dropped",
            "limit other: added: calls of * by tenant are now refused beyond token_bucket {\"capacity\": 20, \
             \"refill\": \"5/10s\"}",
        ],
    );
}

#[test]
fn each_algorithm_tells_its_own_fields() {
    let per = |count| Rate { count, per: Duration::from_secs(1) };
    check_from(
        |rules| rules.limits[0].algorithm = Algorithm::LeakyBucket { rate: per(5), queue: 1 },
        |rules| rules.limits[0].algorithm = Algorithm::LeakyBucket { rate: per(6), queue: 2 },
        &[
            "limit pay-per-tenant: rate 5/s → 6/s; counters keep what was used",
            "limit pay-per-tenant: queue 1 → 2; counters keep what was used",
        ],
    );
    check_from(
        |rules| rules.limits[0].algorithm = Algorithm::Concurrency { max: 8 },
        |rules| rules.limits[0].algorithm = Algorithm::Concurrency { max: 9 },
        &["limit pay-per-tenant: max 8 → 9; counters keep what was used"],
    );
    for make in [
        |limit, window| Algorithm::SlidingLog { limit, window },
        |limit, window| Algorithm::SlidingWindow { limit, window },
    ] {
        check_from(
            |rules| rules.limits[0].algorithm = make(5, Duration::from_secs(1)),
            |rules| rules.limits[0].algorithm = make(6, Duration::from_secs(1)),
            &["limit pay-per-tenant: limit 5 → 6 per 1s; counters keep what was used"],
        );
    }
}

#[test]
fn counters_are_carried_by_algorithm_window_key_and_sharing() {
    let old = everything().limits.remove(0);
    let check = |change: fn(&mut Limit), keeps: bool| {
        let mut new = old.clone();
        change(&mut new);
        assert_eq!(state_effect(&old, &new) == Carry::Keep, keeps, "{new:?}");
    };
    check(|_| (), true);
    check(|limit| limit.mode = Mode::Enforce, true);
    check(|limit| limit.resources = Resources::Listed(texts(&["pay"])), true);
    check(|limit| limit.cost = Cost::Fixed(9), true);
    check(|limit| limit.overrides.clear(), true);
    check(|limit| limit.key = vec![], false);
    check(|limit| limit.sharing = Sharing::Local, false);
    check(|limit| limit.algorithm = window(1, 1), false);

    let per_second = Rate { count: 1, per: Duration::from_secs(1) };
    for (old, new, keeps) in [
        (window(1, 1), window(9, 1), true),
        (window(1, 1), window(1, 2), false),
        (
            Algorithm::SlidingLog { limit: 1, window: Duration::from_secs(1) },
            Algorithm::SlidingLog { limit: 1, window: Duration::from_secs(2) },
            false,
        ),
        (
            Algorithm::SlidingWindow { limit: 1, window: Duration::from_secs(1) },
            Algorithm::SlidingLog { limit: 1, window: Duration::from_secs(1) },
            false,
        ),
        (
            Algorithm::LeakyBucket { rate: per_second, queue: 1 },
            Algorithm::LeakyBucket { rate: Rate { count: 9, ..per_second }, queue: 0 },
            true,
        ),
        (Algorithm::Concurrency { max: 1 }, Algorithm::Concurrency { max: 2 }, true),
    ] {
        assert_eq!(algorithm_effect(&old, &new) == Carry::Keep, keeps, "{old:?} {new:?}");
    }
}

#[test]
fn idempotency_records_are_forgotten_when_their_name_changes() {
    check(
        |rules| rules.idempotency[0].operation = text("refund"),
        &[
            "! idempotency pay-once: operation charge → refund; records made under operation charge are forgotten: a \
           retry of an earlier request executes again",
        ],
    );
    check(
        |rules| rules.idempotency[0].scope = vec![],
        &[
            "! idempotency pay-once: scope tenant → none; records made under operation charge are forgotten: a retry of \
           an earlier request executes again",
        ],
    );
    check(
        |rules| {
            let from = AttributeSource::Header(text("idempotency-key"));
            rules.idempotency[0].key = KeySource::Attribute { from, required: true };
        },
        &[
            "! idempotency pay-once: key derived from tenant, body./sku → header.idempotency-key; records made under \
             operation charge are forgotten: a retry of an earlier request executes again",
            "idempotency pay-once: key required always there → true; records keep what they were claimed under",
            "idempotency pay-once: key window 10s → none; records keep what they were claimed under",
        ],
    );
    check(
        |rules| rules.resources[0].attributes[0].from = AttributeSource::Query(text("tenant")),
        &[
            "! resource pay: attribute tenant header.x-tenant → query.tenant: limit pay-per-tenant counts by other \
             values, and percentages are drawn for other subjects, who may get other variants",
            "! idempotency pay-once: attribute tenant of pay header.x-tenant → query.tenant; records made under \
             operation charge are forgotten: a retry of an earlier request executes again",
        ],
    );
    // The operation does not come from the id here, so another id changes nothing.
    check(
        |rules| rules.idempotency[0].id = text("renamed"),
        &[
            "idempotency pay-once: removed: rule renamed goes on with its records; records keep what they were claimed \
             under",
            "idempotency renamed: added: goes on with the records of rule pay-once",
        ],
    );
    check(
        |rules| {
            rules.idempotency[0].id = text("renamed");
            rules.idempotency[0].operation = text("renamed");
        },
        &[
            "! idempotency pay-once: removed: requests of pay are no longer guarded by it; records made under operation \
             charge are forgotten: a retry of an earlier request executes again",
            "idempotency renamed: added: requests of pay are guarded, from an empty record",
        ],
    );
}

#[test]
fn other_settings_of_idempotency_leave_records_as_they_were_claimed() {
    check(
        |rules| {
            let rule = &mut rules.idempotency[0];
            rule.fingerprint = vec![FingerprintPart::Body, FingerprintPart::Query];
            rule.commit = CommitMode::WithEffects;
            rule.on_unknown = OnUnknown::Hold;
            rule.lease = Duration::from_secs(9);
            rule.max_execution = Duration::from_secs(99);
            rule.retention = Duration::from_hours(48);
            rule.in_progress = InProgress::Reject;
            rule.max_response = 1_000;
            rule.replay_headers = vec![];
        },
        &[
            "idempotency pay-once: fingerprint method, path, body → body, query; records keep what they were claimed under",
            "idempotency pay-once: commit after_response → with_effects; records keep what they were claimed under",
            "idempotency pay-once: on_unknown retry → hold; records keep what they were claimed under",
            "idempotency pay-once: lease 30s → 9s; records keep what they were claimed under",
            "idempotency pay-once: max_execution 5m → 1m39s; records keep what they were claimed under",
            "idempotency pay-once: retention 1d → 2d; records keep what they were claimed under",
            "idempotency pay-once: in_progress wait 1s500ms → reject; records keep what they were claimed under",
            "idempotency pay-once: max_response 1MiB → 1000B; records keep what they were claimed under",
            "idempotency pay-once: replay_headers etag → none; records keep what they were claimed under",
        ],
    );
    check(
        |rules| rules.idempotency[0].resources = Resources::Listed(texts(&["account"])),
        &[
            "! idempotency pay-once: resources pay → account: requests of pay are no longer guarded by it; records keep \
           what they were claimed under",
        ],
    );
}

#[test]
fn breakers_keep_their_state_and_say_what_else_starts_anew() {
    let check_effect = |change: fn(&mut Breaker), expected: BreakerCarry| {
        let old = everything().breakers.remove(0);
        let mut new = old.clone();
        change(&mut new);
        assert_eq!(breaker_effect(&old, &new), expected, "{new:?}");
    };
    check_effect(|_| (), BreakerCarry::Untouched);
    check_effect(|breaker| breaker.min_requests = 5, BreakerCarry::Keep);
    check_effect(|breaker| breaker.open_for = Duration::from_secs(9), BreakerCarry::Keep);
    check_effect(|breaker| breaker.trip.truncate(2), BreakerCarry::Keep);
    check_effect(|breaker| breaker.trip = breaker.trip.split_off(1), BreakerCarry::KeepState);
    check_effect(|breaker| breaker.window = Duration::from_secs(9), BreakerCarry::KeepState);
    check_effect(|breaker| breaker.failure.truncate(1), BreakerCarry::KeepState);
    check_effect(|breaker| breaker.failure.reverse(), BreakerCarry::Keep);
    check_effect(|breaker| breaker.trip.reverse(), BreakerCarry::Keep);
    check_effect(|breaker| breaker.per_upstream_host = false, BreakerCarry::Rekeyed);

    check(
        |rules| rules.breakers[0].min_requests = 5,
        &["breaker account-slow: min_requests 20 → 5; state and window are kept"],
    );
    check(
        |rules| {
            rules.breakers[0].window = Duration::from_mins(1);
            rules.breakers[0].failure = vec![FailureKind::Timeout];
        },
        &[
            "breaker account-slow: failure connect, 5xx, 429 → timeout; the state is kept, the window starts empty",
            "breaker account-slow: window 10s → 1m; the state is kept, the window starts empty",
        ],
    );
    check(
        |rules| rules.breakers[0].per_upstream_host = false,
        &[
            "! breaker account-slow: key upstream_host → none; its breakers start with empty windows, in the state \
             of the one that was furthest from closed",
        ],
    );
    check(
        |rules| {
            let breaker = &mut rules.breakers[0];
            breaker.resources = Resources::All;
            breaker.trip.truncate(1);
            breaker.open_for = Duration::from_secs(6);
            breaker.max_open = Duration::from_secs(7);
            breaker.half_open = HalfOpen { probes: 2, probe_timeout: Duration::from_secs(1) };
            breaker.fallback.clear();
        },
        &[
            "breaker account-slow: resources account → *; state and window are kept",
            "breaker account-slow: trip 50% slower than 250ms, 0.29% errors, 200 errors → 50% slower than 250ms; state \
             and window are kept",
            "breaker account-slow: open_for 5s → 6s; state and window are kept",
            "breaker account-slow: max_open 1m → 7s; state and window are kept",
            "breaker account-slow: half_open probes 1 → 2; state and window are kept",
            "breaker account-slow: half_open probe_timeout 10s → 1s; state and window are kept",
            "breaker account-slow: fallback cache for 5m, respond 503 {\"a\":[null],\"b\":1.10}, respond 503 \"busy\", \
             respond 503 → none; state and window are kept",
        ],
    );
    check(
        |rules| rules.breakers[0].id = text("other"),
        &[
            "! breaker account-slow: removed: calls of account are no longer guarded by it; an open one stops refusing",
            "breaker other: added: calls of account are guarded, and it starts closed",
        ],
    );
}

#[test]
fn resources_say_which_requests_they_take() {
    check(
        |rules| {
            let pay = &mut rules.resources[0];
            pay.matcher.as_mut().unwrap().methods = texts(&["POST", "PUT"]);
            pay.timeout = Duration::from_secs(5);
            pay.attributes[1].missing = Missing::Reject;
            pay.subject = Some(text("ip"));
            pay.flags.clear();
        },
        &[
            "resource pay: match POST api.example.com/orders/{order} → POST|PUT api.example.com/orders/{order}: other \
             requests are this resource, and its gates go with it",
            "resource pay: timeout 3s → 5s",
            "resource pay: attribute ip missing share → reject: requests without it get 400",
            "! resource pay: subject tenant → ip: percentages are drawn for other subjects, who may get other variants",
            "resource pay: flags new-checkout → none: the upstream is told these",
        ],
    );
    check(
        |rules| {
            rules.resources[0].id = text("charge");
            rules.resources[1].attributes = rules.resources[0].attributes.clone();
        },
        &[
            "resource account: attribute tenant none → header.x-tenant",
            "resource account: attribute ip none → client.ip",
            "! resource pay: removed: requests of POST api.example.com/orders/{order} pass without its gates",
            "resource charge: added: it takes requests of POST api.example.com/orders/{order}",
        ],
    );
}

#[test]
fn an_attribute_from_elsewhere_gives_other_keys_where_it_is_one() {
    const KEYED: &str = "limit pay-per-tenant counts by other values";
    const SUBJECT: &str = "percentages are drawn for other subjects, who may get other variants";
    let prepare = |rules: &mut RuleSet| {
        // One limit covers the resource but not the attribute, one the other way round.
        let mut other = rules.limits[0].clone();
        (other.id, other.key) = (text("by-ip"), texts(&["ip"]));
        rules.limits.push(other);
        let mut other = rules.limits[0].clone();
        (other.id, other.resources) = (text("elsewhere"), Resources::Listed(texts(&["account"])));
        rules.limits.push(other);
    };
    let elsewhere = |rules: &mut RuleSet, at: usize| {
        rules.resources[0].attributes[at].from = AttributeSource::Header(text("x-other"));
    };
    check_from(
        prepare,
        |rules| elsewhere(rules, 1),
        &["! resource pay: attribute ip client.ip → header.x-other: limit by-ip counts by other values"],
    );
    let forgets = "! idempotency pay-once: attribute tenant of pay header.x-tenant → header.x-other; records made \
                   under operation charge are forgotten: a retry of an earlier request executes again";
    let moved =
        format!("! resource pay: attribute tenant header.x-tenant → header.x-other: {KEYED}, and {SUBJECT}");
    check_from(prepare, |rules| elsewhere(rules, 0), &[&moved, forgets]);
    // In the scope alone, in the derived key alone, in neither; covered before and after, or not.
    let sent = |rules: &mut RuleSet| {
        let from = AttributeSource::Header(text("idempotency-key"));
        rules.idempotency[0].key = KeySource::Attribute { from, required: true };
    };
    let no_scope = |rules: &mut RuleSet| rules.idempotency[0].scope.clear();
    check_from(sent, |rules| elsewhere(rules, 0), &[&moved, forgets]);
    check_from(no_scope, |rules| elsewhere(rules, 0), &[&moved, forgets]);
    check_from(
        |rules| {
            sent(rules);
            no_scope(rules);
        },
        |rules| elsewhere(rules, 0),
        &[&moved],
    );
    for before in [true, false] {
        let mut old = everything();
        let mut new = old.clone();
        let rules = if before { &mut old } else { &mut new };
        rules.idempotency[0].resources = Resources::Listed(texts(&["account"]));
        elsewhere(&mut new, 0);
        let found = diff(&old, &new);
        assert!(
            found.iter().all(|change| !change.to_string().contains("attribute tenant of pay")),
            "{before}"
        );
    }
}

#[test]
fn a_segment_decides_for_whoever_asks_it_also_through_others() {
    let prepare = |rules: &mut RuleSet| {
        let segment = |id: &str, asks: &str| Segment { id: text(id), when: Condition::Segment(text(asks)) };
        rules.segments.insert(0, segment("outer", "middle"));
        rules.segments.push(segment("middle", "staff"));
        let other = Segment { id: text("other"), when: is("email", Test::EndsWith(text("x"))) };
        rules.segments.push(other);
        rules.flags[0].rules[0].when = Some(Condition::Segment(text("outer")));
        let mut apart = rules.flags[0].clone();
        apart.key = text("apart");
        apart.rules[0].when = Some(Condition::Segment(text("other")));
        rules.flags.push(apart);
        rules.limits[0].overrides[0].when = Condition::Segment(text("middle"));
    };
    let ends_with = |rules: &mut RuleSet, id: &str| {
        let segment = rules.segments.iter_mut().find(|segment| segment.id == id).unwrap();
        segment.when = is("email", Test::EndsWith(text("y")));
    };
    check_from(
        prepare,
        |rules| ends_with(rules, "staff"),
        &[
            "segment staff: when {\"email\": {\"ends_with\": \"@example.com\"}} → {\"email\": {\"ends_with\": \
             \"y\"}}: it decides for limit pay-per-tenant, flag new-checkout",
        ],
    );
    check_from(
        prepare,
        |rules| ends_with(rules, "other"),
        &[
            "segment other: when {\"email\": {\"ends_with\": \"x\"}} → {\"email\": {\"ends_with\": \"y\"}}: it \
             decides for flag apart",
        ],
    );
}

#[test]
fn shares_of_a_split_are_compared_end_to_end() {
    let split = |shares: &[(&str, u16)]| {
        Serve::Split(shares.iter().map(|(name, hundredths)| (text(name), share(*hundredths))).collect())
    };
    let on = || Serve::Variant(text("on"));
    for (old, new, moves) in [
        (split(&[("off", 0), ("on", 10_000)]), on(), "nobody changes"),
        (on(), split(&[("off", 0), ("on", 10_000)]), "nobody changes"),
        (split(&[("on", 10_000), ("off", 0)]), on(), "nobody changes"),
        (
            split(&[("a", 3_000), ("b", 4_000), ("c", 3_000)]),
            split(&[("b", 5_000), ("a", 5_000)]),
            "30 % of those that it decides change from a to b, 20 % of those that it decides change from b to a, \
             30 % of those that it decides change from c to a",
        ),
        (on(), Serve::Variant(text("off")), "all that it decides change from on to off"),
    ] {
        assert_eq!(flag::moved_by_serve(&old, &new), moves);
    }
}

#[test]
fn flags_say_how_many_subjects_move_and_where_to() {
    let ramp_alone = |rules: &mut RuleSet| {
        rules.flags[0].rules.truncate(1);
        rules.flags[0].rules[0].percentage = Some(share(1_000));
    };
    check_from(
        ramp_alone,
        |rules| rules.flags[0].rules[0].percentage = Some(share(5_000)),
        &["flag new-checkout: rule ramp 10% → 50%: 40 % of the subjects that reach it change from off to on"],
    );
    check_from(
        ramp_alone,
        |rules| rules.flags[0].rules[0].percentage = Some(share(971)),
        &[
            "flag new-checkout: rule ramp 10% → 9.71%: 0.29 % of the subjects that reach it change from on to off",
        ],
    );
    check_from(
        ramp_alone,
        |rules| rules.flags[0].rules[0].percentage = None,
        &["flag new-checkout: rule ramp 10% → all: 90 % of the subjects that reach it change from off to on"],
    );
    check(
        |rules| rules.flags[0].rules[0].percentage = Some(share(215)),
        &[
            "flag new-checkout: rule ramp 1.15% → 2.15%: 1 % of the subjects that reach it change from what later rules \
           decide to on",
        ],
    );
    check(
        |rules| {
            let serve = Serve::Split(vec![(text("off"), share(4_333)), (text("on"), share(5_667))]);
            rules.flags[0].rules[1].serve = serve;
        },
        &[
            "flag new-checkout: rule split serve {\"split\": {\"off\": 33.33, \"on\": 66.67}} → {\"split\": {\"off\": \
           43.33, \"on\": 56.67}}: 10 % of those that it decides change from on to off",
        ],
    );
    check(
        |rules| rules.flags[0].rules[0].serve = Serve::Variant(text("off")),
        &["flag new-checkout: rule ramp serve \"on\" → \"off\": all that it decides change from on to off"],
    );
    check(
        |rules| rules.flags[0].rules[1].serve = Serve::Variant(text("on")),
        &[
            "flag new-checkout: rule split serve {\"split\": {\"off\": 33.33, \"on\": 66.67}} → \"on\": 33.33 % of those \
           that it decides change from off to on",
        ],
    );
}

#[test]
fn each_other_field_of_a_flag_is_told() {
    check(
        |rules| {
            let flag = &mut rules.flags[0];
            flag.variants[0].1 = serde_json::json!({ "v": 2 });
            flag.variants.push((text("new"), serde_json::Value::Null));
            flag.default = text("on");
            flag.sticky = Sticky::None;
            flag.rules[0].priority = 7;
            flag.rules[0].when = None;
        },
        &[
            "flag new-checkout: variant on true → {\"v\":2}: all that get on get the new value",
            "flag new-checkout: variant new none → null",
            "flag new-checkout: default off → on: subjects that no rule decides change from off to on",
            "flag new-checkout: sticky session → none: sessions no longer keep their first result",
            "flag new-checkout: rule ramp priority -10 → 7: it is asked at another place in the order",
            "flag new-checkout: rule ramp when {\"segment\": \"staff\"} → everybody: it is for others now",
        ],
    );
    check(
        |rules| rules.flags[0].rules[1].id = text("other"),
        &[
            "flag new-checkout: rule split {\"split\": {\"off\": 33.33, \"on\": 66.67}} for everybody at priority -20 → \
             none: those that it decided go on to off",
            "flag new-checkout: rule other none → {\"split\": {\"off\": 33.33, \"on\": 66.67}} for everybody at priority \
             -20: so far they went on to off",
        ],
    );
    check(
        |rules| rules.segments[0].when = is("email", Test::EndsWith(text("@example.org"))),
        &[
            "segment staff: when {\"email\": {\"ends_with\": \"@example.com\"}} → {\"email\": {\"ends_with\": \
           \"@example.org\"}}: it decides for flag new-checkout",
        ],
    );
    check(
        |rules| {
            rules.segments[0].id = text("crew");
            rules.flags[0].key = text("newer");
            rules.flags[0].rules.clear();
        },
        &[
            "segment staff: removed",
            "segment crew: added",
            "! flag new-checkout: removed: whoever asks for it gets an error",
            "flag newer: added: everybody gets off",
        ],
    );
}
