//! The one normal form of a request's path: rules match it, and the upstream gets it.
//!
//! If a gateway matched one spelling and sent another, a rule could be walked around. So a path is
//! normalised once, before anything looks at it, and what is left ambiguous is refused:
//!
//! - dot segments are removed (RFC 3986 §5.2.4; `..` above the root stays at the root), `%2e` counting as
//!   a dot; several slashes become one first;
//! - escapes of unreserved characters are decoded, the others kept with upper-case digits (§6.2.2);
//! - characters that a path may not hold, and everything outside ASCII, are encoded;
//! - an encoded slash is refused unless allowed, and so is a backslash, encoded or not: some servers take
//!   both for a slash. Allowed, they stay encoded;
//! - control characters, also encoded, broken escapes, and `.` or `..` with parameters (`/..;x/`, a dot
//!   segment to some servers) are refused.
//!
//! Path parameters of other segments (`/a;v=1`), empty queries and case are left alone. A slash at the
//! end is kept: `/a` and `/a/` are two paths.

use std::borrow::Cow;

use super::percent;

/// Longest path that is normalised, in bytes; what an HTTP request line may hold.
pub const MAX_PATH_BYTES: usize = 65_534;

/// What happens to `%2F`, `%5C` and `\`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlash {
    /// The path is refused.
    #[default]
    Refuse,
    /// They are kept, encoded, and are no separators.
    Keep,
}

/// Why a path is refused: 400 `path-invalid`. Places are bytes from the start of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It starts with something else than `/`.
    #[error("the path does not start with `/`")]
    NotAbsolute,
    /// Longer than [`MAX_PATH_BYTES`].
    #[error("the path is longer than {MAX_PATH_BYTES} bytes")]
    TooLong,
    /// A `%` without two hexadecimal digits.
    #[error("byte {at} of the path is a `%` without two hexadecimal digits; send `%25` for a percent sign")]
    BrokenEscape {
        /// Where.
        at: usize,
    },
    /// A control character, encoded or not.
    #[error("byte {at} of the path is a control character")]
    Control {
        /// Where.
        at: usize,
    },
    /// An encoded slash, or a backslash.
    #[error("byte {at} of the path is an encoded slash or a backslash, which is not allowed here")]
    EncodedSlash {
        /// Where.
        at: usize,
    },
    /// `.` or `..` with path parameters.
    #[error("the segment that ends before byte {at} of the path is a dot segment with parameters")]
    DotWithParameters {
        /// Where it ends.
        at: usize,
    },
}

/// The normal form of `path`, which is a request's path without its query.
///
/// Empty becomes `/`; the `*` of `OPTIONS *` stays. Normalising twice changes nothing more. Borrowed when
/// nothing changes, which one scan finds out.
pub fn normalise(path: &str, encoded_slash: EncodedSlash) -> Result<Cow<'_, str>, PathError> {
    if path.len() > MAX_PATH_BYTES {
        return Err(PathError::TooLong);
    }
    if is_normal(path.as_bytes(), encoded_slash) || path == "*" {
        return Ok(Cow::Borrowed(path));
    }
    if path.is_empty() {
        return Ok(Cow::Borrowed("/"));
    }
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    rewrite(path.as_bytes(), encoded_slash).map(Cow::Owned)
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// What a segment may hold as it is: unreserved characters, sub-delimiters, `:` and `@` (§3.3).
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let bytes = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@";
    let mut at = 0;
    while at < bytes.len() {
        plain[bytes[at] as usize] = true;
        at += 1;
    }
    plain
};

/// What stands at the start of a segment.
#[derive(PartialEq)]
enum Start {
    Other,
    /// `.` or `..`, up to the end of the segment.
    Dots(usize),
    /// The same up to a `;`.
    DotsWithParameters,
}

fn start(segment: &[u8]) -> Start {
    let dots = segment.iter().take_while(|byte| **byte == b'.').count();
    match (dots, segment.get(dots)) {
        (1 | 2, None | Some(b'/')) => Start::Dots(dots),
        (1 | 2, Some(b';')) => Start::DotsWithParameters,
        _ => Start::Other,
    }
}

