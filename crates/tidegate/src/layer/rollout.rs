//! Rollout labels the request: it evaluates the resource's flags and refuses nothing.

use bytes::Bytes;
use http::HeaderValue;
use tidegate_core::rollout::FlagIndex;

use crate::event::FlagEvaluated;
use crate::gates::InForce;
use crate::request::Taken;
use crate::runtime::FlagRuntime;

/// Evaluates the flags of `resource`: an RFC 9651 dictionary of variant names, in the rule file's
/// order. `None` when the resource has no flags.
pub(crate) fn label(rules: &InForce, resource: usize, taken: &Taken) -> Option<HeaderValue> {
    let plan = &rules.plan.resources[resource];
    if plan.flags.is_empty() {
        return None;
    }
    let subject = plan.subject.and_then(|index| taken.text(index));
    let attributes = taken.named(&rules.plan.rules.resources[resource]);
    let evaluate = |flag: FlagIndex, counters: &FlagRuntime| {
        let evaluated = rules.plan.flags.evaluate_at(flag, subject, &attributes);
        FlagEvaluated { counters, evaluated: &evaluated }.emit();
        // Only a percentage without a subject is an error. A label is no place to fail a request.
        evaluated.map_or(counters.default, |evaluation| evaluation.variant_index)
    };
    let runtimes = &rules.resources[resource].flags;
    if let ([flag], [counters]) = (plan.flags.as_slice(), runtimes.as_slice()) {
        return counters.label(evaluate(*flag, counters));
    }
    let mut header = String::new();
    for (&flag, counters) in plan.flags.iter().zip(runtimes) {
        let variant = evaluate(flag, counters);
        push_item(&mut header, &counters.flag, counters.variant(variant));
    }
    HeaderValue::from_maybe_shared(Bytes::from(header)).ok()
}

/// Adds `key="variant"`. A flag key that is no dictionary key (RFC 9651 section 3.1.2) has its other
/// characters replaced by `_`.
pub(crate) fn push_item(header: &mut String, key: &str, variant: &str) {
    if !header.is_empty() {
        header.push_str(", ");
    }
    for (at, c) in key.chars().enumerate() {
        let first = c.is_ascii_lowercase() || c == '*';
        let later = first || c.is_ascii_digit() || "_-.".contains(c);
        header.push(if first || (at > 0 && later) { c } else { '_' });
    }
    header.push_str("=\"");
    for c in variant.chars() {
        if c == '"' || c == '\\' {
            header.push('\\');
        }
        header.push(if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
    }
    header.push('"');
}

#[cfg(test)]
mod tests {
    use super::push_item;

    #[test]
    fn labels_are_a_structured_field_dictionary() {
        let mut header = String::new();
        push_item(&mut header, "new-checkout", "on");
        push_item(&mut header, "Dark/Mode", "a \"b\"");
        assert_eq!(header, r#"new-checkout="on", _ark__ode="a \"b\"""#);
    }
}
