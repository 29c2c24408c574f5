//! Conditions as alternatives ("any of these terms") of literals ("all of these tests").

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use ipnet::IpNet;

use super::atom::{Atom, Form, Verdict};
use crate::rollout::decimal::OwnedDecimal;
use crate::rollout::matcher::{Bound, Matcher};
use crate::rule::model::{Condition, Segment, Test};

/// Most alternatives that one condition is unfolded into.
const MAX_TERMS: usize = 128;
/// Most tests in one alternative.
const MAX_LITERALS: usize = 256;
/// Deepest nesting that is followed, segments included.
const MAX_DEPTH: usize = 64;
/// Most comparisons of tests for one rule set: a second or so at the worst.
const MAX_STEPS: u64 = 8_000_000;

/// A test of an attribute that holds, or does not. Both are indices into [`Space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Literal {
    attribute: u32,
    atom: u32,
    positive: bool,
}

/// Tests that all hold, sorted and without doubles. Empty is always true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term(Vec<Literal>);

/// Alternatives. Empty is never true.
pub(super) type Terms = Rc<Vec<Term>>;

/// The condition takes more work to unfold or compare than is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooComplex;

struct Known<'a> {
    test: &'a Test,
    atom: Atom<'a>,
    negated: bool,
}

/// All that was learned about the conditions of one rule set.
pub(super) struct Space<'a> {
    segments: HashMap<&'a str, &'a Condition>,
    /// By segment and polarity; `None` while it is being unfolded, which finds cycles.
    unfolded: HashMap<(&'a str, bool), Option<Result<Terms, TooComplex>>>,
    attributes: HashMap<&'a str, u32>,
    /// A test is known by its address, which is stable while the rule set is borrowed.
    known: HashMap<*const Test, u32>,
    atoms: Vec<Known<'a>>,
    steps: u64,
}

impl<'a> Space<'a> {
    pub(super) fn new(segments: &'a [Segment]) -> Self {
        Self {
            segments: segments.iter().map(|segment| (segment.id.as_str(), &segment.when)).collect(),
            unfolded: HashMap::new(),
            attributes: HashMap::new(),
            known: HashMap::new(),
            atoms: Vec::new(),
            steps: 0,
        }
    }

    /// The alternatives of a condition, without those that surely never hold.
    pub(super) fn unfold(&mut self, condition: Option<&'a Condition>) -> Result<Terms, TooComplex> {
        match condition {
            None => Ok(Rc::new(vec![Term(Vec::new())])),
            Some(condition) => self.walk(condition, true, 0),
        }
    }

    /// Whether surely no values make both hold.
    pub(super) fn disjoint(&mut self, left: &Terms, right: &Terms) -> Result<bool, TooComplex> {
        Ok(self.cross(left, right, true)?.is_empty())
    }

    fn step(&mut self, steps: usize) -> Result<(), TooComplex> {
        self.steps = self.steps.saturating_add(steps as u64);
        if self.steps > MAX_STEPS { Err(TooComplex) } else { Ok(()) }
    }

    fn walk(&mut self, condition: &'a Condition, positive: bool, depth: usize) -> Result<Terms, TooComplex> {
        if depth > MAX_DEPTH {
            return Err(TooComplex);
        }
        self.step(1)?;
        match condition {
            Condition::Attribute { name, test } => {
                let literal = self.literal(name, test, positive);
                let term = Term(vec![literal]);
                let holds = !self.contradicts(&term)?;
                Ok(Rc::new(if holds { vec![term] } else { Vec::new() }))
            }
            Condition::Segment(id) => self.segment(id, positive, depth),
            Condition::Not(inner) => self.walk(inner, !positive, depth + 1),
            Condition::All(parts) if positive => self.every(parts, positive, depth),
            Condition::Any(parts) if !positive => self.every(parts, positive, depth),
            Condition::All(parts) | Condition::Any(parts) => self.some(parts, positive, depth),
        }
    }

    fn segment(&mut self, id: &'a str, positive: bool, depth: usize) -> Result<Terms, TooComplex> {
        let Some(condition) = self.segments.get(id).copied() else {
            // Nothing is known about it, so it may hold.
            return Ok(Rc::new(vec![Term(Vec::new())]));
        };
        match self.unfolded.entry((id, positive)) {
            Entry::Occupied(known) => known.get().clone().unwrap_or(Err(TooComplex)),
            Entry::Vacant(slot) => {
                slot.insert(None);
                let terms = self.walk(condition, positive, depth + 1);
                self.unfolded.insert((id, positive), Some(terms.clone()));
                terms
            }
        }
    }

