//! Resources that can match one request with equal right.
//!
//! Only those compete that share a host pattern, a method (or take any), and a path rank. Patterns of one
//! rank overlap only when both end in `{*rest}` or neither does: then they have equally many segments,
//! and overlap when no two literals in one place differ. They are compared by the places of their
//! literals, not one by one, so that ten thousand resources of one shape cost ten thousand steps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;

use super::super::model::PathSegment;
use super::{HostPattern, MAX_TIES, Pattern, Rank, Route};

/// Two resources that can match one request with equal right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tie {
    /// The id of the one that comes first in the document.
    pub first: String,
    /// The id of the other.
    pub second: String,
    /// A request that both match.
    pub example: String,
}

/// What two resources must share to compete.
type Group<'a> = (&'a HostPattern, Option<&'a str>, Rank, bool);

/// Ties in document order of their second resource; at most [`MAX_TIES`].
pub(super) fn find(routes: &[Route<'_>]) -> Vec<Tie> {
    let mut groups: BTreeMap<Group<'_>, Vec<usize>> = BTreeMap::new();
    for (at, route) in routes.iter().enumerate() {
        let methods: BTreeSet<Option<&str>> = if route.methods.is_empty() {
            BTreeSet::from([None])
        } else {
            route.methods.iter().map(|method| Some(method.as_str())).collect()
        };
        for host in &route.hosts {
            for method in &methods {
                let key = (host, *method, route.pattern.rank(), route.pattern.has_rest());
                groups.entry(key).or_default().push(at);
            }
        }
    }
    let mut ties = BTreeMap::new();
    for ((host, method, ..), members) in &groups {
        for (first, second) in overlaps(routes, members) {
            if ties.len() == MAX_TIES {
                break;
            }
            let (one, other) = (&routes[first], &routes[second]);
            ties.entry((second, first)).or_insert_with(|| Tie {
                first: one.id.to_owned(),
                second: other.id.to_owned(),
                example: example(host, *method, &one.pattern, &other.pattern),
            });
        }
    }
    ties.into_values().collect()
}

/// The literals of a pattern with their places.
fn literals(pattern: &Pattern) -> impl Iterator<Item = (usize, &str)> {
    pattern.0.iter().enumerate().filter_map(|(at, segment)| match segment {
        PathSegment::Literal(text) => Some((at, text.as_str())),
        PathSegment::Param(_) | PathSegment::Rest(_) => None,
    })
}

/// Pairs, the smaller place first, of members whose patterns overlap; about [`MAX_TIES`] of them.
fn overlaps(routes: &[Route<'_>], members: &[usize]) -> Vec<(usize, usize)> {
    let mut shapes: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for member in members {
        let places = literals(&routes[*member].pattern).map(|(at, _)| at).collect();
        shapes.entry(places).or_default().push(*member);
    }
    let shapes: Vec<(Vec<usize>, Vec<usize>)> = shapes.into_iter().collect();
    let mut pairs = Vec::new();
    for (at, (places, members)) in shapes.iter().enumerate() {
        for (other_places, others) in &shapes[at..] {
            let common: Vec<usize> = places.iter().copied().filter(|at| other_places.contains(at)).collect();
            let key = |member: usize| -> Vec<&str> {
                let all = literals(&routes[member].pattern);
                all.filter(|(at, _)| common.contains(at)).map(|(_, text)| text).collect()
            };
            let mut by_key: HashMap<Vec<&str>, Vec<usize>, FixedState> = HashMap::default();
            for other in others {
                by_key.entry(key(*other)).or_default().push(*other);
            }
            for member in members {
                for other in by_key.get(&key(*member)).into_iter().flatten() {
                    // A shape meets itself, too: each pair once, and nobody ties with itself.
                    let fresh = places != other_places || other < member;
                    if fresh && no_gap(&routes[*member].pattern, &routes[*other].pattern) {
                        pairs.push((*member.min(other), *member.max(other)));
                    }
                    if pairs.len() == MAX_TIES {
                        return pairs;
                    }
                }
            }
        }
    }
    pairs
}

/// The empty segment after a final slash is the one literal that `{x}` does not take.
fn no_gap(one: &Pattern, other: &Pattern) -> bool {
    let empty = |segment: &PathSegment| matches!(segment, PathSegment::Literal(text) if text.is_empty());
    one.0.iter().zip(&other.0).all(|(one, other)| empty(one) == empty(other))
}

fn example(host: &HostPattern, method: Option<&str>, one: &Pattern, other: &Pattern) -> String {
    let mut text = method.unwrap_or("GET").to_owned();
    text.push(' ');
    match host {
        HostPattern::Exact(name) => text.push_str(name),
        HostPattern::Below(suffix) => {
            text.push_str("x.");
            text.push_str(suffix);
        }
        HostPattern::Any => {}
    }
    for pair in one.0.iter().zip(&other.0) {
        text.push('/');
        text.push_str(match pair {
            (PathSegment::Literal(text), _) | (_, PathSegment::Literal(text)) => text,
            _ => "x",
        });
    }
    text
}
