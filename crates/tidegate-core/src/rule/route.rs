//! Which resource a request is: one, always the same one, at a cost that does not grow with the rules.
//!
//! Precedence: an exact host over the longest wildcard over none; then an exact path over more literal
//! segments over `{x}` over `{*rest}`; then a listed method over any. Only resources that match in all
//! three respects compete. Two that can match one request with equal right are a fault.
//!
//! For paths, precedence comes to one comparison: more literal segments win, and among equals more `{x}`
//! do. An exact path is all literals, so nothing outranks it; and of two patterns that match a path with
//! equally many literals, one that ends in `{*rest}` names fewer segments than one that does not.
//!
//! A path is compared segment by segment, escapes decoded, so `/a%21` is met by `/a!`; `{x}` takes one
//! segment that is not empty, `{*rest}` at least one. Case, path parameters (`;v=1`) and a final slash
//! count: `/a/` is not `/a`.

mod tie;
mod trie;

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

pub use self::tie::Tie;
use self::trie::{Paths, Segments};
use super::host;
use super::model::{Match, PathSegment, Resource};
use super::path::{comparable, comparable_literal};
use super::percent;

/// Most segments that a path pattern may have. Also how deep a search goes.
pub const MAX_PATTERN_SEGMENTS: usize = 64;

/// Most ties that are reported at once.
pub const MAX_TIES: usize = 100;

/// Why resources cannot be told apart, or cannot be matched at all. `Display` is the problem and a way
/// to mend it, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.problem(), self.help())]
#[non_exhaustive]
pub enum RouteFault {
    /// Two resources claim a request with equal right.
    Tie(Tie),
    /// A pattern has more segments than [`MAX_PATTERN_SEGMENTS`].
    TooManySegments {
        /// The resource's id.
        resource: String,
    },
    /// A `{*rest}` stands before the end of a pattern.
    RestNotLast {
        /// The resource's id.
        resource: String,
        /// The name of the rest.
        name: String,
    },
}

impl RouteFault {
    /// The resource that it is about; of a tie, the one that comes last.
    pub fn resource(&self) -> &str {
        match self {
            Self::Tie(tie) => &tie.second,
            Self::TooManySegments { resource } | Self::RestNotLast { resource, .. } => resource,
        }
    }

    /// What is wrong, in one line.
    pub fn problem(&self) -> String {
        match self {
            Self::Tie(Tie { first, second, example }) => format!(
                "resources `{first}` and `{second}` both match `{example}`, and neither is more specific"
            ),
            Self::TooManySegments { resource } => {
                format!("the path of resource `{resource}` has more than {MAX_PATTERN_SEGMENTS} segments")
            }
            Self::RestNotLast { resource, name } => format!(
                "the path of resource `{resource}` goes on after `{{*{name}}}`, which takes all that is left"
            ),
        }
    }

    /// A way to mend it, in one line.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Tie(_) => "make one path, host or method list narrower, or merge them",
            Self::TooManySegments { .. } => "end it with `{*rest}`",
            Self::RestNotLast { .. } => "put it last",
        }
    }
}

/// All resources that HTTP requests can be, ready to be searched.
#[derive(Debug, Default)]
pub struct RouteTable {
    exact: HashMap<Box<str>, Paths, FixedState>,
    /// By what follows `*.`.
    below: HashMap<Box<str>, Paths, FixedState>,
    any: Paths,
    /// The pattern of each resource, to name what it captures.
    patterns: Vec<Option<Pattern>>,
}

/// The resource that a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched<'a> {
    /// Its place in the list that the table was made of.
    pub resource: usize,
    /// What its pattern captured.
    pub params: Params<'a>,
}

/// What a pattern captured: names, and percent-decoded values.
///
/// A value that would not be UTF-8 is left encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params<'a>(SmallVec<[(&'a str, Cow<'a, str>); 4]>);

impl Params<'_> {
    /// The value of `{name}` or `{*name}`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value)
    }

    /// All of them, in the order of the path.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }
}

impl RouteTable {
    /// Indexes `resources`; those without a `match` take no part. Every fault is reported, of ties the
    /// first [`MAX_TIES`].
    pub fn new(resources: &[Resource]) -> Result<Self, Vec<RouteFault>> {
        let mut faults = Vec::new();
        let mut routes = Vec::new();
        for (index, resource) in resources.iter().enumerate() {
            let Some(matcher) = &resource.matcher else { continue };
            match Pattern::new(&matcher.path, &resource.id) {
                Ok(pattern) => {
                    let hosts = HostPattern::all(matcher);
                    routes.push(Route { index, id: &resource.id, hosts, methods: &matcher.methods, pattern });
                }
                Err(fault) => faults.push(fault),
            }
        }
        faults.extend(tie::find(&routes).into_iter().map(RouteFault::Tie));
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut table = Self::default();
        table.patterns.resize_with(resources.len(), || None);
        for route in routes {
            for host in &route.hosts {
                let paths = match host {
                    HostPattern::Exact(name) => table.exact.entry(name.as_str().into()).or_default(),
                    HostPattern::Below(suffix) => table.below.entry(suffix.as_str().into()).or_default(),
                    HostPattern::Any => &mut table.any,
                };
                paths.insert(&route.pattern, route.methods, route.index);
            }
            table.patterns[route.index] = Some(route.pattern);
        }
        Ok(table)
    }