    fn every(&mut self, parts: &'a [Condition], positive: bool, depth: usize) -> Result<Terms, TooComplex> {
        let mut all = Rc::new(vec![Term(Vec::new())]);
        for part in parts {
            let terms = self.walk(part, positive, depth + 1)?;
            all = Rc::new(self.cross(&all, &terms, false)?);
        }
        Ok(all)
    }

    fn some(&mut self, parts: &'a [Condition], positive: bool, depth: usize) -> Result<Terms, TooComplex> {
        let mut any: Vec<Term> = Vec::new();
        for part in parts {
            for term in self.walk(part, positive, depth + 1)?.iter() {
                self.step(any.len())?;
                if !any.contains(term) {
                    any.push(term.clone());
                }
            }
            if any.len() > MAX_TERMS {
                return Err(TooComplex);
            }
        }
        Ok(Rc::new(any))
    }

    /// Every pair of alternatives that may hold together; with `first_only`, one of them is enough.
    fn cross(&mut self, left: &[Term], right: &[Term], first_only: bool) -> Result<Vec<Term>, TooComplex> {
        let mut both: Vec<Term> = Vec::new();
        for one in left {
            for other in right {
                let mut literals = [one.0.as_slice(), &other.0].concat();
                literals.sort_unstable();
                literals.dedup();
                self.step(literals.len().max(1))?;
                if literals.len() > MAX_LITERALS {
                    return Err(TooComplex);
                }
                let term = Term(literals);
                if self.contradicts(&term)? || (!first_only && both.contains(&term)) {
                    continue;
                }
                both.push(term);
                if first_only {
                    return Ok(both);
                }
                if both.len() > MAX_TERMS {
                    return Err(TooComplex);
                }
            }
        }
        Ok(both)
    }

    fn literal(&mut self, name: &'a str, test: &'a Test, positive: bool) -> Literal {
        let next = self.attributes.len() as u32;
        let attribute = *self.attributes.entry(name).or_insert(next);
        let atoms = &mut self.atoms;
        let atom = *self.known.entry(std::ptr::from_ref(test)).or_insert_with(|| {
            let (atom, negated) = Atom::new(test);
            atoms.push(Known { test, atom, negated });
            atoms.len() as u32 - 1
        });
        Literal { attribute, atom, positive: positive != self.atoms[atom as usize].negated }
    }

    /// Whether surely no values make every literal hold.
    fn contradicts(&mut self, term: &Term) -> Result<bool, TooComplex> {
        for group in term.0.chunk_by(|left, right| left.attribute == right.attribute) {
            if self.group_contradicts(group)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same for the literals of one attribute.
    fn group_contradicts(&mut self, group: &[Literal]) -> Result<bool, TooComplex> {
        self.step(group.len() * group.len())?;
        if self.negates_itself(group) || self.no_listed_value_is_left(group)? {
            return Ok(true);
        }
        let group: Vec<(&Matcher, bool)> = group
            .iter()
            .filter_map(|literal| match &self.atoms[literal.atom as usize].atom {
                Atom::Single(matcher) => Some((matcher, literal.positive)),
                Atom::Finite(_) | Atom::Pattern(..) | Atom::Unknown => None,
            })
            .collect();
        Ok(no_number(&group)
            || no_version(&group)
            || no_address(&group)
            || no_text(&group)
            || no_time(&group))
    }

    /// P and not-P, in the same words.
    fn negates_itself(&self, group: &[Literal]) -> bool {
        group.iter().filter(|literal| literal.positive).any(|held| {
            group.iter().filter(|literal| !literal.positive).any(|denied| {
                let (held, denied) = (&self.atoms[held.atom as usize], &self.atoms[denied.atom as usize]);
                // Lists are compared by value further on, in linear time.
                !matches!(held.atom, Atom::Finite(_)) && held.test == denied.test
            })
        })
    }

    /// Where the value is one of a finite set: whether each of them fails another test.
    fn no_listed_value_is_left(&mut self, group: &[Literal]) -> Result<bool, TooComplex> {
        let finite = |literal: &&Literal| match &self.atoms[literal.atom as usize].atom {
            Atom::Finite(set) if literal.positive => Some((set.len(), **literal)),
            _ => None,
        };
        let Some((_, smallest)) =
            group.iter().filter_map(|literal| finite(&literal)).min_by_key(|(len, _)| *len)
        else {
            return Ok(false);
        };
        let Atom::Finite(set) = &self.atoms[smallest.atom as usize].atom else { return Ok(false) };
        let passes = |form: Form<'_>, literal: &Literal| {
            let verdict = self.atoms[literal.atom as usize].atom.holds(form);
            let verdict = if literal.positive { verdict } else { verdict.negated() };
            verdict != Verdict::Never
        };
        let mut tried = 0;
        let left = set.forms().any(|form| {
            tried += group.len();
            group.iter().filter(|literal| **literal != smallest).all(|literal| passes(form, literal))
        });
        self.step(tried)?;
        Ok(!left)
    }
}

/// Tests of one attribute, each with whether it holds.
type Group<'a> = [(&'a Matcher, bool)];

