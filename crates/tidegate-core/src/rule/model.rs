//! What a checked rule document means. A value of these types has passed validation: references
//! resolve, numbers are in range, and no two flag rules of one priority contradict each other.
//!
//! Documents become models in `parse`, and only there do defaults get filled in.

use std::time::Duration;

/// One whole rule document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// What the gates protect, in document order.
    pub resources: Vec<Resource>,
    /// Rate limits, in document order.
    pub limits: Vec<Limit>,
    /// Idempotency rules; at most one for each resource.
    pub idempotency: Vec<Idempotency>,
    /// Circuit breakers.
    pub breakers: Vec<Breaker>,
    /// Named conditions.
    pub segments: Vec<Segment>,
    /// Flags.
    pub flags: Vec<Flag>,
}

// ---- resources -----------------------------------------------------------------------------------

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

// ---- limits --------------------------------------------------------------------------------------

/// A rate limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Unique among limits.
    pub id: String,
    /// Free text for people.
    pub description: Option<String>,
    /// Free text: who is paged.
    pub owner: Option<String>,
    /// Whether it refuses. Default enforce.
    pub mode: Mode,
    /// What it covers.
    pub resources: Resources,
    /// Attributes whose values make the counter's key; empty is one counter for the rule.
    pub key: Vec<String>,
    /// How it counts.
    pub algorithm: Algorithm,
    /// What a call costs. Default 1.
    pub cost: Cost,
    /// Other numbers for some keys; the first whose condition holds counts.
    pub overrides: Vec<LimitOverride>,
    /// Where the counter lives. Default local.
    pub sharing: Sharing,
    /// What happens while the shared store does not answer.
    pub on_store_failure: Option<OnStoreFailure>,
    /// How counters start after the shared store lost its data.
    pub after_store_loss: AfterStoreLoss,
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Decide, count and refuse.
    #[default]
    Enforce,
    /// Decide, count and log, but never refuse.
    Shadow,
    /// Do nothing.
    Off,
}

/// How a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// At most `capacity` at once and `refill` over time.
    TokenBucket {
        /// Most tokens that the bucket holds, from 1.
        capacity: u64,
        /// How fast it refills.
        refill: Rate,
    },
    /// At most `limit` in each window aligned to the UTC epoch, so up to 2 × `limit` in any window.
    FixedWindow {
        /// Calls in a window, from 1.
        limit: u64,
        /// Length of the window.
        window: Duration,
    },
    /// At most `limit` in any window; keeps every timestamp.
    SlidingLog {
        /// Calls in a window, from 1.
        limit: u64,
        /// Length of the window.
        window: Duration,
    },
    /// Two counters weighted by overlap: approximate, under 2 × `limit` in any window.
    SlidingWindow {
        /// Calls in a window, from 1.
        limit: u64,
        /// Length of the window.
        window: Duration,
    },
    /// Shapes: calls wait their turn at `rate`; refused when `queue` calls wait already.
    LeakyBucket {
        /// How fast calls leave.
        rate: Rate,
        /// How many may wait, from 0.
        queue: u64,
    },
    /// At most `max` calls at the same time.
    Concurrency {
        /// Calls in flight, from 1.
        max: u64,
    },
}

impl Algorithm {
    /// Its name in documents, metrics and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket { .. } => "token_bucket",
            Self::FixedWindow { .. } => "fixed_window",
            Self::SlidingLog { .. } => "sliding_log",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::LeakyBucket { .. } => "leaky_bucket",
            Self::Concurrency { .. } => "concurrency",
        }
    }
}

/// `count` in every `per`: `10/s`, `5/10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// From 1.
    pub count: u64,
    /// Longer than zero.
    pub per: Duration,
}

/// What a call costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for each call, from 1.
    Fixed(u64),
    /// An attribute that must be an integer from 1 to `max`, else 400 `cost-invalid`.
    Attribute {
        /// The attribute's name.
        from: String,
        /// The cost of a call without it. Default 1.
        default: u64,
        /// The largest accepted cost.
        max: u64,
    },
}

/// Other numbers for the keys for which a condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitOverride {
    /// Tests attributes of the rule's key only, so that one key always has one set of numbers.
    pub when: Condition,
    /// The same kind of algorithm as the rule's.
    pub algorithm: Algorithm,
}

/// Where a counter lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// In this process.
    #[default]
    Local,
    /// In the shared store; every decision is made there.
    Exact,
    /// Batches of permits are taken from the shared store and spent here.
    Leased,
}

/// What happens while the shared store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnStoreFailure {
    /// Admit, and count it.
    FailOpen,
    /// Refuse with 503 `store-unavailable`.
    FailClosed,
    /// Count locally against this instance's share.
    LocalFallback,
}

