//! Mappings with known fields, and lists.

use std::collections::BTreeMap;

use super::diagnostic::quoted;
use super::report::Report;
use super::scalar;
use super::source::Span;
use super::tree::{Entry, Kind, Node};

/// A value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

/// What a field came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got<T> {
    /// `None` when it could not be read, which has been reported, or when it was left out and has
    /// no default.
    pub value: Option<T>,
    /// Where the value stands; where the mapping begins when it was left out.
    pub span: Span,
    /// Whether it was written.
    pub written: bool,
}

impl<T> Got<T> {
    /// The value of an optional field without a default: `None` when it could not be read.
    pub fn optional(self) -> Option<Option<T>> {
        if self.written { self.value.map(Some) } else { Some(None) }
    }

    /// The value with its place, if there is one.
    pub fn at(&self) -> Option<At<&T>> {
        self.value.as_ref().map(|value| At { value, span: self.span })
    }
}

/// The elements of a list that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    /// The elements, in document order.
    pub items: Vec<At<T>>,
    /// Whether those are all; others have been reported.
    pub whole: bool,
}

impl<T> List<T> {
    /// No element.
    pub const fn empty() -> Self {
        Self { items: Vec::new(), whole: true }
    }

    /// Without places; `None` when an element could not be read.
    pub fn into_values(self) -> Option<Vec<T>> {
        self.whole.then(|| self.items.into_iter().map(|item| item.value).collect())
    }

    /// The values in order.
    pub fn values(&self) -> impl Iterator<Item = &T> + Clone {
        self.items.iter().map(|item| &item.value)
    }
}

/// A mapping that is read field by field. [`Fields::finish`] reports the fields that nobody asked for.
#[derive(Debug)]
pub struct Fields<'n> {
    span: Span,
    what: String,
    entries: &'n [Entry],
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// The fields of `node`, which messages call `what` ("this limit", "`token_bucket`").
    pub fn of(node: &'n Node, what: impl Into<String>, report: &mut Report) -> Option<Self> {
        let what = what.into();
        if let Kind::Mapping(entries) = &*node.kind {
            Some(Self { span: node.span, what, entries, known: Vec::new() })
        } else {
            scalar::wrong_type(
                node,
                &format!("{what} must be a mapping"),
                "write `{ field: value }`",
                report,
            );
            None
        }
    }

    /// Where the mapping begins.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The entry called `name`, which makes the name a known one.
    pub fn entry(&mut self, name: &'static str) -> Option<&'n Entry> {
        self.known.push(name);
        self.entries.iter().find(|entry| entry.key == name)
    }

    /// A field that must be there. `example` completes the help "add `…`".
    pub fn required<T>(
        &mut self,
        name: &'static str,
        example: &str,
        report: &mut Report,
        read: impl FnOnce(&'n Node, &mut Report) -> Option<T>,
    ) -> Got<T> {
        let got = self.optional(name, report, read);
        if !got.written {
            report.fault(
                self.span,
                format!("`{name}` is missing in {}", self.what),
                format!("add `{name}: {example}`"),
            );
        }
        got
    }

    /// A field that means `default` when it is left out.
    pub fn or<T>(
        &mut self,
        name: &'static str,
        default: T,
        report: &mut Report,
        read: impl FnOnce(&'n Node, &mut Report) -> Option<T>,
    ) -> Got<T> {
        let mut got = self.optional(name, report, read);
        if !got.written {
            got.value = Some(default);
        }
        got
    }

    /// A field that may be left out.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        report: &mut Report,
        read: impl FnOnce(&'n Node, &mut Report) -> Option<T>,
    ) -> Got<T> {
        match self.entry(name) {
            None => Got { value: None, span: self.span, written: false },
            Some(entry) if scalar::is_null(&entry.value) => {
                report.fault(
                    entry.key_span,
                    format!("`{name}` has no value"),
                    "write a value, or leave the field out",
                );
                Got { value: None, span: entry.key_span, written: true }
            }
            Some(entry) => Got { value: read(&entry.value, report), span: entry.value.span, written: true },
        }
    }

    /// Reports every field that was not asked for.
    pub fn finish(self, report: &mut Report) {
        self.finish_except(report, |_| false);
    }

    /// Reports every field that was not asked for, but for those whose name is `ignored`.
    pub fn finish_except(self, report: &mut Report, ignored: impl Fn(&str) -> bool) {
        for entry in self.entries {
            let key = entry.key.as_str();
            if self.known.contains(&key) || ignored(key) {
                continue;
            }
            let message = format!("unknown field {} in {}", quoted(key), self.what);
            let fields = self.known.join(", ");
            let help = match report.nearest(key, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? Known fields: {fields}"),
                None => format!("known fields: {fields}"),
            };
            report.fault(entry.key_span, message, help);
        }
    }
}

/// A list whose elements `read` reads. `None` when the node is no list.
pub fn list<'n, T>(
    node: &'n Node,
    report: &mut Report,
    mut read: impl FnMut(&'n Node, &mut Report) -> Option<T>,
) -> Option<List<T>> {
    let Kind::Sequence(nodes) = &*node.kind else {
        scalar::wrong_type(
            node,
            "a list is expected",
            "write `[a, b]`, or one `- element` on each line",
            report,
        );
        return None;
    };
    let mut items = Vec::with_capacity(nodes.len());
    for node in nodes {
        if let Some(value) = read(node, report) {
            items.push(At { value, span: node.span });
        }
    }
    let whole = items.len() == nodes.len();
    Some(List { items, whole })
}

/// A list with at least one element. `help` says what to write.
pub fn non_empty_list<'n, T>(
    node: &'n Node,
    report: &mut Report,
    help: &str,
    read: impl FnMut(&'n Node, &mut Report) -> Option<T>,
) -> Option<List<T>> {
    let found = list(node, report, read)?;
    if found.items.is_empty() && found.whole {
        report.fault(node.span, "this list is empty", help);
        return None;
    }
    Some(found)
}

/// The list, if it has at most `most` elements.
pub fn at_most<T>(list: List<T>, most: usize, report: &mut Report) -> Option<List<T>> {
    if let Some(item) = list.items.get(most) {
        report.fault(item.span, format!("this list has more than {most} elements"), "remove some");
        return None;
    }
    Some(list)
}

/// Reports elements whose spelling stood in the list before.
pub fn reject_repeats<T>(list: &List<T>, spelling: impl Fn(&T) -> String, report: &mut Report) {
    let mut seen: BTreeMap<String, Span> = BTreeMap::new();
    for item in &list.items {
        let spelled = spelling(&item.value);
        if let Some(first) = seen.get(&spelled) {
            let place = report.place(*first, item.span);
            let message = format!("{} is listed twice; the first is at {place}", quoted(&spelled));
            report.fault(item.span, message, "remove one of them");
        } else {
            seen.insert(spelled, item.span);
        }
    }
}
