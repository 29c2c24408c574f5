//! What a request carries from gate to gate.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Longest client request id that is kept, in bytes.
const MAX_REQUEST_ID: usize = 128;
/// Where a request id stands.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Who a request is from and how it is called in logs.
#[derive(Clone, Debug)]
pub struct Context {
    /// The client's own well-formed `X-Request-Id`, or a new one.
    pub request_id: HeaderValue,
    /// The address the client is known by, after trusted hops.
    pub client: IpAddr,
}

/// The client's request id when it is 1 to 128 characters out of `A–Z a–z 0–9 . _ - : /` (so that
/// it can stand in a log line as it is), else 32 hex digits made of `nonce`.
pub fn request_id(headers: &HeaderMap, nonce: impl FnOnce() -> [u8; 16]) -> HeaderValue {
    let mut given = headers.get_all(X_REQUEST_ID).iter();
    if let (Some(id), None) = (given.next(), given.next())
        && well_formed(id.as_bytes())
    {
        return id.clone();
    }
    let mut text = [0; 32];
    write_hex(&nonce(), &mut text);
    // Kept with its reference count in one allocation: it is cloned for every answer.
    HeaderValue::from_maybe_shared(Bytes::from_owner(text)).unwrap_or(HeaderValue::from_static("-"))
}

fn well_formed(id: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(byte);
    (1..=MAX_REQUEST_ID).contains(&id.len()) && id.iter().all(allowed)
}

/// Sixteen bytes as 32 lower-case hexadecimal digits.
pub(crate) fn write_hex(bytes: &[u8; 16], text: &mut [u8; 32]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(text.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_well_formed_request_id_is_kept_and_any_other_replaced() {
        let made = "0a000000000000000000000000000000";
        let nonce = || {
            let mut bytes = [0; 16];
            bytes[0] = 10;
            bytes
        };
        let long = "x".repeat(129);
        for (given, expected) in [
            (vec!["abc-1:2/3._"], "abc-1:2/3._"),
            (vec![], made),
            (vec![""], made),
            (vec!["a b"], made),
            (vec!["a", "b"], made),
            (vec![long.as_str()], made),
        ] {
            let mut headers = HeaderMap::new();
            for value in &given {
                headers.append(X_REQUEST_ID, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(request_id(&headers, nonce), expected, "{given:?}");
        }
    }
}
