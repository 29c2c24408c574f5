//! Resources: their subject, their flags, attributes from the path.

use crate::document::diagnostic::quoted;
use crate::document::{Report, Span};
use crate::rule::model::{AttributeSource, PathSegment};
use crate::rule::parse::resource::ResourceDraft;

use super::{Index, unknown};

pub(super) fn check(draft: &ResourceDraft, index: &Index, report: &mut Report) {
    for attribute in &draft.attributes {
        if let Some(AttributeSource::Path(name)) = &attribute.from.value {
            check_path(draft, name, attribute.from.span, report);
        }
    }
    if let Some(subject) = draft.subject.at()
        && draft.all_attributes
        && draft.attribute(subject.value).is_none()
    {
        let known = draft.attributes.iter().map(|attribute| attribute.name.value.as_str());
        let help = match report.nearest(subject.value, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "declare it under `attributes` of this resource".to_owned(),
        };
        let message = format!("the subject {} is not an attribute of this resource", quoted(subject.value));
        report.fault(subject.span, message, help);
    }
    for flag in draft.flags.value.iter().flat_map(|flags| &flags.items) {
        if !index.flags.contains_key(flag.value.as_str()) && !index.drafts.unreadable.flags {
            unknown("flag", &flag.value, flag.span, index.flags.keys().copied(), "flags", report);
        }
    }
}

/// Reports `path.NAME` where the resource's pattern has no such segment.
pub(super) fn check_path(draft: &ResourceDraft, name: &str, span: Span, report: &mut Report) {
    let id = draft.id.as_ref().map_or("", |id| id.value.as_str());
    if !draft.matcher.written {
        let message = format!("`path.{name}` needs a path, and resource {} has no `match`", quoted(id));
        report.fault(span, message, "add `match: { path: … }`, or take the attribute from elsewhere");
        return;
    }
    let Some(path) = draft.matcher.value.as_ref().and_then(|matcher| matcher.path.value.as_ref()) else {
        return;
    };
    let known = path.iter().filter_map(|segment| match segment {
        PathSegment::Param(name) | PathSegment::Rest(name) => Some(name.as_str()),
        PathSegment::Literal(_) => None,
    });
    if known.clone().any(|known| known == name) {
        return;
    }
    let help = match report.nearest(name, known) {
        Some(near) => format!("did you mean `path.{near}`?"),
        None => format!("write {{{name}}} for a segment of the path"),
    };
    report.fault(span, format!("the path of resource {} has no segment {}", quoted(id), quoted(name)), help);
}
