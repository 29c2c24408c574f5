//! The grammar of numbers: counts, rates, ratios, percentages, and the bounds of each.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::diagnostic::quoted;
use crate::document::quantity::{self, NotDuration, parse_duration};
use crate::document::scalar::{Scalar, wrong_type};
use crate::document::{List, Node, Report, fields, scalar};
pub use crate::limit::MAX_COUNT;
use crate::limit::{self, MAX_PERIOD};
use crate::rule::model::{Percentage, Rate, Resources};

/// Longest window, period, lease or retention: 366 days, the longest that limits count.
pub const MAX_SPAN: Duration = MAX_PERIOD;
/// Shortest window, lease or wait.
pub const MIN_SPAN: Duration = Duration::from_millis(1);
/// Shortest period of a rate, and shortest threshold for "slow".
pub const MIN_PERIOD: Duration = Duration::from_micros(1);
/// Longest time in which a bucket may fill from empty, or a full queue may drain: 100 years.
pub const MAX_FILL: Duration = Duration::from_hours(100 * 365 * 24);

/// Most parts of a key, scope or fingerprint: each is looked up for each call.
pub const MAX_PARTS: usize = 32;

/// From [`MIN_SPAN`] to [`MAX_SPAN`].
pub(super) const SPANS: RangeInclusive<Duration> = MIN_SPAN..=MAX_SPAN;

/// A count from 1.
pub(super) fn count(node: &Node, report: &mut Report) -> Option<u64> {
    scalar::integer(node, 1..=MAX_COUNT, report)
}

/// A window, lease, retention or wait.
pub(super) fn span(node: &Node, report: &mut Report) -> Option<Duration> {
    quantity::duration(node, SPANS, report)
}

/// `N/UNIT` or `N/DURATION`.
pub(super) fn rate(node: &Node, report: &mut Report) -> Option<Rate> {
    const HELP: &str = "write a count, a slash and a unit or duration: 10/s, 5/10s, 1000/1h30m";
    let Some(Scalar::Text(text)) = Scalar::of(node) else {
        wrong_type(node, "a rate is expected", HELP, report);
        return None;
    };
    let Some((number, period)) = text.split_once('/') else {
        report.fault(node.span, format!("{} is not a rate", quoted(text)), HELP);
        return None;
    };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let unit = matches!(period, "us" | "ms" | "s" | "m" | "h" | "d");
    let per = if unit { parse_duration(&format!("1{period}")) } else { parse_duration(period) };
    if !digits || matches!(per, Err(NotDuration::Grammar | NotDuration::Bare)) {
        report.fault(node.span, format!("{} is not a rate", quoted(text)), HELP);
        return None;
    }
    let count = number.parse().ok().filter(|count| (1..=MAX_COUNT).contains(count));
    if count.is_none() {
        report.fault(
            node.span,
            format!("the count of {} is outside 1 to {MAX_COUNT}", quoted(text)),
            "choose a count in this range",
        );
    }
    let per = per.ok().filter(|per| (MIN_PERIOD..=MAX_SPAN).contains(per));
    if per.is_none() {
        report.fault(
            node.span,
            format!(
                "the period of {} is outside {} to {}",
                quoted(text),
                quantity::show(MIN_PERIOD),
                quantity::show(MAX_SPAN)
            ),
            "choose a period in this range",
        );
    }
    let rate = Rate { count: count?, per: per? };
    match limit::check_rate("the rate", rate) {
        Ok(()) => Some(rate),
        Err(error) => {
            report.fault(node.span, error.problem(), error.help());
            None
        }
    }
}

/// Why digits are no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotFixed {
    Grammar,
    TooFine,
    TooLarge,
}

/// `text`, which is `digits` or `digits.digits`, times 10^`places`, exactly; at most 10000.
fn fixed(text: &str, places: usize) -> Result<u16, NotFixed> {
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return Err(NotFixed::Grammar),
        Some(parts) => parts,
        None => (text, ""),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return Err(NotFixed::Grammar);
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > places {
        return Err(NotFixed::TooFine);
    }
    let scaled = format!("{whole}{fraction:0<places$}");
    scaled.parse().ok().filter(|value| *value <= 10_000).ok_or(NotFixed::TooLarge)
}

