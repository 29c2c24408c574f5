//! Flags: their variants and rules.

use crate::document::diagnostic::quoted;
use crate::document::{Report, Span};
use crate::rule::model::Sticky;
use crate::rule::parse::flag::{FlagDraft, ServeDraft};

use super::segment::Segments;
use super::unique;

pub(super) fn check(draft: &FlagDraft, segments: &Segments, report: &mut Report) {
    if draft.sticky.value == Some(Sticky::Session) {
        report.fault(
            draft.sticky.span,
            "`sticky: session` is not available in this release",
            "write `sticky: none`, or leave it out",
        );
    }
    if let Some(default) = draft.default.at() {
        check_variant(draft, default.value, default.span, report);
    }
    let Some(rules) = &draft.rules.value else { return };
    unique("rules of this flag", rules.items.iter().filter_map(|rule| rule.value.id.as_ref()), report);
    for rule in rules.items.iter().map(|rule| &rule.value) {
        if let Some(when) = &rule.when.value {
            segments.check_references(when, report);
        }
        match &rule.serve.value {
            Some(ServeDraft::Variant(name)) => check_variant(draft, name, rule.serve.span, report),
            Some(ServeDraft::Split(shares)) => {
                for (name, _) in shares {
                    check_variant(draft, &name.value, name.span, report);
                }
            }
            None => {}
        }
    }
}

fn check_variant(draft: &FlagDraft, name: &str, span: Span, report: &mut Report) {
    let Some(variants) = &draft.variants.value else { return };
    if variants.iter().any(|variant| variant.name == name) {
        return;
    }
    let known = || variants.iter().map(|variant| variant.name.as_str());
    let some: Vec<&str> = known().take(super::MOST_NAMES + 1).collect();
    let help = match report.nearest(name, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("serve one of {}, or add it under `variants`", super::names(&some)),
    };
    report.fault(span, format!("this flag has no variant {}", quoted(name)), help);
}