/// Whether `path` is its own normal form. One pass, no memory.
fn is_normal(path: &[u8], encoded_slash: EncodedSlash) -> bool {
    if path.first() != Some(&b'/') {
        return false;
    }
    let mut at = 0;
    while let Some(byte) = path.get(at) {
        match byte {
            b'/' => {
                let rest = &path[at + 1..];
                if rest.first() == Some(&b'/') || start(rest) != Start::Other {
                    return false;
                }
                at += 1;
            }
            b'%' => {
                let upper = !path[at..].iter().take(3).any(u8::is_ascii_lowercase);
                let kept = match percent::escape(&path[at..]) {
                    Some(b'/' | b'\\') => encoded_slash == EncodedSlash::Keep,
                    Some(byte) => !byte.is_ascii_control() && !is_unreserved(byte),
                    None => false,
                };
                if !upper || !kept {
                    return false;
                }
                at += 3;
            }
            byte if PLAIN[usize::from(*byte)] => at += 1,
            _ => return false,
        }
    }
    true
}

fn rewrite(path: &[u8], encoded_slash: EncodedSlash) -> Result<String, PathError> {
    let mut out = String::with_capacity(path.len());
    let mut at = 0;
    // Whether what was read last leaves a slash at the end.
    let mut open = true;
    while at < path.len() {
        // `at` is at a slash: its segment is appended, then judged.
        at += 1;
        let begin = out.len();
        out.push('/');
        at = segment(path, at, encoded_slash, &mut out)?;
        match start(&out.as_bytes()[begin + 1..]) {
            Start::DotsWithParameters => return Err(PathError::DotWithParameters { at }),
            Start::Dots(dots) => {
                out.truncate(begin);
                if dots == 2 {
                    out.truncate(out.rfind('/').unwrap_or(0));
                }
                open = true;
            }
            Start::Other if out.len() == begin + 1 => {
                out.truncate(begin);
                open = true;
            }
            Start::Other => open = false,
        }
    }
    if open {
        out.push('/');
    }
    Ok(out)
}

/// Appends the normal form of the segment that starts at `at`; gives where it ends.
fn segment(
    path: &[u8],
    mut at: usize,
    encoded_slash: EncodedSlash,
    out: &mut String,
) -> Result<usize, PathError> {
    while let Some(&raw) = path.get(at) {
        let (byte, width) = match raw {
            b'/' => break,
            b'%' => (percent::escape(&path[at..]).ok_or(PathError::BrokenEscape { at })?, 3),
            byte => (byte, 1),
        };
        if byte.is_ascii_control() {
            return Err(PathError::Control { at });
        }
        // A raw slash ended the segment above, so this one was encoded.
        if matches!(byte, b'/' | b'\\') && encoded_slash == EncodedSlash::Refuse {
            return Err(PathError::EncodedSlash { at });
        }
        // Decoded only if unreserved: `%3B` is no `;`.
        if is_unreserved(byte) || (width == 1 && PLAIN[usize::from(byte)]) {
            out.push(char::from(byte));
        } else {
            percent::push_escape(out, byte);
        }
        at += width;
    }
    Ok(at)
}

/// The form in which normalised paths are compared with patterns: every escape decoded but `%25`, `%2F`
/// and those of bytes that make no UTF-8, so that no two different paths become one.
///
/// Reserved characters may come encoded or not, and most servers see no difference: `/a%21` must not get
/// past a rule for `/a!`.
pub(super) fn comparable(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        // The longest run without an escape, then the longest run of escapes.
        let plain = bytes[at..].iter().position(|byte| *byte == b'%').map_or(bytes.len(), |run| at + run);
        out.push_str(&path[at..plain]);
        at = plain;
        let mut run = Vec::new();
        while let Some(byte) = percent::escape(&bytes[at..]) {
            run.push(byte);
            at += 3;
        }
        if run.is_empty() && at < bytes.len() {
            // A `%` that begins no escape is in no normalised path.
            out.push_str("%25");
            at += 1;
        }
        for chunk in run.utf8_chunks() {
            escape_separators(chunk.valid(), &mut out);
            chunk.invalid().iter().for_each(|byte| percent::push_escape(&mut out, *byte));
        }
    }
    Cow::Owned(out)
}

/// The same form for the decoded text of one segment.
pub(super) fn comparable_literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape_separators(text, &mut out);
    out
}

fn escape_separators(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '%' => out.push_str("%25"),
            '/' => out.push_str("%2F"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests;
