//! Durations and sizes.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::diagnostic::quoted;
use super::report::Report;
use super::scalar::{Scalar, is_decimal, wrong_type};
use super::tree::Node;

/// Units of a duration in nanoseconds, largest first, the order in which they may be combined.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// A duration in `range`: integers and `us|ms|s|m|h|d`, larger units first (`1h30m`).
pub fn duration(node: &Node, range: RangeInclusive<Duration>, report: &mut Report) -> Option<Duration> {
    let (low, high) = (*range.start(), *range.end());
    match Scalar::of(node) {
        Some(Scalar::Text(text)) => match parse_duration(text) {
            Ok(value) if range.contains(&value) => Some(value),
            Ok(_) | Err(NotDuration::Overflow) => {
                let message = format!("{} is outside {} to {}", quoted(text), show(low), show(high));
                report.fault(node.span, message, "choose a duration in this range");
                None
            }
            Err(NotDuration::Bare) => {
                bare(node, text, report);
                None
            }
            Err(NotDuration::Grammar) => {
                report.fault(
                    node.span,
                    format!("{} is not a duration", quoted(text)),
                    "write whole numbers with us, ms, s, m, h or d, larger units first: 250ms, 1h30m",
                );
                None
            }
        },
        Some(Scalar::Number(text)) => {
            bare(node, text, report);
            None
        }
        _ => {
            wrong_type(node, "a duration is expected", "write 250ms, 30s, 1h30m", report);
            None
        }
    }
}

fn bare(node: &Node, text: &str, report: &mut Report) {
    let example: String = text.chars().take_while(char::is_ascii_digit).take(20).collect();
    let example = if example.is_empty() { "30".to_owned() } else { example };
    report.fault(
        node.span,
        format!("{} has no unit, and a duration is never a bare number", quoted(text)),
        format!("write {example}s, {example}ms, {example}m"),
    );
}

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDuration {
    /// A number without a unit.
    Bare,
    /// Longer than can be represented.
    Overflow,
    /// Anything else.
    Grammar,
}

/// Reads a duration from its text.
pub fn parse_duration(text: &str) -> Result<Duration, NotDuration> {
    if is_decimal(text) {
        return Err(NotDuration::Bare);
    }
    let mut rest = text;
    let mut units = UNITS.as_slice();
    let mut nanos: u64 = 0;
    let mut overflow = false;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at(letters);
        let position = units.iter().position(|(name, _)| *name == unit).ok_or(NotDuration::Grammar)?;
        if number.is_empty() {
            return Err(NotDuration::Grammar);
        }
        let total = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(units[position].1))
            .and_then(|part| nanos.checked_add(part));
        overflow |= total.is_none();
        nanos = total.unwrap_or(nanos);
        units = &units[position + 1..];
        rest = after;
    }
    match (text.is_empty(), overflow) {
        (true, _) => Err(NotDuration::Grammar),
        (_, true) => Err(NotDuration::Overflow),
        _ => Ok(Duration::from_nanos(nanos)),
    }
}

/// A duration in the grammar that [`duration`] reads; what is finer than a microsecond is left off.
pub fn show(span: Duration) -> String {
    let mut nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, size) in UNITS {
        if nanos >= size {
            text.push_str(&(nanos / size).to_string());
            text.push_str(unit);
            nanos %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// A number of bytes in `range`: an integer and `B`, `KiB`, `MiB` or `GiB`.
pub fn bytes(node: &Node, range: RangeInclusive<u64>, report: &mut Report) -> Option<u64> {
    let (low, high) = (*range.start(), *range.end());
    let Some(Scalar::Text(text) | Scalar::Number(text)) = Scalar::of(node) else {
        wrong_type(node, "a number of bytes is expected", "write 64KiB, 1MiB", report);
        return None;
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: Option<u64> = match unit {
        "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let (Some(factor), false) = (factor, number.is_empty()) else {
        report.fault(
            node.span,
            format!("{} is not a number of bytes", quoted(text)),
            "write a whole number and B, KiB, MiB or GiB: 512B, 64KiB, 1MiB",
        );
        return None;
    };
    let value = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    let found = value.filter(|value| range.contains(value));
    if found.is_none() {
        report.fault(
            node.span,
            format!("{} is outside {low} to {high} bytes", quoted(text)),
            "choose a size in this range",
        );
    }
    found
}

#[cfg(test)]
mod tests;
