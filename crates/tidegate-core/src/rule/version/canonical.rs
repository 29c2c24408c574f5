//! The canonical form: the one text that stands for a rule set.

use std::collections::HashSet;
use std::time::Duration;

use crate::document::scalar::is_decimal;
use crate::rule::RuleSet;
use crate::rule::json::Node;
use crate::rule::model::{
    AfterStoreLoss, Algorithm, Breaker, CommitMode, Condition, Cost, FailureKind, Fallback, FallbackBody,
    Flag, FlagRule, Idempotency, InProgress, KeySource, Limit, Match, Missing, Mode, OnStoreFailure,
    OnUnknown, Resource, Resources, Scalar, ScalarKind, Segment, Serve, Sharing, Sticky, Test, Trip,
};
use crate::rule::render;

/// A rule document in JSON that means exactly these rules.
///
/// Every default is written out, the order of fields is fixed, collections keep the order of the
/// document, and values are spelled in one way (`1m30s`, `10/s`, `0.29`), so that equal rules give equal
/// text and loading the text gives the same rules. Numbers in conditions keep the spelling of their
/// source, which YAML reads and strict JSON may not (`0123`).
pub fn canonical(rules: &RuleSet) -> String {
    document(rules).render()
}

/// The canonical form as a tree.
pub(crate) fn document(rules: &RuleSet) -> Node {
    map([
        ("apiVersion", Node::text("tidegate/v1")),
        ("resources", list(&rules.resources, resource)),
        ("limits", list(&rules.limits, limit)),
        ("idempotency", list(&rules.idempotency, idempotency)),
        ("breakers", list(&rules.breakers, breaker)),
        ("segments", list(&rules.segments, segment)),
        ("flags", list(&rules.flags, flag)),
    ])
}

fn map<const N: usize>(fields: [(&str, Node); N]) -> Node {
    Node::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The same with fields that may be left out because their absence means something of its own.
fn sparse<const N: usize>(fields: [(&str, Option<Node>); N]) -> Node {
    let present = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Node::Map(present.collect())
}

fn list<T>(items: &[T], each: impl Fn(&T) -> Node) -> Node {
    Node::List(items.iter().map(each).collect())
}

fn duration(span: Duration) -> Node {
    Node::Text(render::duration(span))
}

fn resource(resource: &Resource) -> Node {
    let attributes = resource.attributes.iter().map(|attribute| {
        let missing = match attribute.missing {
            Missing::Share => "share",
            Missing::Reject => "reject",
        };
        let from = Node::Text(render::source(&attribute.from));
        (attribute.name.clone(), map([("from", from), ("missing", Node::text(missing))]))
    });
    sparse([
        ("id", Some(Node::text(&resource.id))),
        ("match", resource.matcher.as_ref().map(matcher)),
        ("timeout", Some(duration(resource.timeout))),
        ("attributes", Some(Node::Map(attributes.collect()))),
        ("subject", resource.subject.as_ref().map(Node::text)),
        ("flags", Some(Node::texts(&resource.flags))),
    ])
}

fn matcher(matcher: &Match) -> Node {
    // Any host and any method are written by leaving the list out; an empty one is a fault.
    let unless_any = |texts: &Vec<String>| if texts.is_empty() { None } else { Some(Node::texts(texts)) };
    sparse([
        ("hosts", unless_any(&matcher.hosts)),
        ("methods", unless_any(&matcher.methods)),
        ("path", Some(Node::Text(render::path(&matcher.path)))),
    ])
}

fn resources(resources: &Resources) -> Node {
    match resources {
        Resources::All => Node::text("*"),
        Resources::Listed(ids) => Node::texts(ids),
    }
}

fn limit(limit: &Limit) -> Node {
    let mode = match limit.mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    };
    let cost = match &limit.cost {
        Cost::Fixed(cost) => Node::raw(cost),
        Cost::Attribute { from, default, max } => {
            map([("from", Node::text(from)), ("default", Node::raw(default)), ("max", Node::raw(max))])
        }
    };
    let on_store_failure = limit.on_store_failure.map(|policy| match policy {
        OnStoreFailure::FailOpen => Node::text("fail_open"),
        OnStoreFailure::FailClosed => Node::text("fail_closed"),
        OnStoreFailure::LocalFallback => Node::text("local_fallback"),
    });
    let sharing = match limit.sharing {
        Sharing::Local => "local",
        Sharing::Exact => "exact",
        Sharing::Leased => "leased",
    };
    let after_store_loss = match limit.after_store_loss {
        AfterStoreLoss::Fresh => "fresh",
        AfterStoreLoss::Exhausted => "exhausted",
    };
    let overrides = list(&limit.overrides, |other| {
        let numbers = algorithm_fields(&other.algorithm);
        map([("when", condition(&other.when)), (other.algorithm.name(), numbers)])
    });
    sparse([
        ("id", Some(Node::text(&limit.id))),
        ("description", limit.description.as_ref().map(Node::text)),
        ("owner", limit.owner.as_ref().map(Node::text)),
        ("mode", Some(Node::text(mode))),
        ("resources", Some(resources(&limit.resources))),
        ("key", Some(Node::texts(&limit.key))),
        (limit.algorithm.name(), Some(algorithm_fields(&limit.algorithm))),
        ("cost", Some(cost)),
        ("overrides", Some(overrides)),
        ("sharing", Some(Node::text(sharing))),
        ("on_store_failure", on_store_failure),
        ("after_store_loss", Some(Node::text(after_store_loss))),
    ])
}

