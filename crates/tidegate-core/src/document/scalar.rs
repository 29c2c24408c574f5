//! Scalars by YAML 1.2's core schema, with two departures: booleans are only `true` and `false`, and
//! numbers are only decimal.

use std::ops::RangeInclusive;

use super::diagnostic::quoted;
use super::report::Report;
use super::tree::{Kind, Node};

/// What a scalar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar<'n> {
    /// `null`, `Null`, `NULL`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A decimal number, as written.
    Number(&'n str),
    /// Text: quoted, or plain and nothing else.
    Text(&'n str),
}

impl<'n> Scalar<'n> {
    /// The scalar that `node` is; `None` for a list or mapping.
    pub fn of(node: &'n Node) -> Option<Self> {
        let Kind::Scalar { text, plain } = &*node.kind else { return None };
        Some(match text.as_str() {
            text if !plain => Self::Text(text),
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "true" => Self::Bool(true),
            "false" => Self::Bool(false),
            text if is_decimal(text) => Self::Number(text),
            text => Self::Text(text),
        })
    }
}

/// Whether this is a decimal integer or fraction of the core schema:
/// `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`.
pub fn is_decimal(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
        && digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
}

/// Whether the node is null.
pub fn is_null(node: &Node) -> bool {
    Scalar::of(node) == Some(Scalar::Null)
}

/// What a node is, for messages.
pub fn describe(node: &Node) -> String {
    match (&*node.kind, Scalar::of(node)) {
        (Kind::Sequence(_), _) => "a list".to_owned(),
        (Kind::Mapping(_), _) => "a mapping".to_owned(),
        (_, Some(Scalar::Null)) => "null".to_owned(),
        (_, Some(Scalar::Bool(value))) => format!("the boolean `{value}`"),
        (_, Some(Scalar::Number(text))) => format!("the number {}", quoted(text)),
        (_, Some(Scalar::Text(text))) => format!("the text {}", quoted(text)),
        (_, None) => "an invalid value".to_owned(),
    }
}

/// Reports that `node` is not what `expected` says, unless it was reported already.
pub fn wrong_type(node: &Node, expected: &str, help: impl Into<String>, report: &mut Report) {
    if !node.is_invalid() {
        report.fault(node.span, format!("{expected}, not {}", describe(node)), help);
    }
}

/// Text: quoted, or plain and neither null, boolean nor number.
pub fn text<'n>(node: &'n Node, report: &mut Report) -> Option<&'n str> {
    match Scalar::of(node) {
        Some(Scalar::Text(text)) => Some(text),
        Some(Scalar::Bool(_) | Scalar::Number(_)) => {
            let Kind::Scalar { text, .. } = &*node.kind else { return None };
            wrong_type(node, "text is expected", format!("quote it: \"{text}\""), report);
            None
        }
        _ => {
            wrong_type(node, "text is expected", "write one text here", report);
            None
        }
    }
}

/// Free text of at most 4096 bytes.
pub fn free_text(node: &Node, report: &mut Report) -> Option<String> {
    const MOST: usize = 4096;
    let text = text(node, report)?;
    if text.len() > MOST {
        report.fault(
            node.span,
            format!("this text has {} bytes, and {MOST} are the most", text.len()),
            "shorten it",
        );
        return None;
    }
    Some(text.to_owned())
}

/// `true` or `false`.
pub fn boolean(node: &Node, report: &mut Report) -> Option<bool> {
    if let Some(Scalar::Bool(value)) = Scalar::of(node) {
        Some(value)
    } else {
        let help = "write true or false without quotes; YAML 1.2 has no other booleans";
        wrong_type(node, "a boolean is expected", help, report);
        None
    }
}