/// How counters start after the shared store lost its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AfterStoreLoss {
    /// As if nothing had been used.
    #[default]
    Fresh,
    /// As if all had been used.
    Exhausted,
}

// ---- idempotency ---------------------------------------------------------------------------------

/// An idempotency rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Idempotency {
    /// Unique among idempotency rules.
    pub id: String,
    /// What it covers.
    pub resources: Resources,
    /// A key means one intent inside one operation. Default: the rule's id.
    pub operation: String,
    /// Attributes that say whose key it is.
    pub scope: Vec<String>,
    /// Where the key comes from.
    pub key: KeySource,
    /// What must be equal on a retry.
    pub fingerprint: Vec<FingerprintPart>,
    /// When the record is completed.
    pub commit: CommitMode,
    /// What a retry gets when the lease is over and the outcome is not known.
    pub on_unknown: OnUnknown,
    /// How long an executor that has fallen silent holds the record. Default 30 s.
    pub lease: Duration,
    /// How long an executor may renew its lease. Default 5 min.
    pub max_execution: Duration,
    /// How long a record is kept after its last transition. Default 24 h.
    pub retention: Duration,
    /// What a concurrent duplicate gets.
    pub in_progress: InProgress,
    /// Largest response body that is kept, in bytes. Default 1 MiB.
    pub max_response: u64,
    /// Headers that a replay repeats, lower case.
    pub replay_headers: Vec<String>,
}

/// Where an idempotency key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Sent by the client.
    Attribute {
        /// Where it stands.
        from: AttributeSource,
        /// Whether a request without it is refused; otherwise it passes unguarded.
        required: bool,
    },
    /// Derived from the request, and meaning one intent for `window` from the first claim.
    Derived {
        /// What it is made of.
        parts: Vec<FingerprintPart>,
        /// From the first claim.
        window: Duration,
    },
}

/// A part of a request that is compared or hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FingerprintPart {
    /// The method.
    Method,
    /// The normalised path.
    Path,
    /// The raw query.
    Query,
    /// The raw body bytes.
    Body,
    /// The value at a JSON pointer, compared without key order and spacing.
    BodyPointer(String),
    /// An attribute of the resource.
    Attribute(String),
}

/// When an idempotency record is completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CommitMode {
    /// Apart from the effects, after the response is known.
    #[default]
    AfterResponse,
    /// In the same transaction as the business write, which updates the record by token and owner.
    WithEffects,
    /// Claim, effects and completion in one transaction (library only).
    OneTransaction,
}

/// What a retry gets when the lease is over and the outcome is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// 409 `outcome-unknown` until an operator resolves it or retention ends.
    #[default]
    Hold,
    /// It takes over: at least once.
    Retry,
}

/// What a concurrent duplicate gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InProgress {
    /// 409 with `Retry-After`.
    #[default]
    Reject,
    /// The first result, if it comes within this time; else 409.
    Wait(Duration),
}

// ---- breakers ------------------------------------------------------------------------------------

/// A circuit breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct Breaker {
    /// Unique among breakers.
    pub id: String,
    /// What it covers.
    pub resources: Resources,
    /// Whether each upstream host has a breaker of its own.
    pub per_upstream_host: bool,
    /// Which results are failures.
    pub failure: Vec<FailureKind>,
    /// What opens it; any one does.
    pub trip: Vec<Trip>,
    /// Nothing trips before so many results stand in the window. Default 20.
    pub min_requests: u64,
    /// Length of the sliding window. Default 10 s.
    pub window: Duration,
    /// How long the first opening lasts. Default 5 s.
    pub open_for: Duration,
    /// Repeated trips lengthen the opening up to this. Default 60 s.
    pub max_open: Duration,
    /// How recovery is tried.
    pub half_open: HalfOpen,
    /// What answers while it is open, in order; then fail fast.
    pub fallback: Vec<Fallback>,
}

/// A result that counts as a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// No answer within the resource's timeout.
    Timeout,
    /// The connection broke before a complete response head.
    Reset,
    /// A status from 500 to 599.
    ServerError,
    /// Exactly this status.
    Status(u16),
}

/// What opens a breaker. `at_least` means ≥.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trip {
    /// The share of calls slower than a threshold.
    SlowRatio {
        /// Slower than this is slow.
        slower_than: Duration,
        /// The share that trips.
        at_least: Percentage,
    },
    /// The share of failures.
    ErrorRatio {
        /// The share that trips.
        at_least: Percentage,
    },
    /// The number of failures in the window.
    ErrorCount {
        /// The number that trips, from 1.
        at_least: u64,
    },
}

