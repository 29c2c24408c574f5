//! Rollout labels the request: it evaluates the resource's flags and refuses nothing.

use http::HeaderValue;
use tidegate_core::rule::compile::Plan;

use crate::event::FlagEvaluated;
use crate::gates::InForce;
use crate::request::Taken;

/// Evaluates the flags of `resource`: an RFC 9651 dictionary of variant names, in the rule file's
/// order. `None` when the resource has no flags.
pub(crate) fn label(rules: &InForce, resource: usize, taken: &Taken) -> Option<HeaderValue> {
    let plan = &rules.plan.resources[resource];
    if plan.flags.is_empty() {
        return None;
    }
    let subject = plan.subject.and_then(|index| taken.text(index));
    let attributes = taken.named(&rules.plan.rules.resources[resource]);
    let mut header = String::new();
    for (&flag, counters) in plan.flags.iter().zip(&rules.resources[resource].flags) {
        let evaluated = rules.plan.flags.evaluate_at(flag, subject, &attributes);
        let variant = match &evaluated {
            Ok(evaluation) => evaluation.variant,
            // Only a percentage without a subject ends here. A label is no place to fail a request.
            Err(_) => default_variant(&rules.plan, &counters.flag),
        };
        FlagEvaluated { counters, variant, evaluated: &evaluated }.emit();
        push_item(&mut header, &counters.flag, variant);
    }
    HeaderValue::from_str(&header).ok()
}

fn default_variant<'a>(plan: &'a Plan, flag: &str) -> &'a str {
    plan.rules.flags.iter().find(|candidate| candidate.key == flag).map_or("", |found| &found.default)
}

/// Adds `key="variant"`. A flag key that is no dictionary key (RFC 9651 section 3.1.2) has its other
/// characters replaced by `_`.
fn push_item(header: &mut String, key: &str, variant: &str) {
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
