//! What the gates protect, and the values that a request brings.

use std::time::Duration;

/// Something that the gates protect. The only place that names a transport.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Unique name.
    pub id: String,
    /// Which HTTP requests it is; `None` for one that library code names, or a dependency.
    pub matcher: Option<Match>,
    /// Limit for the upstream call. Default 30 s.
    pub timeout: Duration,
    /// Named values taken from a request, in document order.
    pub attributes: Vec<Attribute>,
    /// The attribute that says who is asking: the subject of flags.
    pub subject: Option<String>,
    /// Keys of the flags that are evaluated for each request and told to the upstream.
    pub flags: Vec<String>,
}

impl Resource {
    /// The declaration of the attribute called `name`.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }
}

/// Which HTTP requests are a resource. Empty hosts or methods mean any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// `api.example.com`, or `*.example.com` for every name below it; lower case, without a port.
    pub hosts: Vec<String>,
    /// Upper-case methods.
    pub methods: Vec<String>,
    /// Segments of literals and `{name}`, with `{*rest}` only as the last.
    pub path: Vec<PathSegment>,
}

/// One segment of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathSegment {
    /// Exactly this text, percent-decoded and normalised.
    Literal(String),
    /// Any one segment, `{name}`.
    Param(String),
    /// All that is left, at least one segment, `{*name}`.
    Rest(String),
}

/// A named value of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The name that rules use.
    pub name: String,
    /// Where it is taken from.
    pub from: AttributeSource,
    /// What a request without it gets.
    pub missing: Missing,
}

/// Where an attribute is taken from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttributeSource {
    /// `header.NAME`, lower case.
    Header(String),
    /// `query.NAME`, percent-decoded.
    Query(String),
    /// `cookie.NAME`.
    Cookie(String),
    /// `path.NAME`: a `{NAME}` or `{*NAME}` of the pattern.
    Path(String),
    /// `client.ip`, after trusted hops; IPv6 as its prefix (/64 unless configured).
    ClientIp,
    /// `body./json/pointer` (RFC 6901), with the leading slash.
    Body(String),
    /// `descriptor.KEY`: an entry that a decision-server client sends, or that library code passes in.
    Descriptor(String),
}

/// What a request without the attribute gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// One counter for all that lack it, distinct from the empty value.
    #[default]
    Share,
    /// 400 `attribute-missing`.
    Reject,
}

/// The resources that a rule covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resources {
    /// `"*"`: every resource.
    All,
    /// The listed ones; several share one counter.
    Listed(Vec<String>),
}

impl Resources {
    /// Whether the rule covers the resource called `id`.
    pub fn covers(&self, id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(ids) => ids.iter().any(|listed| listed == id),
        }
    }
}