/// One of some words.
pub fn choice<T: Copy>(node: &Node, words: &[(&'static str, T)], report: &mut Report) -> Option<T> {
    let known = || words.iter().map(|(word, _)| *word);
    let list = known().collect::<Vec<_>>().join(", ");
    let Some(Scalar::Text(text)) = Scalar::of(node) else {
        wrong_type(node, &format!("one of {list} is expected"), format!("write one of {list}"), report);
        return None;
    };
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Some(*value);
    }
    let help = match report.nearest(text, known()) {
        Some(near) => format!("did you mean `{near}`? Known: {list}"),
        None => format!("write one of {list}"),
    };
    report.fault(node.span, format!("{} is not known here", quoted(text)), help);
    None
}

/// A decimal integer in `range`, written with digits only.
pub fn integer(node: &Node, range: RangeInclusive<u64>, report: &mut Report) -> Option<u64> {
    let (low, high) = (*range.start(), *range.end());
    let help = format!("write a whole number from {low} to {high}");
    let number = match Scalar::of(node) {
        Some(Scalar::Number(number)) => number,
        Some(Scalar::Text(text)) if is_radix(text) => {
            report.fault(
                node.span,
                format!("{} is not decimal", quoted(text)),
                "write the number in decimal",
            );
            return None;
        }
        Some(Scalar::Text(text)) if is_quoted_number(text) => {
            report.fault(
                node.span,
                format!("a number is expected, not the text {}", quoted(text)),
                "remove the quotes",
            );
            return None;
        }
        _ => {
            wrong_type(node, "a whole number is expected", help, report);
            return None;
        }
    };
    match whole(number) {
        Ok(value) if range.contains(&value) => Some(value),
        Ok(_) | Err(NotWhole::Overflow) => {
            report.fault(node.span, format!("{} is outside {low} to {high}", quoted(number)), help);
            None
        }
        Err(NotWhole::Zeros(plain)) => {
            let message = format!("{} has leading zeros, which some readers take for octal", quoted(number));
            report.fault(node.span, message, format!("write {plain}"));
            None
        }
        Err(NotWhole::Other) if number.starts_with('-') => {
            report.fault(node.span, format!("{} is outside {low} to {high}", quoted(number)), help);
            None
        }
        Err(NotWhole::Other) => {
            report.fault(node.span, format!("{} is not a whole number in digits", quoted(number)), help);
            None
        }
    }
}

/// A decimal integer that may be negative.
pub fn signed(node: &Node, range: RangeInclusive<i64>, report: &mut Report) -> Option<i64> {
    let (low, high) = (*range.start(), *range.end());
    let value = match Scalar::of(node) {
        Some(Scalar::Number(number)) => {
            let (digits, negative) = match number.strip_prefix('-') {
                Some(digits) => (digits, true),
                None => (number, false),
            };
            let value = whole(digits).ok().and_then(|value| i64::try_from(value).ok());
            value.map(|value| if negative { -value } else { value })
        }
        _ => None,
    };
    let found = value.filter(|value| range.contains(value));
    if found.is_none() {
        let help = "write digits without leading zeros, with a minus sign before them if need be";
        wrong_type(node, &format!("a whole number from {low} to {high} is expected"), help, report);
    }
    found
}

/// Why digits are no integer.
enum NotWhole {
    /// Larger than `u64::MAX`.
    Overflow,
    /// Leading zeros; without them it is this.
    Zeros(String),
    /// A sign, a fraction or an exponent.
    Other,
}

fn whole(text: &str) -> Result<u64, NotWhole> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotWhole::Other);
    }
    if text.len() > 1 && text.starts_with('0') {
        let plain = text.trim_start_matches('0');
        return Err(NotWhole::Zeros(if plain.is_empty() { "0".to_owned() } else { plain.to_owned() }));
    }
    text.parse().map_err(|_| NotWhole::Overflow)
}

/// `0x1F`, `0o17`, `0b1`.
fn is_radix(text: &str) -> bool {
    text.strip_prefix('0')
        .and_then(|rest| rest.strip_prefix(['x', 'o', 'b', 'X', 'O', 'B']))
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_quoted_number(text: &str) -> bool {
    is_decimal(text)
}

/// Any value as JSON. Numbers keep their spelling.
pub fn json(node: &Node, report: &mut Report) -> Option<serde_json::Value> {
    use serde_json::Value;
    match &*node.kind {
        Kind::Invalid => None,
        Kind::Sequence(items) => {
            let items: Vec<Option<Value>> = items.iter().map(|item| json(item, report)).collect();
            items.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
        }
        Kind::Mapping(entries) => {
            let entries: Vec<Option<(String, Value)>> = entries
                .iter()
                .map(|entry| json(&entry.value, report).map(|value| (entry.key.clone(), value)))
                .collect();
            entries.into_iter().collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
        }
        Kind::Scalar { plain, .. } => match Scalar::of(node)? {
            Scalar::Null => Some(Value::Null),
            Scalar::Bool(value) => Some(Value::Bool(value)),
            Scalar::Text(text) if *plain && is_ambiguous(text) => {
                let message = format!("{} is read differently by different YAML readers", quoted(text));
                report.fault(
                    node.span,
                    message,
                    "quote it if it is text; booleans are true and false, numbers are decimal",
                );
                None
            }
            Scalar::Text(text) => Some(Value::String(text.to_owned())),
            Scalar::Number(number) => {
                let value = serde_json::from_str::<serde_json::Number>(number).ok();
                if value.is_none() {
                    let message = format!("{} is not a JSON number", quoted(number));
                    report.fault(
                        node.span,
                        message,
                        "write it as JSON does: 123, -0.5, 1e3; or quote it if it is text",
                    );
                }
                value.map(Value::Number)
            }
        },
    }
}

/// Plain words that YAML 1.2's core schema takes for a boolean or a number, and this reader for text.
pub fn is_ambiguous(text: &str) -> bool {
    matches!(text, "True" | "TRUE" | "False" | "FALSE")
        || is_radix(text)
        || matches!(
            text.strip_prefix(['-', '+']).unwrap_or(text),
            ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN"
        )
}

/// A name: 1 to 128 visible ASCII characters. They travel in headers, metrics and paths.
pub fn name(node: &Node, report: &mut Report) -> Option<String> {
    const MOST: usize = 128;
    let text = text(node, report)?;
    if text.is_empty() || text.len() > MOST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        report.fault(
            node.span,
            format!("{} is not a name", quoted(text)),
            format!("use 1 to {MOST} visible ASCII characters without spaces"),
        );
        return None;
    }
    Some(text.to_owned())
}

#[cfg(test)]
mod tests;