/// How recovery is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    /// Calls that must all succeed. Default 1.
    pub probes: u32,
    /// A probe that is silent for so long is a failure. Default 10 s.
    pub probe_timeout: Duration,
}

/// What answers while a breaker is open.
#[derive(Clone, Debug, PartialEq)]
pub enum Fallback {
    /// The last good answer, at most so old.
    Cache {
        /// Its age at most.
        ttl: Duration,
    },
    /// A fixed answer.
    Respond {
        /// 200 to 599.
        status: u16,
        /// The body and its content type.
        body: FallbackBody,
    },
}

/// The body of a fixed answer.
#[derive(Clone, Debug, PartialEq)]
pub enum FallbackBody {
    /// None.
    Empty,
    /// `application/json`.
    Json(serde_json::Value),
    /// `text/plain; charset=utf-8`.
    Text(String),
}

// ---- rollout -------------------------------------------------------------------------------------

/// A named condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Unique among segments.
    pub id: String,
    /// When a request is in it.
    pub when: Condition,
}

/// A flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Flag {
    /// Unique among flags, without `:`.
    pub key: String,
    /// Variants in document order: name and value.
    pub variants: Vec<(String, serde_json::Value)>,
    /// The variant when no rule decides.
    pub default: String,
    /// Whether a session keeps its first result.
    pub sticky: Sticky,
    /// Highest priority first; document order among equals.
    pub rules: Vec<FlagRule>,
}

impl Flag {
    /// The value of the variant called `name`.
    pub fn value(&self, name: &str) -> Option<&serde_json::Value> {
        self.variants.iter().find(|(variant, _)| variant == name).map(|(_, value)| value)
    }
}

/// Whether a session keeps its first result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sticky {
    /// Evaluated each time.
    #[default]
    None,
    /// Kept in a signed cookie.
    Session,
}

/// One rule of a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagRule {
    /// Unique in its flag.
    pub id: String,
    /// Higher is asked first.
    pub priority: i64,
    /// Whom it is for; everybody when absent.
    pub when: Option<Condition>,
    /// The share of subjects; all of them when absent.
    pub percentage: Option<Percentage>,
    /// What they get.
    pub serve: Serve,
}

/// What a flag rule serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serve {
    /// One variant.
    Variant(String),
    /// Shares in document order, which add up to 100 %.
    Split(Vec<(String, Percentage)>),
}

/// Hundredths of a percent, 0 to 10000, parsed from text and never through a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percentage(u16);

impl Percentage {
    /// 100 %.
    pub const FULL: Self = Self(10_000);

    /// From hundredths of a percent; `None` above 10000.
    pub const fn from_hundredths(hundredths: u16) -> Option<Self> {
        if hundredths <= 10_000 { Some(Self(hundredths)) } else { None }
    }

    /// Hundredths of a percent, which is also how many of the 10000 buckets are hit.
    pub const fn hundredths(self) -> u16 {
        self.0
    }
}

// ---- conditions ----------------------------------------------------------------------------------

/// A two-valued condition over attributes.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// One attribute passes one test.
    Attribute {
        /// The attribute's name.
        name: String,
        /// The test.
        test: Test,
    },
    /// The request is in this segment.
    Segment(String),
    /// Each holds; true when empty.
    All(Vec<Condition>),
    /// At least one holds; false when empty.
    Any(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
}

/// A test of one attribute. False when the attribute is absent, null or of the wrong type; only
/// `NotIn`, which is "not `In`", is then true.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// The same scalar.
    Equals(Scalar),
    /// One of these.
    In(Vec<Scalar>),
    /// None of these, or absent.
    NotIn(Vec<Scalar>),
    /// Text that starts so.
    StartsWith(String),
    /// Text that ends so.
    EndsWith(String),
    /// Text in which this regular expression finds a match (unanchored).
    Matches(String),
    /// A number greater than this.
    Gt(String),
    /// A number greater than or equal to this.
    Gte(String),
    /// A number less than this.
    Lt(String),
    /// A number less than or equal to this.
    Lte(String),
    /// A version in this range, for example `>=1.2 <2`.
    Semver(String),
    /// An address in one of these networks.
    Cidr(Vec<String>),
    /// A time before this one; both RFC 3339.
    Before(String),
    /// A time after this one; both RFC 3339.
    After(String),
}

/// A scalar of the document, with its source text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// As written, without quotes and escapes.
    pub text: String,
    /// What it is by YAML 1.2's core schema.
    pub kind: ScalarKind,
}

/// What a scalar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalarKind {
    /// Quoted, or plain and nothing else.
    String,
    /// An integer or a decimal.
    Number,
    /// `true` or `false`.
    Bool,
}
