//! Conditions, compiled once and two-valued ever after.
//!
//! A test of an attribute that is absent, null or of the wrong type is false; `not_in` is "not `in`" and
//! then true. `not` turns whatever is below it around, so `not: { x: { gt: 1 } }` holds without `x`.
//!
//! What fits which test:
//!
//! | test | text | JSON number | JSON boolean | object, array |
//! |---|---|---|---|---|
//! | `equals`, `in` | same source text | same number | `true`, `false` unquoted | – |
//! | `gt` `gte` `lt` `lte` | wholly a decimal | yes | – | – |
//! | `starts_with` `ends_with` `matches` `semver` `cidr` `before` `after` | yes | – | – | – |

mod error;
mod size;

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

pub use self::error::ConditionError;
use self::size::Size;
pub use self::size::{MAX_DEPTH, MAX_TESTS};
use super::explain::Unmet;
pub use super::matcher::MAX_REGEX_BYTES;
use super::matcher::Matcher;
use crate::attribute::Attributes;
use crate::rule::model::{Condition, Segment, Test};

/// A condition that is ready to be evaluated.
#[derive(Debug)]
pub struct Compiled {
    node: Node,
    size: Size,
}

impl Compiled {
    /// Compiles `condition`, whose segments are among `segments`.
    pub fn new(condition: &Condition, segments: &Segments) -> Result<Self, ConditionError> {
        let mut resolve = |id: &str, _depth: usize| {
            segments
                .by_id
                .get(id)
                .cloned()
                .ok_or_else(|| ConditionError::UnknownSegment { id: id.to_owned() })
        };
        compile(condition, 1, &mut resolve)
    }

    /// Whether it holds. Allocates nothing; runs at most [`MAX_TESTS`] tests.
    pub fn holds<A: Attributes + ?Sized>(&self, attributes: &A) -> bool {
        self.node.holds(attributes)
    }

    /// Why it does not hold; `None` when it does.
    pub fn unmet<A: Attributes + ?Sized>(&self, attributes: &A) -> Option<Unmet> {
        self.node.unmet(attributes)
    }
}

/// Checks one test alone, so that each fault of a document can be reported where it stands.
pub fn check(test: &Test) -> Result<(), ConditionError> {
    Matcher::compile(test).map(|_| ())
}

/// The compiled segments of a rule set, each compiled once however often it is named.
#[derive(Debug, Default)]
pub struct Segments {
    by_id: HashMap<Box<str>, Arc<Compiled>, FixedState>,
}

impl Segments {
    /// Compiles all of them; each fault is reported with the id of the segment that has it.
    pub fn compile(segments: &[Segment]) -> Result<Self, Vec<(String, ConditionError)>> {
        let mut work = Resolver { sources: HashMap::default(), states: HashMap::default(), path: Vec::new() };
        let mut faults = Vec::new();
        for segment in segments {
            if work.sources.insert(&segment.id, &segment.when).is_some() {
                let error = ConditionError::DuplicateSegment { id: segment.id.clone() };
                faults.push((segment.id.clone(), error));
            }
        }
        for segment in segments {
            work.path.clear();
            if let Err(Some(error)) = work.resolve(&segment.id, 0) {
                faults.push((segment.id.clone(), error));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let by_id = work.states.into_iter().filter_map(|(id, state)| match state {
            State::Done(compiled) => Some((id.into(), compiled)),
            State::Open | State::Faulty => None,
        });
        Ok(Self { by_id: by_id.collect() })
    }
}

/// Compiles segments in the order in which they need each other.
struct Resolver<'a> {
    sources: HashMap<&'a str, &'a Condition, FixedState>,
    states: HashMap<&'a str, State, FixedState>,
    path: Vec<&'a str>,
}

enum State {
    /// Being compiled: meeting it again is a cycle.
    Open,
    Done(Arc<Compiled>),
    /// Reported already; what needs it is not reported again.
    Faulty,
}

impl Resolver<'_> {
    /// `Err(None)` when the fault lies in a segment that is reported elsewhere.
    fn resolve(&mut self, id: &str, depth: usize) -> Result<Arc<Compiled>, Option<ConditionError>> {
        let Some((&id, &source)) = self.sources.get_key_value(id) else {
            return Err(Some(ConditionError::UnknownSegment { id: id.to_owned() }));
        };
        match self.states.get(id) {
            Some(State::Done(compiled)) => return Ok(Arc::clone(compiled)),
            Some(State::Faulty) => return Err(None),
            Some(State::Open) => {
                let cycle = self.path.iter().skip_while(|open| **open != id).chain([&id]);
                let path = cycle.map(|id| (*id).to_owned()).collect();
                return Err(Some(ConditionError::SegmentCycle { path }));
            }
            None => {}
        }
        self.states.insert(id, State::Open);
        self.path.push(id);
        let mut elsewhere = false;
        let result = compile(source, depth + 1, &mut |inner: &str, depth: usize| {
            self.resolve(inner, depth).map_err(|error| {
                elsewhere = error.is_none();
                error.unwrap_or_else(|| ConditionError::UnknownSegment { id: inner.to_owned() })
            })
        });
        self.path.pop();
        match result {
            Ok(compiled) => {
                let compiled = Arc::new(compiled);
                self.states.insert(id, State::Done(Arc::clone(&compiled)));
                Ok(compiled)
            }
            Err(error) => {
                self.states.insert(id, State::Faulty);
                Err((!elsewhere).then_some(error))
            }
        }
    }
}

