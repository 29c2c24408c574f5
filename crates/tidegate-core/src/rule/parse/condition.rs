//! Conditions.

use crate::document::diagnostic::quoted;
use crate::document::scalar::{self as read, Scalar as Raw};
use crate::document::{At, Entry, Kind, Node, Report, fields};
use crate::rollout::condition;
use crate::rule::model::{Condition, Scalar, ScalarKind, Test};

/// Most regular expressions of a rule set: each is compiled and kept.
pub const MAX_REGEXES: usize = 1000;

/// The tests of one attribute.
pub(in crate::rule) const TESTS: [&str; 14] = [
    "equals",
    "in",
    "not_in",
    "starts_with",
    "ends_with",
    "matches",
    "gt",
    "gte",
    "lt",
    "lte",
    "semver",
    "cidr",
    "before",
    "after",
];
/// Words for combinations.
const COMBINATIONS: [&str; 4] = ["all", "any", "not", "segment"];

/// A condition and what it refers to.
#[derive(Debug, Default)]
pub(in crate::rule) struct ConditionDraft {
    /// `None` when a part of it could not be read.
    pub(in crate::rule) condition: Option<Condition>,
    /// The attributes that it tests itself.
    pub(in crate::rule) attributes: Vec<At<String>>,
    /// The segments that it asks.
    pub(in crate::rule) segments: Vec<At<String>>,
}

/// Reads a condition. What could not be read is reported, and the rest is kept.
pub(super) fn read(node: &Node, report: &mut Report) -> ConditionDraft {
    let mut draft = ConditionDraft::default();
    draft.condition = read_condition(node, &mut draft, report);
    draft
}

fn read_condition(node: &Node, draft: &mut ConditionDraft, report: &mut Report) -> Option<Condition> {
    let Kind::Mapping(entries) = &*node.kind else {
        let help = "write `{ tenant: { in: [acme] } }`, or all, any, not, segment";
        read::wrong_type(node, "a condition is a mapping", help, report);
        return None;
    };
    if entries.is_empty() {
        let help = "name an attribute and a test, such as `{ tenant: { equals: acme } }`";
        report.fault(node.span, "this condition is empty", help);
        return None;
    }
    let parts: Vec<Option<Condition>> = entries.iter().map(|entry| part(entry, draft, report)).collect();
    conjunction(parts.into_iter().collect::<Option<_>>()?)
}

/// One of them as it is, several as "all".
fn conjunction(mut parts: Vec<Condition>) -> Option<Condition> {
    if parts.len() == 1 { parts.pop() } else { Some(Condition::All(parts)) }
}

fn part(entry: &Entry, draft: &mut ConditionDraft, report: &mut Report) -> Option<Condition> {
    match entry.key.as_str() {
        "all" => several(&entry.value, draft, report).map(Condition::All),
        "any" => several(&entry.value, draft, report).map(Condition::Any),
        "not" => read_condition(&entry.value, draft, report).map(|inner| Condition::Not(Box::new(inner))),
        "segment" => {
            let name = read::text(&entry.value, report)?.to_owned();
            draft.segments.push(At { value: name.clone(), span: entry.value.span });
            Some(Condition::Segment(name))
        }
        name => attribute(name, entry, draft, report),
    }
}

fn several(node: &Node, draft: &mut ConditionDraft, report: &mut Report) -> Option<Vec<Condition>> {
    fields::list(node, report, |node, report| read_condition(node, draft, report))?.into_values()
}

fn attribute(
    name: &str,
    entry: &Entry,
    draft: &mut ConditionDraft,
    report: &mut Report,
) -> Option<Condition> {
    if name.is_empty() {
        report.fault(entry.key_span, "an attribute's name is empty", "name an attribute");
        return None;
    }
    if TESTS.contains(&name) {
        let help = format!("write `ATTRIBUTE: {{ {name}: … }}`");
        report.fault(
            entry.key_span,
            format!("`{name}` is a test, and an attribute is missing before it"),
            help,
        );
        return None;
    }
    let Kind::Mapping(tests) = &*entry.value.kind else {
        let help = match Raw::of(&entry.value) {
            Some(Raw::Text(text) | Raw::Number(text)) => format!("write `{name}: {{ equals: {text} }}`"),
            _ => format!("write `{name}: {{ in: [a, b] }}`"),
        };
        let expected = format!("a test of the attribute {} is a mapping", quoted(name));
        read::wrong_type(&entry.value, &expected, help, report);
        return None;
    };
    draft.attributes.push(At { value: name.to_owned(), span: entry.key_span });
    if tests.is_empty() {
        report.fault(entry.value.span, "a test is missing", format!("write one of {}", TESTS.join(", ")));
        return None;
    }
    let mut found = Vec::with_capacity(tests.len());
    for entry in tests {
        found.push(test(entry, report).map(|test| Condition::Attribute { name: name.to_owned(), test }));
    }
    conjunction(found.into_iter().collect::<Option<_>>()?)
}

