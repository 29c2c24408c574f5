//! What condition values mean: regular expressions, version ranges, networks, times, numbers. What is
//! accepted at load is what evaluation can use.

use ipnet::IpNet;
use regex::{Regex, RegexBuilder};
use semver::VersionReq;

/// Largest compiled regular expression, in bytes.
pub const MAX_REGEX_BYTES: usize = 1 << 20;
/// Most regular expressions of a rule set: each is compiled and kept.
pub const MAX_REGEXES: usize = 1000;
/// Longest exponent and longest text of a number in a condition: comparing stays cheap.
const MAX_NUMBER_LENGTH: usize = 64;

/// Why a value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {help}")]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// A way to mend it.
    pub help: String,
}

fn problem<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { message: message.into(), help: help.into() })
}

/// A regular expression, unanchored, compiled to at most [`MAX_REGEX_BYTES`].
pub fn regex(text: &str) -> Result<Regex, Problem> {
    match RegexBuilder::new(text).size_limit(MAX_REGEX_BYTES).build() {
        Ok(regex) => Ok(regex),
        Err(regex::Error::CompiledTooBig(_)) => problem(
            format!("this expression compiles to more than {MAX_REGEX_BYTES} bytes"),
            "use smaller repetitions",
        ),
        Err(error) => {
            // The last line of the error says what is wrong, those above draw a caret.
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            problem(format!("not a regular expression: {last}"), "mend it, or escape the character with \\")
        }
    }
}

/// Whether [`regex`] accepts the text.
pub(super) fn check_regex(text: &str) -> Result<(), Problem> {
    regex(text).map(|_| ())
}

/// A range of versions: comparators separated by blanks or commas, all of which must hold.
pub fn semver_range(text: &str) -> Result<VersionReq, Problem> {
    let mut comparators: Vec<String> = Vec::new();
    let mut open = false;
    for token in text.split([' ', '\t', ',']).filter(|token| !token.is_empty()) {
        match comparators.last_mut() {
            Some(last) if open => last.push_str(token),
            _ => comparators.push(token.to_owned()),
        }
        open = token.bytes().all(|byte| b"<>=^~".contains(&byte));
    }
    match VersionReq::parse(&comparators.join(", ")) {
        Ok(range) if !comparators.is_empty() => Ok(range),
        Ok(_) => problem("not a range of versions", "write \">=1.2 <2\""),
        Err(error) => problem(format!("not a range of versions: {error}"), "write \">=1.2 <2\""),
    }
}

/// A network, such as `10.0.0.0/8`.
pub fn network(text: &str) -> Result<IpNet, Problem> {
    match text.parse::<IpNet>() {
        Ok(network) => Ok(network),
        Err(_) => match text.parse::<std::net::IpAddr>() {
            Ok(address) => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                problem("not a network: the prefix length is missing", format!("write {address}/{bits}"))
            }
            Err(_) => {
                problem("not a network", "write an address and a prefix length: 10.0.0.0/8, 2001:db8::/32")
            }
        },
    }
}

/// RFC 3339 section 5.6: a date, a time and an offset.
pub fn rfc3339(text: &str) -> Result<jiff::Timestamp, Problem> {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let well_formed = shape
        .strip_prefix("0000-00-00")
        .and_then(|rest| rest.strip_prefix(['T', 't', ' ']))
        .and_then(|rest| rest.strip_prefix("00:00:00"));
    let offset = well_formed.map(|rest| match rest.strip_prefix('.') {
        Some(fraction) if fraction.starts_with('0') => fraction.trim_start_matches('0'),
        _ => rest,
    });
    let found = match offset {
        Some("Z" | "z" | "+00:00" | "-00:00") => text.parse::<jiff::Timestamp>().ok(),
        _ => None,
    };
    match found {
        Some(time) => Ok(time),
        None => problem("not a time of RFC 3339", "write a date, a time and an offset: 2026-01-31T12:00:00Z"),
    }
}

/// A decimal number of at most 64 characters, without an exponent.
pub(super) fn check_number(text: &str) -> Result<(), Problem> {
    if text.len() > MAX_NUMBER_LENGTH {
        return problem(format!("longer than {MAX_NUMBER_LENGTH} characters"), "round it");
    }
    if text.contains(['e', 'E']) {
        return problem("numbers in conditions have no exponent", "write all digits");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
