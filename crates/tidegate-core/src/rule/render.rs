//! The grammar of rule documents, written out: durations, rates, percentages, sizes, paths, sources.
//! What is rendered here reads back as the same value.

use std::fmt::Write as _;
use std::time::Duration;

use super::model::{AttributeSource, FailureKind, FingerprintPart, PathSegment, Percentage, Rate, Resources};

const UNITS: [(u128, &str); 6] = [
    (86_400_000_000_000, "d"),
    (3_600_000_000_000, "h"),
    (60_000_000_000, "m"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
];

/// `1m30s`, from the largest unit to the smallest; zero is `0s`.
///
/// Documents have no unit below a microsecond. A remainder, which only a model built by hand can
/// have, is written in `ns` so that different durations never look alike.
pub fn duration(span: Duration) -> String {
    let mut rest = span.as_nanos();
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (size, unit) in UNITS {
        if rest >= size {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}{unit}", rest / size);
            rest %= size;
        }
    }
    if rest > 0 {
        let _ = write!(text, "{rest}ns");
    }
    text
}

/// `10/s`, `5/10s`.
pub fn rate(rate: Rate) -> String {
    let per = rate.per.as_nanos();
    match UNITS.iter().find(|(size, _)| *size == per) {
        Some((_, unit)) => format!("{}/{unit}", rate.count),
        None => format!("{}/{}", rate.count, duration(rate.per)),
    }
}

/// `10`, `0.5`, `0.29`: percent without the sign.
pub fn percent(share: Percentage) -> String {
    let (whole, hundredths) = (share.hundredths() / 100, share.hundredths() % 100);
    match hundredths {
        0 => whole.to_string(),
        tenths if tenths.is_multiple_of(10) => format!("{whole}.{}", tenths / 10),
        _ => format!("{whole}.{hundredths:02}"),
    }
}

/// `1MiB`, `64KiB`, `1000B`.
pub fn bytes(count: u64) -> String {
    for (size, unit) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if count >= size && count.is_multiple_of(size) {
            return format!("{}{unit}", count / size);
        }
    }
    format!("{count}B")
}

/// `/orders/{order}/pay`; what would be read as something else in a literal is percent-encoded.
pub fn path(segments: &[PathSegment]) -> String {
    if segments.is_empty() {
        return "/".to_owned();
    }
    let mut text = String::new();
    for segment in segments {
        text.push('/');
        match segment {
            PathSegment::Param(name) => {
                let _ = write!(text, "{{{name}}}");
            }
            PathSegment::Rest(name) => {
                let _ = write!(text, "{{*{name}}}");
            }
            PathSegment::Literal(literal) => {
                for character in literal.chars() {
                    if matches!(character, '%' | '/' | '{' | '}' | '?' | '#' | '\\' | ' ')
                        || character.is_control()
                    {
                        let mut buffer = [0; 4];
                        for byte in character.encode_utf8(&mut buffer).bytes() {
                            let _ = write!(text, "%{byte:02X}");
                        }
                    } else {
                        text.push(character);
                    }
                }
            }
        }
    }
    text
}

/// `header.x-channel`, `client.ip`, `body./sku`.
pub fn source(from: &AttributeSource) -> String {
    match from {
        AttributeSource::Header(name) => format!("header.{name}"),
        AttributeSource::Query(name) => format!("query.{name}"),
        AttributeSource::Cookie(name) => format!("cookie.{name}"),
        AttributeSource::Path(name) => format!("path.{name}"),
        AttributeSource::ClientIp => "client.ip".to_owned(),
        AttributeSource::Body(pointer) => format!("body.{pointer}"),
        AttributeSource::Descriptor(key) => format!("descriptor.{key}"),
    }
}

/// `method`, `body./sku`, or an attribute's name.
pub fn fingerprint_part(part: &FingerprintPart) -> String {
    match part {
        FingerprintPart::Method => "method".to_owned(),
        FingerprintPart::Path => "path".to_owned(),
        FingerprintPart::Query => "query".to_owned(),
        FingerprintPart::Body => "body".to_owned(),
        FingerprintPart::BodyPointer(pointer) => format!("body.{pointer}"),
        FingerprintPart::Attribute(name) => name.clone(),
    }
}

/// `connect`, `5xx`, `429`.
pub fn failure(kind: FailureKind) -> String {
    match kind {
        FailureKind::Connect => "connect".to_owned(),
        FailureKind::Timeout => "timeout".to_owned(),
        FailureKind::Reset => "reset".to_owned(),
        FailureKind::ServerError => "5xx".to_owned(),
        FailureKind::Status(status) => status.to_string(),
    }
}

/// `pay, refund` or `*`.
pub fn resources(resources: &Resources) -> String {
    match resources {
        Resources::All => "*".to_owned(),
        Resources::Listed(ids) => ids.join(", "),
    }
}

#[cfg(test)]
mod tests;
