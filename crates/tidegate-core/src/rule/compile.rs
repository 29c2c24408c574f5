//! A checked rule set, resolved for use: names become indexes, conditions become matchers.
//!
//! What a request costs must not grow with the number of rules: each resource knows its own limits,
//! breakers and flags, and finds its attributes by index.

use smallvec::SmallVec;

use super::model::{
    Attribute, AttributeSource, Cost, FingerprintPart, Idempotency, KeySource, Limit, Mode, Resource, RuleSet,
};
use super::route::{RouteFault, RouteTable};
use crate::rollout::{Compiled, ConditionError, FlagIndex, Flags, FlagsFault, Segments};

/// Indexes into a resource's attributes.
pub type AttributeIndexes = SmallVec<[usize; 4]>;

/// One rule set, resolved. Immutable; a request keeps the one that it began with.
#[derive(Debug)]
pub struct Plan {
    /// The rules themselves.
    pub rules: RuleSet,
    /// Which resource a request is.
    pub routes: RouteTable,
    /// The flags.
    pub flags: Flags,
    /// One for each resource, in the same order as `rules.resources`.
    pub resources: Vec<ResourcePlan>,
}

/// What one resource needs.
#[derive(Debug, Default)]
pub struct ResourcePlan {
    /// Limits with a mode other than `off`, in document order.
    pub limits: Vec<LimitPlan>,
    /// The idempotency rule.
    pub idempotency: Option<IdempotencyPlan>,
    /// Indexes into `rules.breakers`.
    pub breakers: SmallVec<[usize; 2]>,
    /// The flags that are evaluated for each request.
    pub flags: Vec<FlagIndex>,
    /// The attribute that says who is asking.
    pub subject: Option<usize>,
    /// Whether an attribute stands in the body, which must then be read before the first gate.
    pub attributes_in_body: bool,
}

/// One limit, seen from one resource.
#[derive(Debug)]
pub struct LimitPlan {
    /// Index into `rules.limits`.
    pub rule: usize,
    /// The attributes that make its key.
    pub key: AttributeIndexes,
    /// What a call costs.
    pub cost: CostPlan,
    /// Conditions of its overrides, in order.
    pub overrides: Vec<Compiled>,
    /// Decides, but never refuses.
    pub shadow: bool,
}

/// What a call costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostPlan {
    /// The same for each call.
    Fixed(u64),
    /// An attribute.
    Attribute {
        /// Index of the attribute.
        from: usize,
        /// For a call without it.
        default: u64,
        /// The largest accepted.
        max: u64,
    },
}

/// The idempotency rule, seen from one resource.
#[derive(Debug)]
pub struct IdempotencyPlan {
    /// Index into `rules.idempotency`.
    pub rule: usize,
    /// The attributes that say whose key it is.
    pub scope: AttributeIndexes,
    /// Whether the fingerprint or the key is made of the body.
    pub reads_body: bool,
}