#[derive(Debug)]
pub(super) enum Node {
    Test(Box<AttributeTest>),
    Segment { id: Box<str>, compiled: Arc<Compiled> },
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
}

/// A test and the attribute that it is about.
#[derive(Debug)]
pub(super) struct AttributeTest {
    pub(super) name: Box<str>,
    pub(super) matcher: Matcher,
    /// As written, to explain it.
    pub(super) source: Test,
}

/// Finds the segment with an id, which is named so many levels below the top.
type Resolve<'a> = dyn FnMut(&str, usize) -> Result<Arc<Compiled>, ConditionError> + 'a;

/// Compiles one level, `depth` levels below the top.
fn compile(
    condition: &Condition,
    depth: usize,
    resolve: &mut Resolve<'_>,
) -> Result<Compiled, ConditionError> {
    if depth > MAX_DEPTH {
        return Err(ConditionError::TooDeep);
    }
    let list = |conditions: &[Condition], resolve: &mut Resolve<'_>| {
        let mut size = Size::default();
        let mut nodes = Vec::with_capacity(conditions.len().min(MAX_TESTS));
        for condition in conditions {
            let compiled = compile(condition, depth + 1, resolve)?;
            size = size.beside(compiled.size);
            nodes.push(compiled.node);
            size.check()?;
        }
        Ok::<_, ConditionError>((nodes.into_boxed_slice(), size.listed()))
    };
    let (node, size) = match condition {
        Condition::Attribute { name, test } => {
            let matcher = Matcher::compile(test)?;
            let test = AttributeTest { name: name.as_str().into(), matcher, source: test.clone() };
            (Node::Test(Box::new(test)), Size::TEST)
        }
        Condition::Segment(id) => {
            let compiled = resolve(id, depth)?;
            let size = compiled.size.wrapped();
            (Node::Segment { id: id.as_str().into(), compiled }, size)
        }
        Condition::All(conditions) => {
            let (nodes, size) = list(conditions, resolve)?;
            (Node::All(nodes), size)
        }
        Condition::Any(conditions) => {
            let (nodes, size) = list(conditions, resolve)?;
            (Node::Any(nodes), size)
        }
        Condition::Not(condition) => {
            let compiled = compile(condition, depth + 1, resolve)?;
            (Node::Not(Box::new(compiled.node)), compiled.size.wrapped())
        }
    };
    size.check()?;
    Ok(Compiled { node, size })
}

impl Node {
    fn holds<A: Attributes + ?Sized>(&self, attributes: &A) -> bool {
        match self {
            Self::Test(test) => test.matcher.matches(attributes.get(&test.name)),
            Self::Segment { compiled, .. } => compiled.node.holds(attributes),
            Self::All(nodes) => nodes.iter().all(|node| node.holds(attributes)),
            Self::Any(nodes) => nodes.iter().any(|node| node.holds(attributes)),
            Self::Not(node) => !node.holds(attributes),
        }
    }

    fn unmet<A: Attributes + ?Sized>(&self, attributes: &A) -> Option<Unmet> {
        match self {
            Self::Test(test) => {
                let value = attributes.get(&test.name);
                (!test.matcher.matches(value)).then(|| Unmet::test(test, value))
            }
            Self::Segment { id, compiled } => {
                let because = Box::new(compiled.node.unmet(attributes)?);
                Some(Unmet::Segment { id: id.to_string(), because })
            }
            Self::All(nodes) => nodes.iter().find_map(|node| node.unmet(attributes)),
            Self::Any(nodes) => {
                nodes.iter().map(|node| node.unmet(attributes)).collect::<Option<_>>().map(Unmet::NoneOf)
            }
            Self::Not(node) => node.holds(attributes).then(|| Unmet::Negated(node.to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
