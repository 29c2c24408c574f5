//! Conditions over attributes.

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