/// Numbers: an empty interval. Denied bounds count only beside a held one, because a value that is no
/// number at all passes them.
fn no_number(group: &Group<'_>) -> bool {
    let bounds = || {
        group.iter().filter_map(|(matcher, held)| match matcher {
            Matcher::Compare(bound, at) => Some((if *held { *bound } else { bound.negated() }, at)),
            _ => None,
        })
    };
    let is_number = group.iter().any(|(matcher, held)| *held && matches!(matcher, Matcher::Compare(..)));
    let lower = bounds().filter(|(bound, _)| matches!(bound, Bound::Above | Bound::AtLeast));
    let strict = |bound: Bound| matches!(bound, Bound::Above | Bound::Below);
    is_number
        && lower.into_iter().any(|(low, from): (Bound, &OwnedDecimal)| {
            bounds().filter(|(bound, _)| matches!(bound, Bound::Below | Bound::AtMost)).any(|(high, to)| {
                let order = from.borrowed().compare(to.borrowed());
                order.is_gt() || (order.is_eq() && (strict(low) || strict(high)))
            })
        })
}

/// Versions: ranges without a common version. Of intervals, two that do not meet are enough.
fn no_version(group: &Group<'_>) -> bool {
    let ranges = || {
        group.iter().filter_map(|(matcher, held)| match matcher {
            Matcher::Semver(range) if *held => Some(range),
            _ => None,
        })
    };
    ranges().any(|one| ranges().any(|other| one.is_disjoint(other)))
}

/// Addresses: no common network, or every one of them denied.
fn no_address(group: &Group<'_>) -> bool {
    let nets = |wanted: bool| {
        group.iter().filter_map(move |(matcher, held)| match matcher {
            Matcher::Cidr(nets) if *held == wanted => Some(nets),
            _ => None,
        })
    };
    nets(true).any(|held| {
        let denied = || nets(false).flatten();
        held.iter().all(|inner| denied().any(|outer| outer.contains(inner)))
            || nets(true).any(|other| !held.iter().any(|one| other.iter().any(|two| overlap(one, two))))
    })
}

/// Whether some address may lie in both. A mapped IPv4 address is IPv4, so the two families never meet.
fn overlap(left: &IpNet, right: &IpNet) -> bool {
    left.contains(right) || right.contains(left)
}

/// Text: beginnings (or ends) of which none continues the other, or one that continues a denied one.
fn no_text(group: &Group<'_>) -> bool {
    let prefixes = |wanted: bool| {
        group.iter().filter_map(move |(matcher, held)| match matcher {
            Matcher::StartsWith(part) if *held == wanted => Some(&**part),
            _ => None,
        })
    };
    let suffixes = |wanted: bool| {
        group.iter().filter_map(move |(matcher, held)| match matcher {
            Matcher::EndsWith(part) if *held == wanted => Some(&**part),
            _ => None,
        })
    };
    prefixes(true).any(|one| {
        prefixes(true).any(|other| !one.starts_with(other) && !other.starts_with(one))
            || prefixes(false).any(|denied| one.starts_with(denied))
    }) || suffixes(true).any(|one| {
        suffixes(true).any(|other| !one.ends_with(other) && !other.ends_with(one))
            || suffixes(false).any(|denied| one.ends_with(denied))
    })
}

/// Times: an empty interval, as with numbers.
fn no_time(group: &Group<'_>) -> bool {
    let is_time =
        group.iter().any(|(test, held)| *held && matches!(test, Matcher::Before(_) | Matcher::After(_)));
    // (time, whether the time itself is excluded)
    let lower = group.iter().filter_map(|(matcher, held)| match (matcher, held) {
        (Matcher::After(at), true) => Some((*at, true)),
        (Matcher::Before(at), false) => Some((*at, false)),
        _ => None,
    });
    let upper = || {
        group.iter().filter_map(|(matcher, held)| match (matcher, held) {
            (Matcher::Before(at), true) => Some((*at, true)),
            (Matcher::After(at), false) => Some((*at, false)),
            _ => None,
        })
    };
    is_time
        && lower
            .into_iter()
            .any(|(from, after)| upper().any(|(to, before)| from > to || (from == to && (after || before))))
}

#[cfg(test)]
mod tests;
