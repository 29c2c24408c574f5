//! Tree → drafts: every value read, every default filled in, every fault noted, nothing cross-checked.
//!
//! A draft keeps what could be read of a rule beside the places where it stands, so that a bad field
//! hides no other fault. A draft of which everything was readable becomes a part of the model.

pub(super) mod attribute;
pub(super) mod breaker;
pub(super) mod condition;
pub(super) mod flag;
pub(super) mod idempotency;
pub(super) mod limit;
pub(super) mod path;
pub(super) mod resource;
pub(super) mod values;

use crate::document::diagnostic::quoted;
use crate::document::{At, Fields, List, Node, Report, Source, Span, fields, scalar, tree};

use crate::rule::model::Segment;

use breaker::BreakerDraft;
use condition::ConditionDraft;
use flag::FlagDraft;
use idempotency::IdempotencyDraft;
use limit::LimitDraft;
use resource::ResourceDraft;

/// What every rule document says first.
pub const API_VERSION: &str = "tidegate/v1";
/// Most entries of one section, all sources together.
pub const MAX_RULES: usize = 10_000;

/// What was read of all sources.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    pub(super) resources: Vec<ResourceDraft>,
    pub(super) limits: Vec<LimitDraft>,
    pub(super) idempotency: Vec<IdempotencyDraft>,
    pub(super) breakers: Vec<BreakerDraft>,
    pub(super) segments: Vec<SegmentDraft>,
    pub(super) flags: Vec<FlagDraft>,
    /// Whether an entry of that section was so broken that not even its name is known; references
    /// into the section are then not judged.
    pub(super) unreadable: Unreadable,
}

/// Sections with nameless entries.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    pub(super) resources: bool,
    pub(super) segments: bool,
    pub(super) flags: bool,
}

/// A named condition.
#[derive(Debug)]
pub(super) struct SegmentDraft {
    pub(super) id: Option<At<String>>,
    pub(super) when: ConditionDraft,
}

impl SegmentDraft {
    /// As the model has it; `None` when something could not be read.
    pub(super) fn build(self) -> Option<Segment> {
        Some(Segment { id: self.id?.value, when: self.when.condition? })
    }
}

/// Reads one source into `drafts`.
pub(super) fn source(source: &Source, index: u32, drafts: &mut Drafts, report: &mut Report) {
    let before = report.fault_count();
    let root = tree::parse(source, index, report);
    let Some(root) = root.filter(|root| !scalar::is_null(root)) else {
        drafts.unreadable = Unreadable { resources: true, segments: true, flags: true };
        if report.fault_count() == before {
            report.fault(
                Span::top(index),
                "the document is empty: `apiVersion` is missing",
                help_api_version(),
            );
        }
        return;
    };
    let Some(mut fields) = Fields::of(&root, "the document", report) else {
        drafts.unreadable = Unreadable { resources: true, segments: true, flags: true };
        return;
    };
    fields.required("apiVersion", API_VERSION, report, api_version);
    drafts.unreadable.resources |=
        section(&mut fields, "resources", &mut drafts.resources, report, resource::read);
    section(&mut fields, "limits", &mut drafts.limits, report, limit::read);
    section(&mut fields, "idempotency", &mut drafts.idempotency, report, idempotency::read);
    section(&mut fields, "breakers", &mut drafts.breakers, report, breaker::read);
    drafts.unreadable.segments |= section(&mut fields, "segments", &mut drafts.segments, report, segment);
    drafts.unreadable.flags |= section(&mut fields, "flags", &mut drafts.flags, report, flag::read);
    fields.finish_except(report, |name| name.starts_with("x-"));
    drafts.unreadable.resources |= drafts.resources.iter().any(|draft| draft.id.is_none());
    drafts.unreadable.segments |= drafts.segments.iter().any(|draft| draft.id.is_none());
    drafts.unreadable.flags |= drafts.flags.iter().any(|draft| draft.key.is_none());
}

/// Reads one section; says whether entries of it could not even be named.
fn section<'n, T>(
    fields: &mut Fields<'n>,
    name: &'static str,
    drafts: &mut Vec<T>,
    report: &mut Report,
    read: impl FnMut(&'n Node, &mut Report) -> Option<T>,
) -> bool {
    let got = fields.optional(name, report, |node, report| fields::list(node, report, read));
    let bad = got.written && got.value.as_ref().is_none_or(|list| !list.whole);
    for At { value, span } in got.value.map_or_else(Vec::new, |List { items, .. }| items) {
        if drafts.len() == MAX_RULES {
            report.fault(
                span,
                format!("`{name}` has more than {MAX_RULES} entries"),
                "merge rules, or use keys",
            );
            return true;
        }
        drafts.push(value);
    }
    bad
}

fn api_version(node: &Node, report: &mut Report) -> Option<()> {
    let found = scalar::text(node, report)?;
    if found != API_VERSION {
        report.fault(node.span, format!("apiVersion {} is not known", quoted(found)), help_api_version());
    }
    Some(())
}

fn help_api_version() -> String {
    format!("write `apiVersion: {API_VERSION}`")
}

/// The name of a rule, and its place.
fn id(fields: &mut Fields, example: &str, report: &mut Report) -> Option<At<String>> {
    let got = fields.required("id", example, report, |node, report| {
        let name = scalar::name(node, report)?;
        if name == "*" {
            report.fault(node.span, "`*` means every resource and names none", "choose another id");
            return None;
        }
        Some(name)
    });
    let span = got.span;
    got.value.map(|value| At { value, span })
}

fn segment(node: &Node, report: &mut Report) -> Option<SegmentDraft> {
    let mut fields = Fields::of(node, "this segment", report)?;
    let id = id(&mut fields, "staff", report);
    let example = "{ email: { ends_with: \"@example.com\" } }";
    let when = fields.required("when", example, report, |node, report| Some(condition::read(node, report)));
    fields.finish(report);
    Some(SegmentDraft { id, when: when.value.unwrap_or_default() })
}