/// Why a rule set cannot be resolved. Loading reports these with their place in the document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFault {
    /// Resources that cannot be matched.
    #[error(transparent)]
    Route(#[from] RouteFault),
    /// A segment's condition.
    #[error("segment `{0}`: {1}")]
    Segment(String, ConditionError),
    /// A flag.
    #[error(transparent)]
    Flag(#[from] FlagsFault),
    /// An override's condition.
    #[error("limit `{0}`: {1}")]
    Override(String, ConditionError),
    /// A rule names an attribute that one of its resources does not declare.
    #[error("`{rule}` names the attribute `{attribute}`, which resource `{resource}` does not declare")]
    Attribute {
        /// The rule.
        rule: String,
        /// The attribute.
        attribute: String,
        /// The resource.
        resource: String,
    },
}

impl Plan {
    /// Resolves a rule set; gives every fault.
    pub fn new(rules: RuleSet) -> Result<Self, Vec<PlanFault>> {
        let mut faults = Vec::new();
        let routes = RouteTable::new(&rules.resources)
            .map_err(|found| faults.extend(found.into_iter().map(PlanFault::Route)));
        let flags =
            Flags::compile(&rules).map_err(|found| faults.extend(found.into_iter().map(PlanFault::Flag)));
        let segments = Segments::compile(&rules.segments)
            .map_err(|found| faults.extend(found.into_iter().map(|(id, why)| PlanFault::Segment(id, why))));
        let mut resources = Vec::new();
        if let (Ok(flags), Ok(segments)) = (&flags, &segments) {
            for resource in &rules.resources {
                resources.push(resolve(resource, &rules, flags, segments, &mut faults));
            }
        }
        match (routes, flags) {
            (Ok(routes), Ok(flags)) if faults.is_empty() => Ok(Self { rules, routes, flags, resources }),
            _ => Err(faults),
        }
    }

    /// The resource called `id`.
    pub fn resource(&self, id: &str) -> Option<usize> {
        self.rules.resources.iter().position(|resource| resource.id == id)
    }
}

fn resolve(
    resource: &Resource,
    rules: &RuleSet,
    flags: &Flags,
    segments: &Segments,
    faults: &mut Vec<PlanFault>,
) -> ResourcePlan {
    let mut plan = ResourcePlan {
        subject: resource.subject.as_ref().and_then(|name| index(resource, name)),
        flags: resource.flags.iter().filter_map(|key| flags.index(key)).collect(),
        attributes_in_body: resource.attributes.iter().any(in_body),
        ..ResourcePlan::default()
    };
    for (rule, limit) in rules.limits.iter().enumerate() {
        if limit.mode != Mode::Off && limit.resources.covers(&resource.id) {
            plan.limits.push(resolve_limit(rule, limit, resource, segments, faults));
        }
    }
    for (rule, breaker) in rules.breakers.iter().enumerate() {
        if breaker.resources.covers(&resource.id) {
            plan.breakers.push(rule);
        }
    }
    let mut guards = rules.idempotency.iter().enumerate();
    if let Some((rule, guard)) = guards.find(|(_, guard)| guard.resources.covers(&resource.id)) {
        plan.idempotency = Some(IdempotencyPlan {
            rule,
            scope: indexes(&guard.id, &guard.scope, resource, faults),
            reads_body: reads_body(guard),
        });
    }
    plan
}

fn resolve_limit(
    rule: usize,
    limit: &Limit,
    resource: &Resource,
    segments: &Segments,
    faults: &mut Vec<PlanFault>,
) -> LimitPlan {
    let cost = match &limit.cost {
        Cost::Fixed(cost) => CostPlan::Fixed(*cost),
        Cost::Attribute { from, default, max } => {
            match indexes(&limit.id, std::slice::from_ref(from), resource, faults).first() {
                Some(&from) => CostPlan::Attribute { from, default: *default, max: *max },
                None => CostPlan::Fixed(*default),
            }
        }
    };
    let mut overrides = Vec::new();
    for case in &limit.overrides {
        match Compiled::new(&case.when, segments) {
            Ok(condition) => overrides.push(condition),
            Err(why) => faults.push(PlanFault::Override(limit.id.clone(), why)),
        }
    }
    LimitPlan {
        rule,
        key: indexes(&limit.id, &limit.key, resource, faults),
        cost,
        overrides,
        shadow: limit.mode == Mode::Shadow,
    }
}

fn indexes(
    rule: &str,
    names: &[String],
    resource: &Resource,
    faults: &mut Vec<PlanFault>,
) -> AttributeIndexes {
    let mut found = AttributeIndexes::new();
    for name in names {
        match index(resource, name) {
            Some(index) => found.push(index),
            None => faults.push(PlanFault::Attribute {
                rule: rule.to_owned(),
                attribute: name.clone(),
                resource: resource.id.clone(),
            }),
        }
    }
    found
}

fn index(resource: &Resource, name: &str) -> Option<usize> {
    resource.attributes.iter().position(|attribute| attribute.name == name)
}

fn in_body(attribute: &Attribute) -> bool {
    matches!(attribute.from, AttributeSource::Body(_))
}

fn reads_body(guard: &Idempotency) -> bool {
    let of_body =
        |part: &FingerprintPart| matches!(part, FingerprintPart::Body | FingerprintPart::BodyPointer(_));
    let derived = match &guard.key {
        KeySource::Derived { parts, .. } => parts.iter().any(of_body),
        KeySource::Attribute { from, .. } => matches!(from, AttributeSource::Body(_)),
    };
    derived || guard.fingerprint.iter().any(of_body)
}

#[cfg(test)]
mod tests;
