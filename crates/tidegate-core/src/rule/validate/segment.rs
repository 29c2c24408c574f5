//! Segments: references and cycles. What a condition costs once they are followed is judged where the
//! whole rule set is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::document::Report;
use crate::document::diagnostic::quoted;
use crate::rule::parse::condition::ConditionDraft;
use crate::rule::parse::{Drafts, SegmentDraft};

use super::unknown;

/// What is known about each segment.
pub(super) struct Segments<'d> {
    drafts: BTreeMap<&'d str, &'d SegmentDraft>,
    /// Those whose references have all been followed.
    done: BTreeSet<&'d str>,
    attributes: BTreeMap<&'d str, Rc<BTreeSet<&'d str>>>,
    /// Whether a segment may exist that could not be read.
    incomplete: bool,
}

impl<'d> Segments<'d> {
    /// Checks the segments themselves.
    pub(super) fn of(drafts: &'d Drafts, report: &mut Report) -> Self {
        let mut found = Self {
            drafts: BTreeMap::new(),
            done: BTreeSet::new(),
            attributes: BTreeMap::new(),
            incomplete: drafts.unreadable.segments,
        };
        for draft in &drafts.segments {
            if let Some(id) = &draft.id {
                found.drafts.entry(&id.value).or_insert(draft);
            }
        }
        for draft in &drafts.segments {
            found.check_references(&draft.when, report);
            if let Some(id) = &draft.id {
                found.visit(&id.value, report);
            }
        }
        found
    }

    /// The attributes that a segment tests, itself or through others.
    pub(super) fn attributes_of(&mut self, id: &str) -> Rc<BTreeSet<&'d str>> {
        let empty = Rc::new(BTreeSet::new());
        let Some((id, draft)) = self.drafts.get_key_value(id).map(|(id, draft)| (*id, *draft)) else {
            return empty;
        };
        if let Some(known) = self.attributes.get(id) {
            return Rc::clone(known);
        }
        let mut all: BTreeSet<&'d str> = BTreeSet::new();
        let mut seen: BTreeSet<&'d str> = BTreeSet::from([id]);
        let mut open: Vec<&'d SegmentDraft> = vec![draft];
        while let Some(draft) = open.pop() {
            all.extend(draft.when.attributes.iter().map(|name| name.value.as_str()));
            for next in &draft.when.segments {
                if let Some((id, draft)) = self.drafts.get_key_value(next.value.as_str())
                    && seen.insert(id)
                {
                    open.push(draft);
                }
            }
        }
        let all = Rc::new(all);
        self.attributes.insert(id, Rc::clone(&all));
        all
    }

    /// Reports segments that do not exist.
    pub(super) fn check_references(&self, when: &ConditionDraft, report: &mut Report) {
        for name in &when.segments {
            if !self.drafts.contains_key(name.value.as_str()) && !self.incomplete {
                unknown("segment", &name.value, name.span, self.drafts.keys().copied(), "segments", report);
            }
        }
    }

    /// Walks depth first from one segment, without recursion, since a chain may be as long as the
    /// section. Reports cycles.
    fn visit(&mut self, id: &'d str, report: &mut Report) {
        // The segments from the first to the one being visited, each with its next reference.
        let mut path: Vec<(&'d str, usize)> = Vec::new();
        let mut on_path: BTreeSet<&'d str> = BTreeSet::new();
        if !self.done.contains(id) {
            path.push((id, 0));
            on_path.insert(id);
        }
        while let Some((id, next)) = path.last_mut() {
            let id = *id;
            let Some(draft) = self.drafts.get(id).copied() else { break };
            if let Some(reference) = draft.when.segments.get(*next) {
                *next += 1;
                let Some(target) = self.drafts.get_key_value(reference.value.as_str()).map(|(id, _)| *id)
                else {
                    continue;
                };
                if on_path.contains(target) {
                    let from = path.iter().position(|(id, _)| *id == target).unwrap_or(0);
                    let mut cycle: Vec<String> =
                        path[from..].iter().map(|(id, _)| (*id).to_owned()).collect();
                    cycle.truncate(super::MOST_NAMES);
                    cycle.push(if path.len() - from > super::MOST_NAMES {
                        "…".to_owned()
                    } else {
                        target.to_owned()
                    });
                    let message =
                        format!("the segment {} asks itself: {}", quoted(target), cycle.join(" → "));
                    report.fault(reference.span, message, "remove one of these references");
                } else if !self.done.contains(target) {
                    path.push((target, 0));
                    on_path.insert(target);
                }
                continue;
            }
            self.done.insert(id);
            on_path.remove(id);
            path.pop();
        }
    }
}