fn test(entry: &Entry, report: &mut Report) -> Option<Test> {
    let node = &entry.value;
    Some(match entry.key.as_str() {
        "equals" => Test::Equals(scalar(node, report)?),
        "in" => Test::In(fields::list(node, report, scalar)?.into_values()?),
        "not_in" => Test::NotIn(fields::list(node, report, scalar)?.into_values()?),
        "starts_with" => Test::StartsWith(scalar(node, report)?.text),
        "ends_with" => Test::EndsWith(scalar(node, report)?.text),
        "matches" => {
            if !report.spend("regular expressions", MAX_REGEXES) {
                report.fault(
                    node.span,
                    format!("there are more than {MAX_REGEXES} regular expressions"),
                    "use `in`, `starts_with` or `ends_with`, or name a condition once as a segment",
                );
                return None;
            }
            usable(Test::Matches(scalar(node, report)?.text), node, report)?
        }
        "gt" => usable(Test::Gt(number(node, report)?), node, report)?,
        "gte" => usable(Test::Gte(number(node, report)?), node, report)?,
        "lt" => usable(Test::Lt(number(node, report)?), node, report)?,
        "lte" => usable(Test::Lte(number(node, report)?), node, report)?,
        "semver" => usable(Test::Semver(scalar(node, report)?.text), node, report)?,
        "cidr" => Test::Cidr(networks(node, report)?),
        "before" => usable(Test::Before(scalar(node, report)?.text), node, report)?,
        "after" => usable(Test::After(scalar(node, report)?.text), node, report)?,
        other => {
            let known = TESTS.join(", ");
            let help = match report.nearest(other, TESTS.into_iter()) {
                Some(near) => format!("did you mean `{near}`? Known tests: {known}"),
                None if COMBINATIONS.contains(&other) => {
                    format!("write `{other}` outside of the attribute; known tests: {known}")
                }
                None => format!("known tests: {known}"),
            };
            report.fault(entry.key_span, format!("unknown test {}", quoted(other)), help);
            return None;
        }
    })
}

/// A scalar with its source text.
fn scalar(node: &Node, report: &mut Report) -> Option<Scalar> {
    let (text, kind) = match Raw::of(node) {
        Some(Raw::Text(text)) => {
            let plain = matches!(&*node.kind, Kind::Scalar { plain: true, .. });
            if plain && read::is_ambiguous(text) {
                let message = format!("{} is read differently by different YAML readers", quoted(text));
                let help = "quote it if it is text; booleans are true and false, numbers are decimal";
                report.fault(node.span, message, help);
                return None;
            }
            (text, ScalarKind::String)
        }
        Some(Raw::Number(text)) => (text, ScalarKind::Number),
        Some(Raw::Bool(true)) => ("true", ScalarKind::Bool),
        Some(Raw::Bool(false)) => ("false", ScalarKind::Bool),
        Some(Raw::Null) => {
            let help = "an absent or null attribute makes a test false; for \"absent\" write `not_in` of all that may be there";
            report.fault(node.span, "null cannot be compared", help);
            return None;
        }
        None => {
            read::wrong_type(node, "a text, number or boolean is expected", "write one value here", report);
            return None;
        }
    };
    Some(Scalar { text: text.to_owned(), kind })
}

fn number(node: &Node, report: &mut Report) -> Option<String> {
    let Some(Raw::Number(text)) = Raw::of(node) else {
        read::wrong_type(node, "a number is expected", "write a decimal number without quotes", report);
        return None;
    };
    Some(text.to_owned())
}

fn networks(node: &Node, report: &mut Report) -> Option<Vec<String>> {
    let one = |node: &Node, report: &mut Report| {
        let text = scalar(node, report)?.text;
        // One at a time, so that each is reported where it stands.
        usable(Test::Cidr(vec![text.clone()]), node, report).map(|_| text)
    };
    if matches!(&*node.kind, Kind::Sequence(_)) {
        return fields::non_empty_list(node, report, "write [10.0.0.0/8]", one)?.into_values();
    }
    one(node, report).map(|network| vec![network])
}

/// The test, if evaluation can use it.
fn usable(test: Test, node: &Node, report: &mut Report) -> Option<Test> {
    match condition::check(&test) {
        Ok(()) => Some(test),
        Err(error) => {
            report.fault(node.span, error.problem(), error.help());
            None
        }
    }
}
