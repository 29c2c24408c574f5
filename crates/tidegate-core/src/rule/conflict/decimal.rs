//! Exact decimal numbers of any length, so that no threshold is rounded before it is compared.

use std::cmp::Ordering;

/// Longest text that counts as a number. Longer text is left to whoever evaluates it.
const MAX_BYTES: usize = 1024;
/// Largest exponent, either way; the same holds.
const MAX_EXPONENT: i64 = 1_000_000_000;

/// A decimal number in normal form: ±0.DIGITS × 10^exponent, the digits without leading and
/// trailing zeros. Equal numbers are equal values, however they were written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Decimal {
    negative: bool,
    digits: Box<[u8]>,
    exponent: i64,
}

impl Decimal {
    /// Reads `-1.50e3`, `+5`, `.5`, `0123`; `None` for anything else, and for what is
    /// out of bounds.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, scale) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, scale)) => (mantissa, parse_exponent(scale)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.len() + fraction.len() == 0 {
            return None;
        }
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let Some(first) = digits.iter().position(|digit| *digit != b'0') else {
            return Some(Self { negative: false, digits: Box::default(), exponent: 0 });
        };
        let last = digits.iter().rposition(|digit| *digit != b'0')?;
        let point = i64::try_from(whole.len()).ok()?.checked_sub(i64::try_from(first).ok()?)?;
        Some(Self { negative, digits: digits[first..=last].into(), exponent: point.checked_add(scale)? })
    }

    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Both start with a digit above 0, so the exponent decides before the digits do.
            (false, false) => self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&other.digits)),
        }
    }
}

fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|exponent| (-MAX_EXPONENT..=MAX_EXPONENT).contains(exponent))
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.cmp_magnitude(other),
            (true, true) => other.cmp_magnitude(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
