//! Path patterns and hosts.

use crate::document::diagnostic::quoted;
use crate::document::{Node, Report, scalar};
use crate::rule::model::PathSegment;

/// Longest pattern in bytes.
const MAX_PATTERN: usize = 2048;

/// `/orders/{order}/pay`, `/files/{*rest}`: split at every slash after the first, so that `/` is one
/// empty literal, and `/a/` is `a` and an empty literal.
pub(super) fn pattern(node: &Node, report: &mut Report) -> Option<Vec<PathSegment>> {
    let text = scalar::text(node, report)?;
    let mut fault = |message: String, help: &str| {
        report.fault(node.span, message, help);
        None
    };
    if text.len() > MAX_PATTERN {
        return fault(format!("this path is longer than {MAX_PATTERN} bytes"), "shorten it");
    }
    let Some(inside) = text.strip_prefix('/') else {
        return fault(
            format!("the path {} does not begin with a slash", quoted(text)),
            "begin it with a slash",
        );
    };
    let parts: Vec<&str> = inside.split('/').collect();
    let mut segments = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        let segment = match segment(part, last) {
            Ok(segment) => segment,
            Err((problem, help)) => {
                return fault(format!("{} in the path: {problem}", quoted(part)), help);
            }
        };
        if let PathSegment::Param(name) | PathSegment::Rest(name) = &segment {
            let twice = segments.iter().any(|earlier| match earlier {
                PathSegment::Param(earlier) | PathSegment::Rest(earlier) => earlier == name,
                PathSegment::Literal(_) => false,
            });
            if twice {
                return fault(
                    format!("the path names {} twice", quoted(name)),
                    "give each segment a name of its own",
                );
            }
        }
        segments.push(segment);
    }
    Some(segments)
}

/// What is wrong, and a way to mend it.
type Problem = (&'static str, &'static str);

fn segment(part: &str, last: bool) -> Result<PathSegment, Problem> {
    if let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        let (name, rest) = match name.strip_prefix('*') {
            Some(name) => (name, true),
            None => (name, false),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        {
            return Err(("a name in braces is letters, digits, `_` and `-`", "write {order} or {*rest}"));
        }
        return match (rest, last) {
            (true, false) => Err((
                "`{*…}` takes all that is left",
                "let it be the last segment, or write {name} for one segment",
            )),
            (true, true) => Ok(PathSegment::Rest(name.to_owned())),
            (false, _) => Ok(PathSegment::Param(name.to_owned())),
        };
    }
    if part.contains(['{', '}']) {
        return Err((
            "a name in braces is a whole segment",
            "write /{order}/, or %7B and %7D for literal braces",
        ));
    }
    if part.contains(['?', '#']) {
        return Err((
            "a pattern is a path only",
            "remove the query; test it with an attribute `from: query.NAME`",
        ));
    }
    if part.is_empty() && !last {
        return Err(("paths are matched without empty segments", "remove the double slash"));
    }
    let literal =
        decode(part).ok_or(("a percent sign stands before two hexadecimal digits of UTF-8", "write %25"))?;
    if literal == "." || literal == ".." {
        return Err(("paths are matched without dot segments", "write the path that is left without it"));
    }
    if literal.contains('/') {
        return Err(("an encoded slash cannot be matched", "use a {name} or {*rest} there"));
    }
    if literal.chars().any(char::is_control) {
        return Err(("control characters cannot be matched", "remove them"));
    }
    Ok(PathSegment::Literal(literal))
}

fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// `api.example.com`, `*.example.com`, an address; lower-cased.
pub(super) fn host(node: &Node, report: &mut Report) -> Option<String> {
    let text = scalar::text(node, report)?;
    let host = text.to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let name = host.strip_prefix("*.").unwrap_or(&host);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let valid = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name.len() <= 253 && name.split('.').all(is_label),
    };
    if valid {
        return Some(host);
    }
    let help = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.contains(':') => {
            format!("write {name}: a host is matched without its port")
        }
        _ => "write a name such as api.example.com, *.example.com for all below it, or an address".to_owned(),
    };
    report.fault(node.span, format!("{} is not a host", quoted(text)), help);
    None
}
