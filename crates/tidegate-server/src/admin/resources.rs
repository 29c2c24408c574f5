//! `/v1/resources`: what each resource has seen, and how its dependencies are.

use axum::extract::State;
use serde_json::{Value, json};
use tidegate::gates::InForce;
use tidegate::stats::{LATENCY_WINDOW, Snapshot};
use tidegate_core::Timestamp;
use tidegate_core::rule::model::Resource;
use tidegate_core::rule::render;

use super::Subject;
use super::problem::Problem;
use super::view::{self, Document, seconds};

pub(super) async fn show(State(subject): State<Subject>) -> Result<Document, Problem> {
    let in_force = subject.in_force()?;
    let now = subject.gates().env().now();
    let resources = in_force.plan.rules.resources.iter().enumerate().map(|(index, resource)| {
        let seen = in_force.stats(index).map(|stats| stats.snapshot(now)).unwrap_or_default();
        describe(resource, &seen, &breakers(&in_force, index, subject.hosts(), now))
    });
    Ok(Document(json!({
        "version": view::version(in_force.version),
        "latency_window_seconds": seconds(LATENCY_WINDOW),
        "resources": resources.collect::<Vec<_>>(),
    })))
}

fn describe(resource: &Resource, seen: &Snapshot, breakers: &[Value]) -> Value {
    let matcher = resource.matcher.as_ref().map(|matcher| {
        json!({
            "hosts": matcher.hosts,
            "methods": matcher.methods,
            "path": render::path(&matcher.path),
        })
    });
    let blocked = seen
        .blocked
        .iter()
        .map(|(gate, rule, count)| json!({ "gate": gate.name(), "rule": &**rule, "count": count }));
    json!({
        "id": resource.id,
        "match": matcher,
        "admitted": seen.admitted,
        "succeeded": seen.succeeded,
        "failed": seen.failed,
        "in_flight": seen.in_flight,
        "blocked": blocked.collect::<Vec<_>>(),
        "latency_seconds": {
            "calls": seen.latency.calls,
            "p50": seconds(seen.latency.p50),
            "p90": seconds(seen.latency.p90),
            "p99": seconds(seen.latency.p99),
        },
        "breakers": breakers,
    })
}

/// The breakers of a resource: one for each rule, or one for each rule and host that calls go to.
fn breakers(in_force: &InForce, resource: usize, hosts: &[String], now: Timestamp) -> Vec<Value> {
    let mut shown = Vec::new();
    for &index in &in_force.plan.resources[resource].breakers {
        let rule = &in_force.plan.rules.breakers[index];
        let mut of: Vec<Option<String>> = vec![None];
        if rule.per_upstream_host {
            let called = in_force.breakers().hosts(index);
            of = called.iter().map(|host| Some(host.to_string())).collect();
            of.extend(
                hosts.iter().filter(|host| !called.iter().any(|known| **known == ***host)).cloned().map(Some),
            );
        }
        for host in of {
            let status = in_force.breakers().status(index, host.as_deref().unwrap_or_default(), now);
            shown.extend(status.map(|status| view::breaker(rule, host.as_deref(), &status)));
        }
    }
    shown
}
