//! The `flags` section.

use crate::document::diagnostic::quoted;
use crate::document::{At, Fields, Got, Kind, List, Node, Report, fields, scalar};
use crate::rule::model::{Flag, FlagRule, Percentage, Serve, Sticky};

use super::condition::{self, ConditionDraft};
use super::values;

/// Most variants of one flag.
pub const MAX_VARIANTS: usize = 1000;
/// Largest distance of a priority from zero.
pub const MAX_PRIORITY: i64 = 1_000_000_000;

#[derive(Debug)]
pub(in crate::rule) struct FlagDraft {
    pub(in crate::rule) key: Option<At<String>>,
    pub(in crate::rule) variants: Got<Vec<VariantDraft>>,
    pub(in crate::rule) default: Got<String>,
    pub(in crate::rule) sticky: Got<Sticky>,
    pub(in crate::rule) rules: Got<List<FlagRuleDraft>>,
}

#[derive(Debug)]
pub(in crate::rule) struct VariantDraft {
    pub(in crate::rule) name: String,
    pub(in crate::rule) value: Option<serde_json::Value>,
}

#[derive(Debug)]
pub(in crate::rule) struct FlagRuleDraft {
    pub(in crate::rule) id: Option<At<String>>,
    pub(in crate::rule) priority: Got<i64>,
    pub(in crate::rule) when: Got<ConditionDraft>,
    pub(in crate::rule) percentage: Got<Percentage>,
    pub(in crate::rule) serve: Got<ServeDraft>,
}

#[derive(Debug)]
pub(in crate::rule) enum ServeDraft {
    Variant(String),
    Split(Vec<(At<String>, Option<Percentage>)>),
}

impl FlagDraft {
    /// As the model has it, with the rules that could be read; `None` when something else could not.
    pub(in crate::rule) fn build(self) -> Option<Flag> {
        let variants = self.variants.value?.into_iter().map(|variant| Some((variant.name, variant.value?)));
        let mut rules: Vec<FlagRule> =
            self.rules.value?.items.into_iter().filter_map(|rule| rule.value.build()).collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        Some(Flag {
            key: self.key?.value,
            variants: variants.collect::<Option<_>>()?,
            default: self.default.value?,
            sticky: self.sticky.value?,
            rules,
        })
    }
}

impl FlagRuleDraft {
    fn build(self) -> Option<FlagRule> {
        let when = match self.when.optional()? {
            None => None,
            Some(when) => Some(when.condition?),
        };
        let serve = match self.serve.value? {
            ServeDraft::Variant(name) => Serve::Variant(name),
            ServeDraft::Split(shares) => Serve::Split(
                shares.into_iter().map(|(name, share)| Some((name.value, share?))).collect::<Option<_>>()?,
            ),
        };
        Some(FlagRule {
            id: self.id?.value,
            priority: self.priority.value?,
            when,
            percentage: self.percentage.optional()?,
            serve,
        })
    }
}

/// Reads one entry.
pub(super) fn read(node: &Node, report: &mut Report) -> Option<FlagDraft> {
    let mut fields = Fields::of(node, "this flag", report)?;
    let key = fields.required("key", "new-checkout", report, flag_key);
    let variants = fields.or("variants", switch(), report, read_variants);
    let default = fields.required("default", "\"off\"", report, variant_name);
    let sticky = fields.or("sticky", Sticky::None, report, |node, report| {
        scalar::choice(node, &[("none", Sticky::None), ("session", Sticky::Session)], report)
    });
    let rules =
        fields.or("rules", List::empty(), report, |node, report| fields::list(node, report, read_rule));
    fields.finish(report);
    let key = key.value.map(|value| At { value, span: key.span });
    Some(FlagDraft { key, variants, default, sticky, rules })
}

/// The variants of a flag that names none.
fn switch() -> Vec<VariantDraft> {
    [("on", true), ("off", false)]
        .into_iter()
        .map(|(name, value)| VariantDraft { name: name.to_owned(), value: Some(value.into()) })
        .collect()
}

