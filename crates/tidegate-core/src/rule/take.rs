//! Taking attributes from the parts of a request: queries, cookies, bodies, addresses.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::percent;
use crate::attribute::Value;

/// The value of the parameter called `name` in a query (without its `?`).
///
/// Names and values are decoded as forms write them: `%41` is `A`, `+` is a space. A parameter without
/// `=` has the empty value. Of several with one name the first counts. Text that would not be UTF-8, and
/// a `%` that begins no escape, stay as they are.
pub fn query<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query.split('&').find_map(|pair| {
        if pair.is_empty() {
            return None;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent::decode_form(key) == name).then(|| percent::decode_form(value))
    })
}

/// The value of the cookie called `name` in `Cookie` fields, in their order (RFC 6265 §4.2).
///
/// Names are case-sensitive. Values are taken as they are, quotes included. Of several with one name the
/// first counts. HTTP/2 may send one field for each cookie, hence several fields.
pub fn cookie<'a>(fields: impl IntoIterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let blank = [' ', '\t'];
    fields.into_iter().flat_map(|field| field.split(';')).find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key.trim_matches(blank) == name).then(|| value.trim_matches(blank))
    })
}

/// The value at a JSON pointer (RFC 6901) in a body.
///
/// `None` when nothing is there, or null. A number keeps its source text, but for the exponent's sign and
/// letter, which are written out: `1E2` is `1e+2`.
pub fn pointer<'a>(body: &'a serde_json::Value, pointer: &str) -> Option<Value<'a>> {
    Value::of_json(body.pointer(pointer)?)
}

/// The address of the client behind `trusted_hops` proxies that each add their peer to the end of
/// `X-Forwarded-For`.
///
/// `peer` is who is connected; `fields` are the values of the field in the order received. With no
/// trusted hop the field counts for nothing, for anyone can send it. With `n`, the `n`-th entry from
/// the end does: what stands before it was sent by the client. If there are fewer, the request came past
/// fewer proxies and the first entry counts; it was added by a trusted one. An entry that is no address
/// ends the search at the one after it, the last that is known. Empty entries are left out (RFC 9110
/// §5.6.1), ports and brackets are taken off, and mapped IPv4 addresses come out as IPv4.
pub fn client_ip<'a, I>(peer: IpAddr, fields: I, trusted_hops: usize) -> IpAddr
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: DoubleEndedIterator,
{
    let mut client = peer;
    let entries = fields.into_iter().rev().flat_map(|field| field.rsplit(|byte| *byte == b','));
    let entries = entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty());
    for entry in entries.take(trusted_hops) {
        let Some(address) = forwarded_address(entry) else { break };
        client = address;
    }
    client.to_canonical()
}

fn forwarded_address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse::<IpAddr>().ok().or_else(bracketed).or_else(with_port)
}

/// The address that stands for a client in keys and conditions: a mapped IPv4 address as IPv4, an IPv6
/// address cut to its first `ipv6_prefix` bits (0 to 128, more is 128), since one client has a whole
/// network of them. Its text is the one spelling of RFC 5952, without the prefix length.
pub fn client_key(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host_bits = 128_u32.saturating_sub(u32::from(ipv6_prefix));
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests;
