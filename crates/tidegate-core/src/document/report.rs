//! Where findings are collected.

use std::collections::{BTreeMap, BTreeSet};

use super::diagnostic::{Diagnostic, Severity};
use super::source::{Source, Span};
use super::suggest;

/// Most findings of one severity that are kept; more are only counted.
pub const MAX_FINDINGS: usize = 10_000;
/// Most words that are compared for "did you mean" in one load.
const MAX_COMPARISONS: usize = 100_000;

/// Collects the findings of one load. Equal findings at one place count once, so that a node that
/// several aliases share is reported once.
#[derive(Debug)]
pub struct Report<'s> {
    sources: &'s [Source],
    faults: Findings,
    warnings: Findings,
    /// How many words may still be compared.
    comparisons: usize,
    spent: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Default)]
struct Findings {
    kept: Vec<(Span, Diagnostic)>,
    seen: BTreeSet<(Span, String)>,
    /// How many were not kept.
    dropped: usize,
}

impl<'s> Report<'s> {
    /// An empty report about `sources`.
    pub fn new(sources: &'s [Source]) -> Self {
        Self {
            sources,
            faults: Findings::default(),
            warnings: Findings::default(),
            comparisons: MAX_COMPARISONS,
            spent: BTreeMap::new(),
        }
    }

    /// Adds a fault at `span`.
    pub fn fault(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Fault, span, message.into(), help.into());
    }

    /// Adds a warning at `span`.
    pub fn warn(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Warning, span, message.into(), help.into());
    }

    /// How many faults there are so far.
    pub fn fault_count(&self) -> usize {
        self.faults.kept.len() + self.faults.dropped
    }

    /// Counts one more of something that is costly to check. False once a load has more than `most`.
    pub fn spend(&mut self, what: &'static str, most: usize) -> bool {
        let spent = self.spent.entry(what).or_default();
        *spent = spent.saturating_add(1);
        *spent <= most
    }

    /// Whether further faults would not be kept, so that looking for them is in vain.
    pub fn is_full(&self) -> bool {
        self.faults.dropped > 0
    }

    /// `LINE:COL`, or `FILE:LINE:COL` when the place is in another source than `near`.
    pub fn place(&self, span: Span, near: Span) -> String {
        match self.sources.get(span.source as usize) {
            Some(source) if span.source != near.source => {
                format!("{}:{}:{}", source.name, span.line, span.column)
            }
            _ => format!("{}:{}", span.line, span.column),
        }
    }

    /// The candidate that `word` was probably meant to be. Gives up once a load has compared
    /// very many words, which bounds its time.
    pub fn nearest<'c>(
        &mut self,
        word: &str,
        candidates: impl Iterator<Item = &'c str> + Clone,
    ) -> Option<&'c str> {
        // Once they do not suffice, none are left.
        let left = std::mem::take(&mut self.comparisons);
        self.comparisons = left.checked_sub(candidates.clone().take(left.saturating_add(1)).count())?;
        suggest::nearest(word, candidates)
    }

    /// Faults and warnings, each in document order.
    pub fn finish(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        (self.faults.finish(Severity::Fault), self.warnings.finish(Severity::Warning))
    }

    fn add(&mut self, severity: Severity, span: Span, message: String, help: String) {
        let findings = match severity {
            Severity::Fault => &mut self.faults,
            Severity::Warning => &mut self.warnings,
        };
        if findings.kept.len() >= MAX_FINDINGS {
            findings.dropped += 1;
        } else if findings.seen.insert((span, message.clone())) {
            let found = Diagnostic::new(severity, self.sources, span, message, help);
            findings.kept.push((span, found));
        }
    }
}

impl Findings {
    fn finish(mut self, severity: Severity) -> Vec<Diagnostic> {
        self.kept.sort_by_key(|(span, _)| (span.source, span.start));
        let last = self.kept.last().map(|(span, _)| *span);
        let mut all: Vec<Diagnostic> = self.kept.into_iter().map(|(_, found)| found).collect();
        if let (1.., Some(last), Some(at)) = (self.dropped, last, all.last()) {
            let source = Source::new(at.source.clone(), "");
            let span = Span { source: 0, ..last };
            let message = "there is more to find than is shown".to_owned();
            let help = "mend the ones above first".to_owned();
            all.push(Diagnostic::new(severity, &[source], span, message, help));
        }
        all
    }
}

#[cfg(test)]
mod tests;