/// Any text without `:`, which separates flag and subject where buckets are computed.
fn flag_key(node: &Node, report: &mut Report) -> Option<String> {
    const MOST: usize = 256;
    let text = scalar::text(node, report)?;
    let problem = if text.is_empty() {
        Some("a flag's key is empty")
    } else if text.contains(':') {
        Some("a flag's key has no `:`")
    } else if text.len() > MOST {
        Some("a flag's key has at most 256 bytes")
    } else if text.chars().any(char::is_control) {
        Some("a flag's key has no control characters")
    } else {
        None
    };
    if let Some(problem) = problem {
        report.fault(
            node.span,
            format!("{}: {problem}", quoted(text)),
            "choose another key, such as new-checkout",
        );
        return None;
    }
    Some(text.to_owned())
}

fn variant_name(node: &Node, report: &mut Report) -> Option<String> {
    scalar::text(node, report).map(str::to_owned)
}

fn read_variants(node: &Node, report: &mut Report) -> Option<Vec<VariantDraft>> {
    let Kind::Mapping(entries) = &*node.kind else {
        let help = "write `{ \"on\": true, \"off\": false }`";
        scalar::wrong_type(node, "variants are a mapping from names to values", help, report);
        return None;
    };
    if entries.is_empty() {
        report.fault(
            node.span,
            "a flag without variants serves nothing",
            "leave `variants` out for on and off",
        );
        return None;
    }
    if entries.len() > MAX_VARIANTS {
        report.fault(node.span, format!("a flag has at most {MAX_VARIANTS} variants"), "remove some");
        return None;
    }
    let found = entries.iter().map(|entry| {
        let name = entry.key.as_str();
        // Names travel to the upstream as structured-field strings (RFC 9651 section 3.3.3).
        if name.is_empty() || name.len() > 128 || !name.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            let message = format!("{} cannot be a variant's name", quoted(name));
            report.fault(entry.key_span, message, "use 1 to 128 printable ASCII characters");
        }
        VariantDraft { name: name.to_owned(), value: scalar::json(&entry.value, report) }
    });
    Some(found.collect())
}

fn read_rule(node: &Node, report: &mut Report) -> Option<FlagRuleDraft> {
    let mut fields = Fields::of(node, "this flag rule", report)?;
    let id = super::id(&mut fields, "ramp", report);
    let priority = fields
        .or("priority", 0, report, |node, report| scalar::signed(node, -MAX_PRIORITY..=MAX_PRIORITY, report));
    let when = fields.optional("when", report, |node, report| Some(condition::read(node, report)));
    let percentage = fields.optional("percentage", report, values::percentage);
    let serve = fields.required("serve", "\"on\"", report, read_serve);
    fields.finish(report);
    Some(FlagRuleDraft { id, priority, when, percentage, serve })
}

fn read_serve(node: &Node, report: &mut Report) -> Option<ServeDraft> {
    if !matches!(&*node.kind, Kind::Mapping(_)) {
        return variant_name(node, report).map(ServeDraft::Variant);
    }
    let mut fields = Fields::of(node, "serve", report)?;
    let split = fields.required("split", "{ a: 50, b: 50 }", report, |node, report| {
        let Kind::Mapping(entries) = &*node.kind else {
            let help = "write `{ a: 50, b: 50 }`";
            scalar::wrong_type(node, "a split is a mapping from variants to percentages", help, report);
            return None;
        };
        let shares: Vec<(At<String>, Option<Percentage>)> = entries
            .iter()
            .map(|entry| {
                let name = At { value: entry.key.clone(), span: entry.key_span };
                (name, values::percentage(&entry.value, report))
            })
            .collect();
        let known: Option<Vec<u64>> =
            shares.iter().map(|(_, share)| share.map(|share| u64::from(share.hundredths()))).collect();
        if let Some(total) = known.map(|shares| shares.iter().sum::<u64>())
            && total != 10_000
        {
            let message = format!("the shares add up to {}.{:02} %, not 100 %", total / 100, total % 100);
            report.fault(node.span, message, "change a share, or add a variant for what is left");
        }
        Some(shares)
    });
    fields.finish(report);
    split.value.map(ServeDraft::Split)
}
