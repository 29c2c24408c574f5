//! What an experiment found, beside what must come out.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use tidegate_core::document::quantity::show;

/// One measured value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Figure {
    /// How many.
    Count(u64),
    /// How long.
    Span(Duration),
    /// What happened, in a word or a line.
    Word(String),
}

impl Figure {
    /// What happened.
    pub(crate) fn word(word: impl Into<String>) -> Self {
        Self::Word(word.into())
    }

    /// Figures of two kinds have no order.
    fn at_most(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => a <= b,
            (Self::Span(a), Self::Span(b)) => a <= b,
            _ => false,
        }
    }
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Figure {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<Duration> for Figure {
    fn from(span: Duration) -> Self {
        Self::Span(span)
    }
}

impl From<&str> for Figure {
    fn from(word: &str) -> Self {
        Self::word(word)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            // Longer figures are read, not computed with.
            Self::Span(span) if span.as_secs() >= 1 => write!(f, "{:.1}s", span.as_secs_f64()),
            Self::Span(span) => f.write_str(&show(*span)),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// A count is a JSON number, a span is a number of seconds, a word is a string.
impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Span(span) => serializer.serialize_f64(span.as_secs_f64()),
            Self::Word(word) => serializer.serialize_str(word),
        }
    }
}

/// What must come out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expectation {
    /// `= n`: exactly this.
    Exactly(Figure),
    /// `≤ n`.
    AtMost(Figure),
    /// `a … b`, both included.
    Between(Figure, Figure),
    /// `> n`: what a race shows. It depends on scheduling, so a run that did not show it has not failed.
    Race(Figure),
}

impl Expectation {
    /// `= n`.
    pub(crate) fn exactly(figure: impl Into<Figure>) -> Self {
        Self::Exactly(figure.into())
    }

    /// `a … b`.
    pub(crate) fn between(low: impl Into<Figure>, high: impl Into<Figure>) -> Self {
        Self::Between(low.into(), high.into())
    }

    /// How `figure` compares.
    pub fn check(&self, figure: &Figure) -> Verdict {
        let holds = match self {
            Self::Exactly(expected) => figure == expected,
            Self::AtMost(most) => figure.at_most(most),
            Self::Between(low, high) => low.at_most(figure) && figure.at_most(high),
            Self::Race(bound) if figure.at_most(bound) => return Verdict::NotSeen,
            Self::Race(bound) => bound.at_most(figure),
        };
        if holds { Verdict::Holds } else { Verdict::Fails }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(figure) => write!(f, "= {figure}"),
            Self::AtMost(figure) => write!(f, "≤ {figure}"),
            Self::Between(low, high) => write!(f, "{low} … {high}"),
            Self::Race(figure) => write!(f, "> {figure}"),
        }
    }
}

/// How a figure compares with what is expected of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is as expected.
    Holds,
    /// A race that this run did not show.
    NotSeen,
    /// It is not.
    Fails,
}

/// A figure and what is expected of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What came out.
    pub figure: Figure,
    /// What must.
    pub expected: Expectation,
}

impl Cell {
    /// How the two compare.
    pub fn verdict(&self) -> Verdict {
        self.expected.check(&self.figure)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.expected, self.verdict()) {
            (Expectation::Exactly(_), Verdict::Holds) => self.figure.fmt(f),
            (expected, Verdict::Holds) => write!(f, "{} ({expected})", self.figure),
            (expected, Verdict::NotSeen) => write!(f, "{} ({expected} not seen)", self.figure),
            (expected, Verdict::Fails) => write!(f, "{} (EXPECTED {expected})", self.figure),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut cell = serializer.serialize_struct("Cell", 3)?;
        cell.serialize_field("figure", &self.figure)?;
        cell.serialize_field("expected", &self.expected.to_string())?;
        cell.serialize_field("verdict", &self.verdict())?;
        cell.end()
    }
}

/// One line: the naive way beside Tidegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The naive way's figure, where there is a naive way.
    pub naive: Option<Cell>,
    /// Tidegate's.
    pub tidegate: Option<Cell>,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), naive: None, tidegate: None }
    }

    #[must_use]
    pub(crate) fn naive(mut self, figure: impl Into<Figure>, expected: Expectation) -> Self {
        self.naive = Some(Cell { figure: figure.into(), expected });
        self
    }

    #[must_use]
    pub(crate) fn tidegate(mut self, figure: impl Into<Figure>, expected: Expectation) -> Self {
        self.tidegate = Some(Cell { figure: figure.into(), expected });
        self
    }

    /// Whether nothing in it fails.
    pub fn holds(&self) -> bool {
        [&self.naive, &self.tidegate].into_iter().flatten().all(|cell| cell.verdict() != Verdict::Fails)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Row", 4)?;
        row.serialize_field("what", &self.what)?;
        row.serialize_field("naive", &self.naive)?;
        row.serialize_field("tidegate", &self.tidegate)?;
        row.serialize_field("holds", &self.holds())?;
        row.end()
    }
}

/// What one run of an experiment found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Which experiment.
    pub id: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What it was run with.
    pub parameters: BTreeMap<&'static str, String>,
    /// Its figures.
    pub rows: Vec<Row>,
    /// What must be known to read them.
    pub notes: Vec<String>,
}

impl Report {
    /// The experiment's own part; [`crate::Experiment::run`] adds the rest.
    pub(crate) fn of(rows: Vec<Row>) -> Self {
        Self { rows, ..Self::default() }
    }

    #[must_use]
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Whether every expectation held.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(Row::holds)
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("Report", 6)?;
        report.serialize_field("id", self.id)?;
        report.serialize_field("about", self.about)?;
        report.serialize_field("parameters", &self.parameters)?;
        report.serialize_field("rows", &self.rows)?;
        report.serialize_field("notes", &self.notes)?;
        report.serialize_field("holds", &self.holds())?;
        report.end()
    }
}

/// A table.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |cell: &Option<Cell>| cell.as_ref().map_or("–".to_owned(), Cell::to_string);
        let lines: Vec<(&str, String, String, bool)> = self
            .rows
            .iter()
            .map(|row| (row.what.as_str(), text(&row.naive), text(&row.tidegate), row.holds()))
            .collect();
        let width = |of: fn(&(&str, String, String, bool)) -> usize, head: &str| {
            lines.iter().map(of).max().unwrap_or(0).max(head.len())
        };
        let what = width(|line| line.0.chars().count(), "");
        let naive = width(|line| line.1.chars().count(), "naive");
        let tidegate = width(|line| line.2.chars().count(), "Tidegate");
        writeln!(f, "{}: {}", self.id, self.about)?;
        if !self.parameters.is_empty() {
            let set: Vec<String> =
                self.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            writeln!(f, "  with {}", set.join(" "))?;
        }
        writeln!(f, "  {:what$}  {:naive$}  Tidegate", "", "naive")?;
        for line in &lines {
            let end = if line.3 { "ok" } else { "FAILED" };
            writeln!(f, "  {:what$}  {:naive$}  {:tidegate$}  {end}", line.0, line.1, line.2)?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
