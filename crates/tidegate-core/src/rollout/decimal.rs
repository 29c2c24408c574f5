//! Decimal numbers compared exactly, from their text and never through a float.

use std::cmp::Ordering;
use std::fmt;

/// Longest text that is read as a number, in bytes. Longer text is not a number.
pub const MAX_DECIMAL_BYTES: usize = 1024;

/// Largest exponent, either way, that is read. A number with a larger one is not a number.
pub const MAX_EXPONENT: i64 = 1_000_000_000;

/// A decimal number that borrows its digits from text.
///
/// Read is `[+-] digits [. digits] [e [+-] digits]` with at least one digit before the exponent: every
/// number of JSON, and every decimal of YAML's core schema. Leading zeros count for nothing, `-0` is 0,
/// and no infinity or NaN exists. Numbers are equal when their values are: `1`, `1.0` and `10e-1` are one.
#[derive(Clone, Copy)]
pub struct Decimal<'a> {
    negative: bool,
    /// The power of ten of the first digit that is not 0; 0 for zero itself.
    magnitude: i64,
    /// From the first digit that is not 0 to the last one, perhaps with the point inside; empty for zero.
    digits: &'a str,
}

impl<'a> Decimal<'a> {
    /// The number that `text` is, wholly; `None` when it is none or exceeds the bounds of this module.
    pub fn parse(text: &'a str) -> Option<Self> {
        if text.len() > MAX_DECIMAL_BYTES {
            return None;
        }
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], exponent(&unsigned[at + 1..])?),
            None => (unsigned, 0),
        };
        let mut point = None;
        let mut first = None;
        let mut last = 0;
        let mut any = false;
        for (at, byte) in mantissa.bytes().enumerate() {
            match byte {
                b'.' if point.is_none() => point = Some(at),
                b'0' => any = true,
                b'1'..=b'9' => {
                    any = true;
                    first = first.or(Some(at));
                    last = at;
                }
                _ => return None,
            }
        }
        if !any {
            return None;
        }
        let Some(first) = first else {
            return Some(Self { negative: false, magnitude: 0, digits: "" });
        };
        // Both are below MAX_DECIMAL_BYTES, so nothing here overflows.
        let (point, at) = (point.unwrap_or(mantissa.len()) as i64, first as i64);
        // The point itself is no digit, so this is not 0; before it, the last place is that of 10⁰.
        let distance = point - at;
        let place = distance - i64::from(distance.is_positive());
        Some(Self { negative, magnitude: place + exponent, digits: &mantissa[first..=last] })
    }

    /// The same number with digits of its own.
    pub fn to_owned(self) -> OwnedDecimal {
        OwnedDecimal {
            negative: self.negative,
            magnitude: self.magnitude,
            digits: self.significant().map(char::from).collect(),
        }
    }

    /// The number as an `i64`, if it is whole and fits.
    pub fn to_i64(self) -> Option<i64> {
        let count = self.significant().count() as i64;
        if count == 0 {
            return Some(0);
        }
        // An i64 has at most 19 digits; fewer places than digits leave a fraction.
        if self.magnitude > 18 || self.magnitude < count - 1 {
            return None;
        }
        let mut value: i128 = 0;
        for digit in self.significant() {
            value = value * 10 + i128::from(digit - b'0');
        }
        for _ in count - 1..self.magnitude {
            value *= 10;
        }
        i64::try_from(if self.negative { -value } else { value }).ok()
    }

    fn significant(self) -> impl Iterator<Item = u8> + 'a {
        self.digits.bytes().filter(|byte| *byte != b'.')
    }

    fn cmp_absolute(self, other: Decimal<'_>) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Both begin and end with a digit that is not 0, so a longer one of equal start is larger.
            (false, false) => {
                self.magnitude.cmp(&other.magnitude).then_with(|| self.significant().cmp(other.significant()))
            }
        }
    }

    /// How this number stands to `other`.
    pub fn compare(self, other: Decimal<'_>) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.cmp_absolute(other),
            (true, true) => other.cmp_absolute(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other).is_eq()
    }
}

impl Eq for Decimal<'_> {}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(*other)
    }
}

impl fmt::Debug for Decimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "Decimal({sign}{:?} at 10^{})", self.digits, self.magnitude)
    }
}

/// A [`Decimal`] with digits of its own, without the point: equal numbers have equal parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnedDecimal {
    negative: bool,
    magnitude: i64,
    digits: Box<str>,
}

impl OwnedDecimal {
    /// The number, borrowed.
    pub fn borrowed(&self) -> Decimal<'_> {
        Decimal { negative: self.negative, magnitude: self.magnitude, digits: &self.digits }
    }
}

fn exponent(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Leading zeros are harmless; more digits than an i64 holds exceed the bound anyway.
    let digits = digits.trim_start_matches('0');
    let value: i64 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    (value <= MAX_EXPONENT).then_some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests;
