//! What a resource's plan holds.

use super::*;
use crate::rule::RuleSet;

fn rules(text: &str) -> RuleSet {
    let source = Source::new("r.yaml", format!("apiVersion: tidegate/v1\n{text}"));
    load(&[source], &Deployment::default()).unwrap_or_else(|refused| panic!("{refused}")).rules
}

fn plan(text: &str) -> Plan {
    Plan::new(rules(text)).unwrap()
}

const PAY: &str = "resources: [ { id: pay, attributes: { tenant: { from: header.t, missing: reject }, \
    user: { from: header.u, missing: reject }, size: { from: header.s } }, subject: user, flags: [g, f] }, \
    { id: other, attributes: { user: { from: body./u, missing: reject } } } ]\n";
const FLAGS: &str = "flags: [ { key: f, default: \"off\" }, { key: g, default: \"off\" } ]\n";

#[test]
fn names_become_the_indexes_of_each_resource() {
    let plan = plan(&format!(
        "{PAY}{FLAGS}limits:\n\
         - {{ id: off, resources: '*', mode: off, concurrency: {{ max: 9 }} }}\n\
         - {{ id: both, resources: '*', key: [user], concurrency: {{ max: 9 }} }}\n\
         - {{ id: one, resources: [pay], mode: shadow, key: [user, tenant], \
              cost: {{ from: size, default: 3, max: 7 }}, concurrency: {{ max: 9 }}, \
              overrides: [ {{ when: {{ tenant: {{ equals: acme }} }}, concurrency: {{ max: 5 }} }} ] }}\n\
         idempotency:\n\
         - {{ id: i, resources: [pay], scope: [user, tenant], key: {{ from: header.k }}, fingerprint: [method] }}\n\
         breakers:\n\
         - {{ id: a, resources: [other], trip: [ {{ error_count: {{ at_least: 5 }} }} ] }}\n\
         - {{ id: b, resources: '*', trip: [ {{ error_count: {{ at_least: 5 }} }} ] }}\n"
    ));
    assert_eq!(
        (plan.resource("pay"), plan.resource("other"), plan.resource("none")),
        (Some(0), Some(1), None)
    );

    let [pay, other] = plan.resources.as_slice() else { panic!("{:?}", plan.resources) };
    assert_eq!((pay.subject, other.subject), (Some(1), None));
    assert_eq!((pay.attributes_in_body, other.attributes_in_body), (false, true));
    let flags = ["g", "f"].map(|key| plan.flags.index(key).unwrap());
    assert_eq!((pay.flags.as_slice(), other.flags.len()), (&flags[..], 0));
    assert_eq!((pay.breakers.as_slice(), other.breakers.as_slice()), (&[1][..], &[0, 1][..]));

    let limits: Vec<_> =
        pay.limits.iter().map(|limit| (limit.rule, limit.key.as_slice(), limit.shadow)).collect();
    assert_eq!(limits, [(1, &[1][..], false), (2, &[1, 0][..], true)], "a limit that is off is in no plan");
    assert_eq!(pay.limits[0].cost, CostPlan::Fixed(1));
    assert_eq!(pay.limits[1].cost, CostPlan::Attribute { from: 2, default: 3, max: 7 });
    assert_eq!((pay.limits[0].overrides.len(), pay.limits[1].overrides.len()), (0, 1));
    let limits: Vec<_> = other.limits.iter().map(|limit| (limit.rule, limit.key.as_slice())).collect();
    assert_eq!(limits, [(1, &[0][..])]);

    let guard = pay.idempotency.as_ref().unwrap();
    assert_eq!((guard.rule, guard.scope.as_slice(), guard.reads_body), (0, &[1, 0][..], false));
    assert!(other.idempotency.is_none());
}

#[test]
fn a_body_is_read_only_for_a_key_or_a_fingerprint_of_it() {
    for (guard, reads) in [
        ("key: { from: header.k }, fingerprint: [method, path]", false),
        ("key: { from: header.k }, fingerprint: [method, body]", true),
        ("key: { from: header.k }, fingerprint: [body./sku]", true),
        ("key: { from: body./id }, fingerprint: [method]", true),
        ("key: { derive: [user], window: 1s }, fingerprint: [method]", false),
        ("key: { derive: [user, body./sku], window: 1s }, fingerprint: [method]", true),
    ] {
        let plan = plan(&format!(
            "{PAY}{FLAGS}idempotency: [ {{ id: i, resources: [pay], scope: [tenant], {guard} }} ]\n"
        ));
        assert_eq!(plan.resources[0].idempotency.as_ref().unwrap().reads_body, reads, "{guard}");
    }
}

#[test]
fn an_attribute_that_a_resource_lacks_is_a_fault() {
    let mut rules = rules(&format!(
        "{PAY}{FLAGS}limits: [ {{ id: l, resources: [pay], key: [tenant, user], concurrency: {{ max: 9 }} }} ]\n"
    ));
    rules.resources[0].attributes.remove(0);
    let faults = Plan::new(rules).unwrap_err();
    let [PlanFault::Attribute { rule, attribute, resource }] = faults.as_slice() else {
        panic!("{faults:?}")
    };
    assert_eq!((rule.as_str(), attribute.as_str(), resource.as_str()), ("l", "tenant", "pay"));
    assert_eq!(
        faults[0].to_string(),
        "`l` names the attribute `tenant`, which resource `pay` does not declare"
    );
}