/// The numbers of an algorithm, under the names that documents give them.
pub(crate) fn algorithm_fields(algorithm: &Algorithm) -> Node {
    match algorithm {
        Algorithm::TokenBucket { capacity, refill } => {
            map([("capacity", Node::raw(capacity)), ("refill", Node::Text(render::rate(*refill)))])
        }
        Algorithm::FixedWindow { limit, window }
        | Algorithm::SlidingLog { limit, window }
        | Algorithm::SlidingWindow { limit, window } => {
            map([("limit", Node::raw(limit)), ("window", duration(*window))])
        }
        Algorithm::LeakyBucket { rate, queue } => {
            map([("rate", Node::Text(render::rate(*rate))), ("queue", Node::raw(queue))])
        }
        Algorithm::Concurrency { max } => map([("max", Node::raw(max))]),
    }
}

fn idempotency(rule: &Idempotency) -> Node {
    let parts = |parts: &[_]| list(parts, |part| Node::Text(render::fingerprint_part(part)));
    let key = match &rule.key {
        KeySource::Attribute { from, required } => {
            map([("from", Node::Text(render::source(from))), ("required", Node::raw(required))])
        }
        KeySource::Derived { parts: made_of, window } => {
            map([("derive", parts(made_of)), ("window", duration(*window))])
        }
    };
    let commit = match rule.commit {
        CommitMode::AfterResponse => "after_response",
        CommitMode::WithEffects => "with_effects",
        CommitMode::OneTransaction => "one_transaction",
    };
    let on_unknown = match rule.on_unknown {
        OnUnknown::Hold => "hold",
        OnUnknown::Retry => "retry",
    };
    let in_progress = match rule.in_progress {
        InProgress::Reject => Node::text("reject"),
        InProgress::Wait(span) => map([("wait", duration(span))]),
    };
    map([
        ("id", Node::text(&rule.id)),
        ("resources", resources(&rule.resources)),
        ("operation", Node::text(&rule.operation)),
        ("scope", Node::texts(&rule.scope)),
        ("key", key),
        ("fingerprint", parts(&rule.fingerprint)),
        ("commit", Node::text(commit)),
        ("on_unknown", Node::text(on_unknown)),
        ("lease", duration(rule.lease)),
        ("max_execution", duration(rule.max_execution)),
        ("retention", duration(rule.retention)),
        ("in_progress", in_progress),
        ("max_response", Node::Text(render::bytes(rule.max_response))),
        ("replay_headers", Node::texts(&rule.replay_headers)),
    ])
}

fn breaker(breaker: &Breaker) -> Node {
    let key = if breaker.per_upstream_host { vec![Node::text("upstream_host")] } else { Vec::new() };
    let share = |share| Node::Text(format!("{}%", render::percent(share)));
    let trip = |trip: &Trip| match trip {
        Trip::SlowRatio { slower_than, at_least } => {
            let fields = map([("slower_than", duration(*slower_than)), ("at_least", share(*at_least))]);
            map([("slow_ratio", fields)])
        }
        Trip::ErrorRatio { at_least } => map([("error_ratio", map([("at_least", share(*at_least))]))]),
        Trip::ErrorCount { at_least } => map([("error_count", map([("at_least", Node::raw(at_least))]))]),
    };
    let failure = |kind: &FailureKind| match kind {
        FailureKind::Status(status) => Node::raw(status),
        FailureKind::Connect | FailureKind::Timeout | FailureKind::Reset | FailureKind::ServerError => {
            Node::Text(render::failure(*kind))
        }
    };
    let half_open = map([
        ("probes", Node::raw(&breaker.half_open.probes)),
        ("probe_timeout", duration(breaker.half_open.probe_timeout)),
    ]);
    map([
        ("id", Node::text(&breaker.id)),
        ("resources", resources(&breaker.resources)),
        ("key", Node::List(key)),
        ("failure", list(&breaker.failure, failure)),
        ("trip", list(&breaker.trip, trip)),
        ("min_requests", Node::raw(&breaker.min_requests)),
        ("window", duration(breaker.window)),
        ("open_for", duration(breaker.open_for)),
        ("max_open", duration(breaker.max_open)),
        ("half_open", half_open),
        ("fallback", list(&breaker.fallback, fallback)),
    ])
}

fn fallback(fallback: &Fallback) -> Node {
    match fallback {
        Fallback::Cache { ttl } => map([("cache", map([("ttl", duration(*ttl))]))]),
        Fallback::Respond { status, body } => {
            let (json, text) = match body {
                FallbackBody::Empty => (None, None),
                FallbackBody::Json(value) => (Some(Node::of(value)), None),
                FallbackBody::Text(text) => (None, Some(Node::text(text))),
            };
            let answer = sparse([("status", Some(Node::raw(status))), ("json", json), ("text", text)]);
            map([("respond", answer)])
        }
    }
}

