//! Takes a resource's attributes out of a request.

use std::borrow::Cow;
use std::net::IpAddr;

use compact_str::CompactString;
use http::Uri;
use http::header::{COOKIE, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use smallvec::SmallVec;
use tidegate_core::rule::model::{AttributeSource, Missing, Resource};
use tidegate_core::rule::path::{EncodedSlash, normalise};
use tidegate_core::rule::{render, take};
use tidegate_core::{Attributes, Value};

use crate::respond::Refusal;

/// The value of one attribute, kept beyond the request that it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    Text(CompactString),
    /// A JSON number, as it was written.
    Number(CompactString),
    /// A JSON boolean.
    Bool(bool),
    /// A JSON object or array.
    Compound,
}

impl Scalar {
    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Text(text) => Self::Text(text.into()),
            Value::Number(text) => Self::Number(text.into()),
            Value::Bool(value) => Self::Bool(value),
            Value::Compound => Self::Compound,
        }
    }

    /// The text for a key; `None` for a compound value.
    pub(crate) fn text(&self) -> Option<&str> {
        self.value().text()
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(text),
            Self::Number(text) => Value::Number(text),
            Self::Bool(value) => Value::Bool(*value),
            Self::Compound => Value::Compound,
        }
    }
}

/// A resource's attributes, in its own order.
#[derive(Clone, Debug, Default)]
pub struct Taken(SmallVec<[Option<Scalar>; 4]>);

impl Taken {
    /// The text of an attribute for a key; `None` when it is absent, null or compound.
    pub fn text(&self, index: usize) -> Option<&str> {
        self.0.get(index)?.as_ref()?.text()
    }

    /// Looks attributes up by the names that `resource` gives them.
    pub fn named<'a>(&'a self, resource: &'a Resource) -> Named<'a> {
        Named { taken: self, resource }
    }

    /// All values in order; absent ones as `None`.
    pub fn texts(&self) -> impl Iterator<Item = Option<&str>> {
        (0..self.0.len()).map(|index| self.text(index))
    }
}

/// [`Taken`] with names.
pub struct Named<'a> {
    taken: &'a Taken,
    resource: &'a Resource,
}

impl Attributes for Named<'_> {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        let index = self.resource.attributes.iter().position(|attribute| attribute.name == name)?;
        self.taken.0.get(index)?.as_ref().map(Scalar::value)
    }
}

/// What attributes are taken from.
pub struct Origin<'a> {
    /// Method, target and headers.
    pub parts: &'a Parts,
    /// Values of the path pattern, by name.
    pub path: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// The client's address, after trusted hops.
    pub client: IpAddr,
    /// Leading bits that count as one IPv6 client.
    pub ipv6_prefix: u8,
    /// The body, where the resource has attributes in it.
    pub body: Option<&'a serde_json::Value>,
}

/// Takes every attribute of `resource`; refuses when one that must be there is not.
pub fn take(resource: &Resource, origin: &Origin<'_>) -> Result<Taken, Refusal> {
    let mut taken = Taken::default();
    for attribute in &resource.attributes {
        let scalar = take_one(&attribute.from, origin);
        let unusable = matches!(scalar, None | Some(Scalar::Compound));
        if unusable && attribute.missing == Missing::Reject {
            return Err(Refusal::AttributeMissing { attribute: render::source(&attribute.from) });
        }
        taken.0.push(scalar);
    }
    Ok(taken)
}

/// Takes the attributes of `resource` from values that code gives by name.
pub(crate) fn take_named<A: Attributes + ?Sized>(resource: &Resource, given: &A) -> Result<Taken, Refusal> {
    let mut taken = Taken::default();
    for attribute in &resource.attributes {
        let scalar = given.get(&attribute.name).map(Scalar::of);
        if scalar.is_none() && attribute.missing == Missing::Reject {
            return Err(Refusal::AttributeMissing { attribute: attribute.name.clone() });
        }
        taken.0.push(scalar);
    }
    Ok(taken)
}

/// One value of a request.
pub(crate) fn take_one(from: &AttributeSource, origin: &Origin<'_>) -> Option<Scalar> {
    let text = |text: &str| Scalar::Text(text.into());
    match from {
        AttributeSource::Header(name) => header(origin.parts, name).map(text),
        AttributeSource::Query(name) => {
            take::query(origin.parts.uri.query()?, name).map(|value: Cow<'_, str>| text(&value))
        }
        AttributeSource::Cookie(name) => {
            let lines = origin.parts.headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
            take::cookie(lines, name).map(text)
        }
        AttributeSource::Path(name) => (origin.path)(name).map(|value| text(&value)),
        // Nobody has the unspecified address: it stands for one that is not known.
        AttributeSource::ClientIp if origin.client.is_unspecified() => None,
        AttributeSource::ClientIp => {
            Some(text(&take::client_key(origin.client, origin.ipv6_prefix).to_string()))
        }
        AttributeSource::Body(pointer) => take::pointer(origin.body?, pointer).map(Scalar::of),
        // Only a decision-server client or library code sends descriptors.
        AttributeSource::Descriptor(_) => None,
    }
}

/// Normalises the target once: the path that is matched is the path that is forwarded.
pub(crate) fn normalise_target(parts: &mut Parts, encoded_slash: EncodedSlash) -> Result<(), Refusal> {
    // `OPTIONS *` and `CONNECT host:port` have no path.
    if !parts.uri.path().starts_with('/') {
        return Ok(());
    }
    let invalid = |why: &dyn std::fmt::Display| Refusal::PathInvalid { why: why.to_string() };
    let path = normalise(parts.uri.path(), encoded_slash).map_err(|why| invalid(&why))?;
    if path == parts.uri.path() {
        return Ok(());
    }
    let target = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.into_owned(),
    };
    let mut uri = parts.uri.clone().into_parts();
    uri.path_and_query = Some(PathAndQuery::try_from(target).map_err(|why| invalid(&why))?);
    parts.uri = Uri::from_parts(uri).map_err(|why| invalid(&why))?;
    Ok(())
}

/// The authority that was asked for: of an absolute target or HTTP/2, else the `Host` field.
pub(crate) fn host(parts: &Parts) -> Option<Cow<'_, str>> {
    let named = parts.uri.authority().map(http::uri::Authority::as_str);
    named.or_else(|| parts.headers.get(HOST)?.to_str().ok()).map(Into::into)
}

/// The value of a header, if it is there once and is text. Sent twice it says nothing reliable.
fn header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => std::str::from_utf8(value.as_bytes()).ok(),
        _ => None,
    }
}