    /// The resource of a request: its `Host` field or authority, its method, and its normalised path
    /// without the query. `None` when it is none.
    pub fn find<'a>(&'a self, host: Option<&str>, method: &str, path: &'a str) -> Option<Matched<'a>> {
        let resource = self.resource(host, method, path)?;
        let params = self.patterns.get(resource)?.as_ref()?.params(path);
        Some(Matched { resource, params })
    }

    fn resource(&self, host: Option<&str>, method: &str, path: &str) -> Option<usize> {
        let path = comparable(path);
        let mut segments = Segments::new(&path)?;
        if let Some(host) = host.filter(|_| !self.exact.is_empty() || !self.below.is_empty()) {
            let host = host::normalise(host);
            if host.len() <= host::MAX_HOST_BYTES {
                if let Some(found) =
                    self.exact.get(&*host).and_then(|paths| paths.find(method, &mut segments))
                {
                    return Some(found);
                }
                // The longest suffix first; each must leave a name of at least one byte before it.
                let dots = host.bytes().enumerate().filter(|(at, byte)| *at > 0 && *byte == b'.');
                for (at, _) in dots.filter(|_| !self.below.is_empty()) {
                    let paths = self.below.get(&host[at + 1..]);
                    if let Some(found) = paths.and_then(|paths| paths.find(method, &mut segments)) {
                        return Some(found);
                    }
                }
            }
        }
        self.any.find(method, &mut segments)
    }
}

/// A resource with what it takes to find it.
struct Route<'a> {
    index: usize,
    id: &'a str,
    hosts: Vec<HostPattern>,
    /// Empty is any.
    methods: &'a [String],
    pattern: Pattern,
}

/// Which hosts a resource answers for, in normal form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostPattern {
    Exact(String),
    /// What follows `*.`.
    Below(String),
    Any,
}

impl HostPattern {
    fn all(matcher: &Match) -> Vec<Self> {
        if matcher.hosts.is_empty() {
            return vec![Self::Any];
        }
        let mut all: Vec<Self> = matcher
            .hosts
            .iter()
            .map(|text| match text.strip_prefix("*.") {
                Some(suffix) => Self::Below(host::normalise(suffix).into_owned()),
                None => Self::Exact(host::normalise(text).into_owned()),
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }
}

/// How specific a path pattern is: literal segments, then `{x}`.
type Rank = (usize, usize);

/// A path pattern whose literals are in the form in which paths are compared.
#[derive(Debug)]
struct Pattern(Vec<PathSegment>);

impl Pattern {
    fn new(path: &[PathSegment], resource: &str) -> Result<Self, RouteFault> {
        if path.len() > MAX_PATTERN_SEGMENTS {
            return Err(RouteFault::TooManySegments { resource: resource.to_owned() });
        }
        let segments = path.iter().enumerate().map(|(at, segment)| match segment {
            PathSegment::Literal(text) => Ok(PathSegment::Literal(comparable_literal(text))),
            PathSegment::Rest(name) if at + 1 < path.len() => {
                Err(RouteFault::RestNotLast { resource: resource.to_owned(), name: name.clone() })
            }
            other => Ok(other.clone()),
        });
        let mut segments = segments.collect::<Result<Vec<_>, _>>()?;
        if segments.is_empty() {
            // The root has one segment, which is empty, as `/a/` has two.
            segments.push(PathSegment::Literal(String::new()));
        }
        Ok(Self(segments))
    }

    fn rank(&self) -> Rank {
        self.0.iter().fold((0, 0), |(literals, params), segment| match segment {
            PathSegment::Literal(_) => (literals + 1, params),
            PathSegment::Param(_) => (literals, params + 1),
            PathSegment::Rest(_) => (literals, params),
        })
    }

    fn has_rest(&self) -> bool {
        matches!(self.0.last(), Some(PathSegment::Rest(_)))
    }

    /// What it captures of `path`, which it matches.
    fn params<'a>(&'a self, path: &'a str) -> Params<'a> {
        let mut params = SmallVec::new();
        let mut left = path.strip_prefix('/').unwrap_or(path);
        for segment in &self.0 {
            let (value, after) = left.split_once('/').unwrap_or((left, ""));
            match segment {
                PathSegment::Literal(_) => {}
                PathSegment::Param(name) => params.push((name.as_str(), percent::decode(value))),
                PathSegment::Rest(name) => params.push((name.as_str(), percent::decode(left))),
            }
            left = after;
        }
        Params(params)
    }
}

#[cfg(test)]
mod tests;
