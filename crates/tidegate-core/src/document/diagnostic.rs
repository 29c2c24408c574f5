//! What is wrong, where, and how to mend it.

use std::fmt;

use serde_json::json;

use super::source::{Source, Span};

/// Most characters of a source line that a snippet shows, the caret included.
const SNIPPET_WIDTH: usize = 120;
/// How many characters a snippet of a longer line shows before the caret.
const SNIPPET_LEAD: usize = 40;

/// Whether a finding stops the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The documents are refused.
    Fault,
    /// The documents are accepted, but somebody should look.
    Warning,
}

/// One finding. `Display` renders it as people read it:
///
/// ```text
/// rules.yaml:7:23: unknown field `capcity` in token_bucket
///   |
/// 7 |     token_bucket: { capcity: 20, refill: 10/s }
///   |                     ^^^^^^^
/// help: did you mean `capacity`? Known fields: capacity, refill
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Fault or warning.
    pub severity: Severity,
    /// The name of the source.
    pub source: String,
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
    /// How many characters are meant, at least 1; not more than are left in the line.
    pub length: u32,
    /// What is wrong, in one line.
    pub message: String,
    /// A way to mend it, in one line.
    pub help: String,
    /// The source line, or as much of it around the place as is worth showing.
    snippet: String,
    /// How many characters of the snippet stand before the caret.
    lead: usize,
}

impl Diagnostic {
    pub(super) fn new(
        severity: Severity,
        sources: &[Source],
        span: Span,
        message: String,
        help: String,
    ) -> Self {
        let (name, text) = sources
            .get(span.source as usize)
            .map_or(("", ""), |source| (source.name.as_str(), source.text.as_str()));
        let Snippet { text: snippet, lead, length } = Snippet::cut(text, span);
        Self {
            severity,
            source: name.to_owned(),
            line: span.line,
            column: span.column,
            length,
            message,
            help,
            snippet,
            lead,
        }
    }

    /// A finding about something that has no text: a source that could not be read, say.
    pub fn without_text(source: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        let source = Source::new(source, "");
        Self::new(Severity::Fault, &[source], Span::top(0), message.into(), help.into())
    }

    /// `{"severity", "file", "line", "column", "length", "message", "help"}`.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "severity": match self.severity { Severity::Fault => "fault", Severity::Warning => "warning" },
            "file": self.source,
            "line": self.line,
            "column": self.column,
            "length": self.length,
            "message": self.message,
            "help": self.help,
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, line, column, message, help, .. } = self;
        let kind = match self.severity {
            Severity::Fault => "",
            Severity::Warning => "warning: ",
        };
        writeln!(f, "{source}:{line}:{column}: {kind}{message}")?;
        if !self.snippet.trim().is_empty() {
            let number = line.to_string();
            let gutter = " ".repeat(number.len());
            writeln!(f, "{gutter} |")?;
            writeln!(f, "{number} | {}", self.snippet)?;
            writeln!(f, "{gutter} | {}{}", " ".repeat(self.lead), "^".repeat(self.length as usize))?;
        }
        write!(f, "help: {help}")
    }
}

/// A part of one line of a source.
struct Snippet {
    text: String,
    lead: usize,
    length: u32,
}

impl Snippet {
    /// Cuts out the line in which `span` begins. Reads only around the place, so that a document on
    /// one long line stays cheap.
    fn cut(text: &str, span: Span) -> Self {
        let start = text.floor_char_boundary(span.start as usize);
        let (head, tail) = text.split_at(start);
        let is_break = |c: &char| matches!(c, '\n' | '\r');
        let mut before: Vec<char> =
            head.chars().rev().take(SNIPPET_WIDTH).take_while(|c| !is_break(c)).collect();
        let after: Vec<char> = tail.chars().take(SNIPPET_WIDTH).take_while(|c| !is_break(c)).collect();
        before.truncate(SNIPPET_LEAD.max(SNIPPET_WIDTH.saturating_sub(after.len())));
        let room = SNIPPET_WIDTH.saturating_sub(before.len()).min(after.len());
        let end = text.floor_char_boundary(start + span.length as usize);
        let meant = text[start..end].chars().take(room).take_while(|c| !is_break(c)).count();
        let shown: String = before.iter().rev().chain(&after[..room]).map(|c| printable(*c)).collect();
        let shown = without_logins(&shown);
        Self { text: shown, lead: before.len(), length: meant.max(1) as u32 }
    }
}

/// Refused documents: nothing of them may come into force. `Display` renders every finding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    /// Every fault, in document order; never empty.
    pub faults: Vec<Diagnostic>,
    /// The warnings, in document order.
    pub warnings: Vec<Diagnostic>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.faults.iter().chain(&self.warnings);
        for (index, found) in all.enumerate() {
            write!(f, "{}{found}", if index == 0 { "" } else { "\n\n" })?;
        }
        Ok(())
    }
}

/// User and password of a URL as stars, as many as there were, so that no snippet tells them.
fn without_logins(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        let end = tail.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).unwrap_or(tail.len());
        let login = tail[..end].rfind('@').unwrap_or(0);
        shown.push_str(head);
        shown.extend(tail[..login].chars().map(|_| '*'));
        rest = &tail[login..];
    }
    shown + rest
}

/// Tabs as blanks and control characters as a mark, so that a snippet cannot steer a terminal and
/// the caret stands below its place.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Text of a document as a message shows it: in backticks, without control characters, cut to 60
/// characters.
pub fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let mut shown: String = text.chars().take(MOST).map(printable).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests;
