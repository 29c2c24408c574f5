//! Where attributes are taken from, and what fingerprints are made of.

use crate::document::diagnostic::quoted;
use crate::document::{Node, Report, scalar};
use crate::rule::model::{AttributeSource, FingerprintPart};
use crate::token::is_token;

/// Words with a meaning of their own in conditions and fingerprints: no attribute may have them.
pub const RESERVED: [&str; 8] = ["method", "path", "query", "body", "all", "any", "not", "segment"];

/// Longest name behind the dot, in bytes.
const MAX_NAME: usize = 512;

/// `header.NAME`, `query.NAME`, `cookie.NAME`, `path.NAME`, `client.ip`, `body./pointer`, `descriptor.KEY`.
pub(super) fn source(node: &Node, report: &mut Report) -> Option<AttributeSource> {
    const PREFIXES: [&str; 7] = ["header", "query", "cookie", "path", "client", "body", "descriptor"];
    let text = scalar::text(node, report)?;
    let (prefix, name) = text.split_once('.').unwrap_or((text, ""));
    let problem = match prefix {
        _ if name.len() > MAX_NAME => Some("the name is too long"),
        "header" | "cookie" if !is_token(name) => Some("the name must be an HTTP token"),
        "query" | "path" | "descriptor" if name.is_empty() => Some("a name is missing behind the dot"),
        "client" if name != "ip" => Some("the client has only an address"),
        "body" if !is_pointer(name) => Some("a JSON pointer with a leading slash is expected"),
        _ => None,
    };
    let found = match prefix {
        "header" => AttributeSource::Header(name.to_ascii_lowercase()),
        "query" => AttributeSource::Query(name.to_owned()),
        "cookie" => AttributeSource::Cookie(name.to_owned()),
        "path" => AttributeSource::Path(name.to_owned()),
        "client" => AttributeSource::ClientIp,
        "body" => AttributeSource::Body(name.to_owned()),
        "descriptor" => AttributeSource::Descriptor(name.to_owned()),
        _ => {
            let known = "header.NAME, query.NAME, cookie.NAME, path.NAME, client.ip, body./json/pointer, descriptor.KEY";
            let help = match report.nearest(prefix, PREFIXES.into_iter()) {
                Some(near) => format!("did you mean `{near}.…`? Known: {known}"),
                None => format!("write one of {known}"),
            };
            report.fault(node.span, format!("{} is no source of an attribute", quoted(text)), help);
            return None;
        }
    };
    if let Some(problem) = problem {
        let example = match prefix {
            "client" => "client.ip",
            "body" => "body./order/id",
            "header" => "header.x-tenant",
            "cookie" => "cookie.session",
            "query" => "query.page",
            "path" => "path.order",
            _ => "descriptor.tenant",
        };
        report.fault(
            node.span,
            format!("{}: {problem}", quoted(text)),
            format!("write `{example}`, for example"),
        );
        return None;
    }
    Some(found)
}

/// A part of a fingerprint or of a derived key.
pub(super) fn part(node: &Node, report: &mut Report) -> Option<FingerprintPart> {
    let text = scalar::text(node, report)?;
    Some(match text {
        "method" => FingerprintPart::Method,
        "path" => FingerprintPart::Path,
        "query" => FingerprintPart::Query,
        "body" => FingerprintPart::Body,
        text => match text.strip_prefix("body.") {
            None => FingerprintPart::Attribute(text.to_owned()),
            Some(pointer) if is_pointer(pointer) && pointer.len() <= MAX_NAME => {
                FingerprintPart::BodyPointer(pointer.to_owned())
            }
            Some(_) => {
                let message = format!("{}: a JSON pointer with a leading slash is expected", quoted(text));
                report.fault(
                    node.span,
                    message,
                    "write `body./order/id`, for example, or `body` for all of it",
                );
                return None;
            }
        },
    })
}

/// RFC 6901 section 3, without the empty pointer, which is the whole document.
fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.split('~').skip(1).all(|after| after.starts_with(['0', '1']))
}