fn segment(segment: &Segment) -> Node {
    map([("id", Node::text(&segment.id)), ("when", condition(&segment.when))])
}

fn flag(flag: &Flag) -> Node {
    let variants = flag.variants.iter().map(|(name, value)| (name.clone(), Node::of(value)));
    let sticky = match flag.sticky {
        Sticky::None => "none",
        Sticky::Session => "session",
    };
    map([
        ("key", Node::text(&flag.key)),
        ("variants", Node::Map(variants.collect())),
        ("default", Node::text(&flag.default)),
        ("sticky", Node::text(sticky)),
        ("rules", list(&flag.rules, flag_rule)),
    ])
}

fn flag_rule(rule: &FlagRule) -> Node {
    sparse([
        ("id", Some(Node::text(&rule.id))),
        ("priority", Some(Node::raw(&rule.priority))),
        ("when", rule.when.as_ref().map(condition)),
        // 100 is not the same as none: it needs a subject.
        ("percentage", rule.percentage.map(|share| Node::Raw(render::percent(share)))),
        ("serve", Some(serve(&rule.serve))),
    ])
}

/// What a flag rule serves, as documents write it.
pub(crate) fn serve(serve: &Serve) -> Node {
    match serve {
        Serve::Variant(name) => Node::text(name),
        Serve::Split(shares) => {
            let shares =
                shares.iter().map(|(name, share)| (name.clone(), Node::Raw(render::percent(*share))));
            map([("split", Node::Map(shares.collect()))])
        }
    }
}

/// A condition, as documents write it.
///
/// Parts that must all hold are the entries of one mapping wherever their keys differ: that nests no
/// deeper than any document that means the same, so the result stays within the loader's bounds.
pub(crate) fn condition(condition: &Condition) -> Node {
    if let Condition::All(parts) = condition
        && parts.len() > 1
    {
        let entries: Vec<(String, Node)> = parts.iter().map(entry).collect();
        let mut keys = HashSet::new();
        if entries.iter().all(|(key, _)| keys.insert(key.as_str())) {
            return Node::Map(entries);
        }
    }
    Node::Map(vec![entry(condition)])
}

/// A condition as one entry of a mapping.
fn entry(condition: &Condition) -> (String, Node) {
    let (key, value) = match condition {
        Condition::Attribute { name, test } => (name.as_str(), Node::Map(vec![self::test(test)])),
        Condition::Segment(id) => ("segment", Node::text(id)),
        Condition::All(parts) => match tests_of_one(parts) {
            Some((name, tests)) => (name, Node::Map(tests)),
            None => ("all", list(parts, self::condition)),
        },
        Condition::Any(parts) => ("any", list(parts, self::condition)),
        Condition::Not(inner) => ("not", self::condition(inner)),
    };
    (key.to_owned(), value)
}

/// Several different tests of the same attribute: its name, and the tests.
fn tests_of_one(parts: &[Condition]) -> Option<(&str, Vec<(String, Node)>)> {
    let mut found: Option<(&str, Vec<(String, Node)>)> = None;
    for part in parts {
        let Condition::Attribute { name, test } = part else { return None };
        let (known, tests) = found.get_or_insert_with(|| (name, Vec::new()));
        let test = self::test(test);
        if *known != name.as_str() || tests.iter().any(|(other, _)| *other == test.0) {
            return None;
        }
        tests.push(test);
    }
    found.filter(|(_, tests)| tests.len() > 1)
}

fn test(test: &Test) -> (String, Node) {
    let scalars = |scalars: &[Scalar]| list(scalars, scalar);
    let (name, value) = match test {
        Test::Equals(value) => ("equals", scalar(value)),
        Test::In(values) => ("in", scalars(values)),
        Test::NotIn(values) => ("not_in", scalars(values)),
        Test::StartsWith(text) => ("starts_with", Node::text(text)),
        Test::EndsWith(text) => ("ends_with", Node::text(text)),
        Test::Matches(pattern) => ("matches", Node::text(pattern)),
        Test::Gt(at) => ("gt", number(at)),
        Test::Gte(at) => ("gte", number(at)),
        Test::Lt(at) => ("lt", number(at)),
        Test::Lte(at) => ("lte", number(at)),
        Test::Semver(range) => ("semver", Node::text(range)),
        Test::Cidr(networks) => ("cidr", Node::texts(networks)),
        Test::Before(time) => ("before", Node::text(time)),
        Test::After(time) => ("after", Node::text(time)),
    };
    (name.to_owned(), value)
}

fn scalar(scalar: &Scalar) -> Node {
    match scalar.kind {
        ScalarKind::String => Node::text(&scalar.text),
        ScalarKind::Number | ScalarKind::Bool => Node::raw(&scalar.text),
    }
}

/// A threshold: bare, as the reader of documents asks, if it is a number at all.
fn number(text: &str) -> Node {
    if is_decimal(text) { Node::raw(text) } else { Node::text(text) }
}
