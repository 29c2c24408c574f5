//! One text for each algorithm, in two shapes.
//!
//! An algorithm is written once, as steps that read and write the fields of its limit `s`. For any number of
//! limits each step becomes a function of that table. For one limit, which nearly all requests ask, the steps
//! follow each other in a straight line and the fields become local variables, which costs Redis half the
//! time. There the rare states (numbers that changed, a clock set back, products past 2^53) are left
//! to the functions, which follow in the same script: a line that calls `rare_...` becomes a mark.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::shared::Kind;

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/limits/lua/", $name, ".lua"))
    };
}
pub(super) use lua;

/// An algorithm's steps, and what they call.
pub(super) struct Algorithm {
    kind: Kind,
    /// Its sections, each behind a line `--@NAME`; with none, it is a table of functions.
    steps: &'static str,
    /// Functions for its rare states.
    rare: &'static str,
    /// Sections that it shares with others.
    shared: &'static str,
}

/// What each step is given beside the limit.
const STEPS: [(&str, &str); 5] =
    [("load", "s"), ("show", "s, out"), ("test", "s, cost"), ("take", "s, cost"), ("save", "s")];

impl Algorithm {
    /// The one that counts in this way.
    pub(super) const fn of(kind: Kind) -> Self {
        let (steps, rare, shared) = match kind {
            Kind::TokenBucket => (lua!("token_bucket"), lua!("token_bucket_rare"), lua!("bucket")),
            Kind::LeakyBucket => (lua!("leaky_bucket"), lua!("leaky_bucket_rare"), lua!("bucket")),
            Kind::FixedWindow => (lua!("fixed_window"), lua!("fixed_window_rare"), ""),
            Kind::SlidingWindow => (lua!("sliding_window"), lua!("sliding_window_rare"), ""),
            // Their time goes into the commands on their lists and sets; they have the one shape only.
            Kind::SlidingLog => (lua!("sliding_log"), "", ""),
            Kind::Concurrency => (lua!("concurrency"), "", ""),
        };
        Self { kind, steps, rare, shared }
    }

    /// Its steps as functions in the table `M`.
    pub(super) fn as_functions(&self) -> String {
        if self.section("load").is_empty() {
            return self.steps.to_owned();
        }
        let mut text = self.rare.to_owned();
        // Writing to a string does not fail.
        let _ = writeln!(text, "M.{} = {{", self.kind.letter());
        for (step, arguments) in STEPS {
            let (before, after) = if step == "test" { ("local fits\n", "return fits\n") } else { ("", "") };
            let body = self.section(step);
            let _ = writeln!(text, "{step} = function({arguments})\n{before}{body}{after}end,");
        }
        text.push_str("}\n");
        text
    }

    /// Its usual state with one limit; nothing for an algorithm without that shape.
    pub(super) fn in_a_straight_line(&self) -> String {
        if self.section("load").is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for line in lua!("one").lines() {
            if let Some(step) = line.trim_start().strip_prefix("--@") {
                text.push_str(&self.section(step));
            } else {
                text.push_str(line);
                text.push('\n');
            }
        }
        let mut fields = BTreeSet::new();
        let mut straight = String::new();
        for line in text.lines() {
            let line = if line.trim_start().starts_with("rare_") { "rare = true" } else { line };
            localise(line, &mut straight, &mut fields);
            straight.push('\n');
        }
        let fields: Vec<String> = fields.into_iter().map(|field| format!("s_{field}")).collect();
        format!("do\nlocal rare, {}\n{straight}end\n", fields.join(", "))
    }

    /// One section, with those that it includes; empty when there is none.
    fn section(&self, name: &str) -> String {
        let mut text = String::new();
        let mut inside = false;
        for line in self.steps.lines().chain(self.shared.lines()) {
            if let Some(begins) = line.strip_prefix("--@") {
                inside = begins == name;
            } else if let Some(included) = line.trim_start().strip_prefix("--@").filter(|_| inside) {
                text.push_str(&self.section(included));
            } else if inside {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

/// Writes `s.field` as `s_field`, and notes the fields.
fn localise(line: &str, text: &mut String, fields: &mut BTreeSet<String>) {
    let mut rest = line;
    while let Some(at) = rest.find("s.") {
        let (before, after) = rest.split_at(at);
        text.push_str(before);
        let after = &after[2..];
        let within_a_word = text.chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        let length = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
        let (field, left) = after.split_at(length);
        if within_a_word || field.is_empty() {
            text.push_str("s.");
            rest = after;
        } else {
            text.push_str("s_");
            text.push_str(field);
            fields.insert(field.to_owned());
            rest = left;
        }
    }
    text.push_str(rest);
}

#[cfg(test)]
mod tests;