/// A percentage from 0 to 100 in steps of 0.01, a bare number.
pub(super) fn percentage(node: &Node, report: &mut Report) -> Option<Percentage> {
    let text = match Scalar::of(node) {
        Some(Scalar::Number(text)) => text,
        Some(Scalar::Text(text)) => {
            let number = text.strip_suffix('%').unwrap_or(text);
            let help = if scalar::is_decimal(number) {
                format!("write {number} without quotes and without a % sign")
            } else {
                "write a number from 0 to 100, such as 10 or 0.25".to_owned()
            };
            wrong_type(node, "a percentage is expected", help, report);
            return None;
        }
        _ => {
            wrong_type(
                node,
                "a percentage is expected",
                "write a number from 0 to 100, such as 10 or 0.25",
                report,
            );
            return None;
        }
    };
    share(node, text, 2, report)
}

/// A share: `50%` or `0.5`.
pub(super) fn ratio(node: &Node, report: &mut Report) -> Option<Percentage> {
    let Some(Scalar::Text(text) | Scalar::Number(text)) = Scalar::of(node) else {
        wrong_type(node, "a ratio is expected", "write 50% or 0.5", report);
        return None;
    };
    let found = match text.strip_suffix('%') {
        Some(percent) => share(node, percent, 2, report)?,
        None if text.contains('.') => share(node, text, 4, report)?,
        None => {
            let message = format!("{} is not a ratio: it could mean a share or a percentage", quoted(text));
            let help = match text {
                "1" | "100" => "write 100% or 1.0".to_owned(),
                text if fixed(text, 2).is_ok() => format!("write {text}%, or a fraction such as 0.5"),
                _ => "write 50% or 0.5".to_owned(),
            };
            report.fault(node.span, message, help);
            return None;
        }
    };
    if found.hundredths() == 0 {
        report.fault(node.span, "a ratio of zero would always trip", "write at least 0.01%");
        return None;
    }
    Some(found)
}

fn share(node: &Node, text: &str, places: usize, report: &mut Report) -> Option<Percentage> {
    let (range, step, example) =
        if places == 2 { ("0 to 100", "0.01", "10 or 0.25") } else { ("0 to 1", "0.0001", "0.5 or 50%") };
    let (message, help) = match fixed(text, places) {
        Ok(hundredths) => return Percentage::from_hundredths(hundredths),
        Err(NotFixed::TooFine) => {
            (format!("{} is finer than {step}", quoted(text)), format!("round it to a multiple of {step}"))
        }
        Err(NotFixed::TooLarge) => {
            (format!("{} is outside {range}", quoted(text)), format!("write a number from {range}"))
        }
        Err(NotFixed::Grammar) if text.starts_with('-') && scalar::is_decimal(text) => {
            (format!("{} is outside {range}", quoted(text)), format!("write a number from {range}"))
        }
        Err(NotFixed::Grammar) => (
            format!("{} is not a plain decimal number", quoted(text)),
            format!("write digits and a point, such as {example}"),
        ),
    };
    report.fault(node.span, message, help);
    None
}

/// What a rule covers, with the place of each name.
#[derive(Debug)]
pub(in crate::rule) enum Covered {
    /// `"*"`.
    All,
    /// A list of ids.
    Listed(List<String>),
}

impl Covered {
    /// As the model has it; `None` when an element could not be read.
    pub(in crate::rule) fn build(self) -> Option<Resources> {
        match self {
            Self::All => Some(Resources::All),
            Self::Listed(ids) => ids.into_values().map(Resources::Listed),
        }
    }
}

/// `"*"` or a list of resource ids.
pub(super) fn covered(node: &Node, report: &mut Report) -> Option<Covered> {
    if let Some(Scalar::Text(text)) = Scalar::of(node) {
        if text == "*" {
            return Some(Covered::All);
        }
        let message = format!("a list of resources or \"*\" is expected, not the text {}", quoted(text));
        report.fault(node.span, message, format!("write [{text}]"));
        return None;
    }
    let help = "name at least one resource, or write \"*\" for all";
    let listed = fields::non_empty_list(node, report, help, |node, report| {
        if Scalar::of(node) == Some(Scalar::Text("*")) {
            report.fault(node.span, "`*` stands alone, not in a list", "write `resources: \"*\"`");
            return None;
        }
        scalar::text(node, report).map(str::to_owned)
    })?;
    fields::reject_repeats(&listed, ToString::to_string, report);
    fields::at_most(listed, super::MAX_RULES, report).map(Covered::Listed)
}

#[cfg(test)]
mod tests;
