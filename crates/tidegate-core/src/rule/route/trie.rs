//! The patterns of one host: exact paths in a hash map, the others in a trie of segments.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::super::model::PathSegment;
use super::{MAX_PATTERN_SEGMENTS, Pattern, Rank};

/// A path in the form in which it is compared, cut into segments once one table asks for them.
pub(super) struct Segments<'a> {
    path: &'a str,
    /// At most one more than any pattern has: what follows matters only to `{*rest}`.
    cut: SmallVec<[&'a str; 16]>,
}

impl<'a> Segments<'a> {
    /// `None` for what is no path, such as `*`.
    pub(super) fn new(path: &'a str) -> Option<Self> {
        path.starts_with('/').then_some(Self { path, cut: SmallVec::new() })
    }

    fn cut(&mut self) -> &[&'a str] {
        if self.cut.is_empty() {
            self.cut.extend(self.path.split('/').skip(1).take(MAX_PATTERN_SEGMENTS + 1));
        }
        &self.cut
    }
}

#[derive(Debug, Default)]
pub(super) struct Paths {
    exact: HashMap<Box<str>, Leaf, FixedState>,
    /// The root is the first.
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, usize, FixedState>,
    param: Option<usize>,
    /// The patterns that end here.
    end: Leaf,
    /// The patterns that end here with `{*rest}`.
    rest: Leaf,
    /// The highest rank of any pattern that passes here.
    best: Rank,
}

/// The resources of one pattern, by method.
#[derive(Debug, Default)]
struct Leaf {
    any: Option<usize>,
    listed: Vec<(Box<str>, usize)>,
}

impl Leaf {
    fn insert(&mut self, methods: &[String], resource: usize) {
        if methods.is_empty() {
            self.any = Some(resource);
        }
        self.listed.extend(methods.iter().map(|method| (method.as_str().into(), resource)));
    }

    /// The resource for a method, and whether it lists it.
    fn find(&self, method: &str) -> Option<(bool, usize)> {
        let listed = self.listed.iter().find(|(listed, _)| **listed == *method);
        listed.map(|(_, resource)| (true, *resource)).or(self.any.map(|resource| (false, resource)))
    }
}

impl Paths {
    pub(super) fn insert(&mut self, pattern: &Pattern, methods: &[String], resource: usize) {
        let mut exact = String::new();
        for segment in &pattern.0 {
            if let PathSegment::Literal(text) = segment {
                exact.push('/');
                exact.push_str(text);
            }
        }
        let rank = pattern.rank();
        if rank.0 == pattern.0.len() {
            self.exact.entry(exact.into()).or_default().insert(methods, resource);
            return;
        }
        let mut at = 0;
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        for segment in &pattern.0 {
            let fresh = self.nodes.len();
            let node = &mut self.nodes[at];
            node.best = node.best.max(rank);
            at = match segment {
                PathSegment::Literal(text) => *node.literals.entry(text.as_str().into()).or_insert(fresh),
                PathSegment::Param(_) => *node.param.get_or_insert(fresh),
                PathSegment::Rest(_) => {
                    node.rest.insert(methods, resource);
                    return;
                }
            };
            if at == fresh {
                self.nodes.push(Node::default());
            }
        }
        let node = &mut self.nodes[at];
        node.best = node.best.max(rank);
        node.end.insert(methods, resource);
    }

    pub(super) fn find(&self, method: &str, path: &mut Segments<'_>) -> Option<usize> {
        // All literals: nothing outranks it.
        if let Some((_, found)) = self.exact.get(path.path).and_then(|leaf| leaf.find(method)) {
            return Some(found);
        }
        let root = self.nodes.first()?;
        let mut search = Search::new(&self.nodes, method, path);
        search.visit(root, 0, (0, 0));
        search.best.map(|(_, _, resource)| resource)
    }
}

/// One search for the highest rank. Each node has one way to it, so none is visited twice, and a branch
/// that holds no higher rank than was found is left out. Patterns that leave two ways open at each of `n`
/// segments can make it visit 2ⁿ nodes, never more than there are.
struct Search<'a> {
    nodes: &'a [Node],
    method: &'a str,
    segments: &'a [&'a str],
    /// Its rank, whether it lists the method, and the resource. The method breaks ties of rank.
    best: Option<(Rank, bool, usize)>,
    #[cfg(test)]
    visited: usize,
}

impl<'a> Search<'a> {
    fn new(nodes: &'a [Node], method: &'a str, path: &'a mut Segments<'_>) -> Self {
        let segments = path.cut();
        Self {
            nodes,
            method,
            segments,
            best: None,
            #[cfg(test)]
            visited: 0,
        }
    }

    /// `rank` is that of the way to `node`, which took so many segments.
    fn visit(&mut self, node: &Node, taken: usize, rank: Rank) {
        if self.best.is_some_and(|(best, listed, _)| (node.best, true) <= (best, listed)) {
            return;
        }
        #[cfg(test)]
        {
            self.visited += 1;
        }
        let Some(segment) = self.segments.get(taken) else {
            self.offer(&node.end, rank);
            return;
        };
        // Literals first: they lead to higher ranks, and those leave out more.
        if let Some(next) = node.literals.get(*segment).and_then(|next| self.nodes.get(*next)) {
            self.visit(next, taken + 1, (rank.0 + 1, rank.1));
        }
        if segment.is_empty() {
            return;
        }
        if let Some(next) = node.param.and_then(|next| self.nodes.get(next)) {
            self.visit(next, taken + 1, (rank.0, rank.1 + 1));
        }
        self.offer(&node.rest, rank);
    }

    fn offer(&mut self, leaf: &Leaf, rank: Rank) {
        let Some((listed, resource)) = leaf.find(self.method) else { return };
        self.best = self.best.max(Some((rank, listed, resource)));
    }
}

#[cfg(test)]
pub(super) fn visited(paths: &Paths, method: &str, path: &str) -> usize {
    let mut segments = Segments::new(path).unwrap();
    let mut search = Search::new(&paths.nodes, method, &mut segments);
    search.visit(&paths.nodes[0], 0, (0, 0));
    search.visited
}
