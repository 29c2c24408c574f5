//! The `resources` section.

use std::time::Duration;

use crate::document::diagnostic::quoted;
use crate::document::{At, Fields, Got, Kind, List, Node, Report, fields, quantity, scalar};
use crate::rule::model::{Attribute, AttributeSource, Match, Missing, PathSegment, Resource};

use crate::token::is_token;

use super::{attribute, path};

/// Most attributes of one resource.
pub const MAX_ATTRIBUTES: usize = 100;

#[derive(Debug)]
pub(in crate::rule) struct ResourceDraft {
    pub(in crate::rule) id: Option<At<String>>,
    pub(in crate::rule) matcher: Got<MatchDraft>,
    pub(in crate::rule) timeout: Got<Duration>,
    pub(in crate::rule) attributes: Vec<AttributeDraft>,
    /// Whether those are all attributes.
    pub(in crate::rule) all_attributes: bool,
    pub(in crate::rule) subject: Got<String>,
    pub(in crate::rule) flags: Got<List<String>>,
}

#[derive(Debug)]
pub(in crate::rule) struct MatchDraft {
    pub(in crate::rule) hosts: Got<List<String>>,
    pub(in crate::rule) methods: Got<List<String>>,
    pub(in crate::rule) path: Got<Vec<PathSegment>>,
}

#[derive(Debug)]
pub(in crate::rule) struct AttributeDraft {
    pub(in crate::rule) name: At<String>,
    pub(in crate::rule) from: Got<AttributeSource>,
    pub(in crate::rule) missing: Got<Missing>,
}

impl ResourceDraft {
    /// The attribute called `name`.
    pub(in crate::rule) fn attribute(&self, name: &str) -> Option<&AttributeDraft> {
        self.attributes.iter().find(|attribute| attribute.name.value == name)
    }

    /// As the model has it; `None` when something could not be read.
    pub(in crate::rule) fn build(self) -> Option<Resource> {
        let matcher = match self.matcher.optional()? {
            None => None,
            Some(MatchDraft { hosts, methods, path }) => Some(Match {
                hosts: hosts.value?.into_values()?,
                methods: methods.value?.into_values()?,
                path: path.value?,
            }),
        };
        if !self.all_attributes {
            return None;
        }
        let attributes = self
            .attributes
            .into_iter()
            .map(|attribute| {
                Some(Attribute {
                    name: attribute.name.value,
                    from: attribute.from.value?,
                    missing: attribute.missing.value?,
                })
            })
            .collect::<Option<_>>()?;
        Some(Resource {
            id: self.id?.value,
            matcher,
            timeout: self.timeout.value?,
            attributes,
            subject: self.subject.optional()?,
            flags: self.flags.value?.into_values()?,
        })
    }
}

/// Reads one entry.
pub(super) fn read(node: &Node, report: &mut Report) -> Option<ResourceDraft> {
    /// Longest timeout of an upstream call.
    const MAX_TIMEOUT: Duration = Duration::from_hours(24);
    let mut fields = Fields::of(node, "this resource", report)?;
    let id = super::id(&mut fields, "pay", report);
    let matcher = fields.optional("match", report, read_match);
    let timeout = fields.or("timeout", Duration::from_secs(30), report, |node, report| {
        quantity::duration(node, super::values::MIN_SPAN..=MAX_TIMEOUT, report)
    });
    let attributes = fields.optional("attributes", report, read_attributes);
    let subject =
        fields.optional("subject", report, |node, report| scalar::text(node, report).map(str::to_owned));
    let flags = fields.or("flags", List::empty(), report, |node, report| {
        let flags = fields::list(node, report, |node, report| scalar::text(node, report).map(str::to_owned))?;
        fields::reject_repeats(&flags, ToString::to_string, report);
        Some(flags)
    });
    fields.finish(report);
    let (attributes, all_attributes) = match attributes.optional() {
        Some(found) => found.unwrap_or((Vec::new(), true)),
        None => (Vec::new(), false),
    };
    Some(ResourceDraft { id, matcher, timeout, attributes, all_attributes, subject, flags })
}

fn read_match(node: &Node, report: &mut Report) -> Option<MatchDraft> {
    let mut fields = Fields::of(node, "match", report)?;
    let hosts = fields.or("hosts", List::empty(), report, |node, report| {
        let hosts = fields::non_empty_list(node, report, "leave `hosts` out to mean any", path::host)?;
        fields::reject_repeats(&hosts, ToString::to_string, report);
        Some(hosts)
    });
    let methods = fields.or("methods", List::empty(), report, |node, report| {
        let methods = fields::non_empty_list(node, report, "leave `methods` out to mean any", method)?;
        fields::reject_repeats(&methods, ToString::to_string, report);
        Some(methods)
    });
    let path = fields.required("path", "\"/orders/{order}/pay\"", report, path::pattern);
    fields.finish(report);
    Some(MatchDraft { hosts, methods, path })
}

fn method(node: &Node, report: &mut Report) -> Option<String> {
    let text = scalar::text(node, report)?;
    if is_token(text) && !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Some(text.to_owned());
    }
    let upper = text.to_ascii_uppercase();
    let help = if is_token(&upper) { format!("write {upper}") } else { "write GET, POST, …".to_owned() };
    report.fault(node.span, format!("{} is not a method in capitals", quoted(text)), help);
    None
}

fn read_attributes(node: &Node, report: &mut Report) -> Option<(Vec<AttributeDraft>, bool)> {
    let Kind::Mapping(entries) = &*node.kind else {
        let help = "write `name: { from: header.x-name }` for each";
        scalar::wrong_type(node, "attributes are a mapping from names", help, report);
        return None;
    };
    if entries.len() > MAX_ATTRIBUTES {
        report.fault(node.span, format!("a resource has at most {MAX_ATTRIBUTES} attributes"), "remove some");
        return None;
    }
    let mut found = Vec::with_capacity(entries.len());
    let mut whole = true;
    for entry in entries {
        let name = entry.key.as_str();
        let visible =
            !name.is_empty() && name.len() <= 128 && name.bytes().all(|byte| byte.is_ascii_graphic());
        if attribute::RESERVED.contains(&name) || name.starts_with("body.") || !visible {
            let help = if visible {
                format!("choose another name; {} have a meaning of their own", attribute::RESERVED.join(", "))
            } else {
                "use 1 to 128 visible ASCII characters without spaces".to_owned()
            };
            report.fault(entry.key_span, format!("{} cannot be an attribute's name", quoted(name)), help);
        }
        let Some(mut fields) = Fields::of(&entry.value, "an attribute", report) else {
            whole = false;
            continue;
        };
        let from = fields.required("from", "header.x-tenant", report, attribute::source);
        let missing = fields.or("missing", Missing::Share, report, |node, report| {
            scalar::choice(node, &[("share", Missing::Share), ("reject", Missing::Reject)], report)
        });
        fields.finish(report);
        found.push(AttributeDraft {
            name: At { value: name.to_owned(), span: entry.key_span },
            from,
            missing,
        });
    }
    Some((found, whole))
}
