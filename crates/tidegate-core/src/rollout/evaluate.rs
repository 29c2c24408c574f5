//! Flags, compiled once, and their evaluation.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use serde_json::Value as Json;

use super::bucket::{BUCKETS, bucket, hits, split_bucket};
use super::condition::{Compiled, ConditionError, Segments};
use super::decimal::Decimal;
use crate::attribute::Attributes;
use crate::rule::RuleSet;
use crate::rule::model;
use crate::rule::model::Percentage;

/// Why a rule set's flags cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlagsFault {
    /// A segment is faulty.
    #[error("segment `{segment}`: {error}")]
    Segment {
        /// Its id.
        segment: String,
        /// What is wrong.
        error: ConditionError,
    },
    /// The condition of a rule is faulty.
    #[error("flag `{flag}`, rule `{rule}`: {error}")]
    Condition {
        /// The flag's key.
        flag: String,
        /// The rule's id.
        rule: String,
        /// What is wrong.
        error: ConditionError,
    },
    /// A default, or what a rule serves, is no variant of the flag.
    #[error("flag `{flag}` has no variant `{variant}`; add it under `variants`, or serve another")]
    UnknownVariant {
        /// The flag's key.
        flag: String,
        /// The variant's name.
        variant: String,
    },
    /// The shares of a split do not add up.
    #[error(
        "flag `{flag}`, rule `{rule}`: the shares of the split add up to {sum} hundredths of a percent; \
         make them 10000, which is 100 %"
    )]
    SplitSum {
        /// The flag's key.
        flag: String,
        /// The rule's id.
        rule: String,
        /// Hundredths of a percent.
        sum: u64,
    },
    /// Two flags have one key.
    #[error("two flags have the key `{flag}`; rename one")]
    DuplicateFlag {
        /// The key.
        flag: String,
    },
    /// A `:` in a flag's key would let two flags share their buckets.
    #[error("the flag key `{flag}` contains `:`; take another character")]
    ColonInKey {
        /// The key.
        flag: String,
    },
}

/// Why a flag has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// There is no such flag.
    #[error("there is no flag `{flag}`")]
    FlagNotFound {
        /// What was asked for.
        flag: String,
    },
    /// A percentage or a split was reached, and nobody said who is asking.
    #[error(
        "rule `{rule}` of flag `{flag}` draws by subject, and the request has none; send a targeting key"
    )]
    SubjectMissing {
        /// The flag's key.
        flag: String,
        /// The rule that was reached.
        rule: String,
    },
}

impl EvaluateError {
    /// The error code that OpenFeature gives this.
    pub fn code(&self) -> &'static str {
        match self {
            Self::FlagNotFound { .. } => "FLAG_NOT_FOUND",
            Self::SubjectMissing { .. } => "TARGETING_KEY_MISSING",
        }
    }
}

/// Why a flag has this result, in OpenFeature's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The flag has no rules.
    Static,
    /// A rule's condition decided.
    TargetingMatch,
    /// A percentage or a split decided.
    Split,
    /// No rule matched.
    Default,
    /// The flag has no result.
    Error,
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// Its place among them, below [`Reason::COUNT`].
    pub const fn index(self) -> usize {
        match self {
            Self::Static => 0,
            Self::TargetingMatch => 1,
            Self::Split => 2,
            Self::Default => 3,
            Self::Error => 4,
        }
    }

    /// Its name in OpenFeature, in answers and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "STATIC",
            Self::TargetingMatch => "TARGETING_MATCH",
            Self::Split => "SPLIT",
            Self::Default => "DEFAULT",
            Self::Error => "ERROR",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The result of a flag.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation<'a> {
    /// The flag's key.
    pub flag: &'a str,
    /// The variant's name.
    pub variant: &'a str,
    /// The variant's place among the flag's, in document order.
    pub variant_index: usize,
    /// The variant's value; numbers keep their source text.
    pub value: &'a Json,
    /// Why.
    pub reason: Reason,
    /// The id of the rule that decided; `None` for the default.
    pub rule: Option<&'a str>,
    /// The subject's bucket, 0 to 9999, if a percentage was reached, whether or not it was hit.
    pub bucket: Option<u16>,
    /// The subject's bucket in the draw between variants, if a split decided.
    pub split_bucket: Option<u16>,
}

impl Evaluation<'_> {
    /// The value as a whole number; `None` when it is no number, has a fraction or does not fit. How it
    /// was written counts for nothing: `1`, `1.0` and `1e0` are all 1.
    pub fn integer(&self) -> Option<i64> {
        match self.value {
            Json::Number(number) => Decimal::parse(number.as_str())?.to_i64(),
            _ => None,
        }
    }

    /// The value as a floating-point number; `None` when it is no number or not finite. How it was
    /// written counts for nothing: `1` and `1.0` are both 1.0.
    pub fn float(&self) -> Option<f64> {
        self.value.as_f64().filter(|float| float.is_finite())
    }
}

/// The place of a flag in its [`Flags`]: found once, so that a request need not look keys up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlagIndex(usize);

/// All flags of a rule set, ready to be evaluated.
#[derive(Debug, Default)]
pub struct Flags {
    flags: Vec<Flag>,
    by_key: HashMap<Box<str>, FlagIndex, FixedState>,
}

impl Flags {
    /// Compiles the flags and segments of `rules`; reports every fault.
    pub fn compile(rules: &RuleSet) -> Result<Self, Vec<FlagsFault>> {
        let mut faults = Vec::new();
        let segments = Segments::compile(&rules.segments).unwrap_or_else(|errors| {
            let fault = |(segment, error)| FlagsFault::Segment { segment, error };
            faults.extend(errors.into_iter().map(fault));
            Segments::default()
        });
        let faulty_segments = !faults.is_empty();
        let mut compiled = Self::default();
        for source in &rules.flags {
            let index = FlagIndex(compiled.flags.len());
            if compiled.by_key.insert(source.key.as_str().into(), index).is_some() {
                faults.push(FlagsFault::DuplicateFlag { flag: source.key.clone() });
            }
            compiled.flags.push(Flag::compile(source, &segments, &mut faults));
        }
        if faulty_segments {
            // No segment exists now, so that rules which name one say nothing new.
            faults.retain(|fault| {
                !matches!(fault, FlagsFault::Condition { error: ConditionError::UnknownSegment { id }, .. }
                    if rules.segments.iter().any(|segment| segment.id == *id))
            });
        }
        if faults.is_empty() { Ok(compiled) } else { Err(faults) }
    }

    /// The place of the flag called `key`.
    pub fn index(&self, key: &str) -> Option<FlagIndex> {
        self.by_key.get(key).copied()
    }

    /// All keys, in document order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.flags.iter().map(|flag| &*flag.key)
    }

    /// The result of the flag called `key` for `subject` with `attributes`.
    ///
    /// Rules are asked by priority, highest first; the first that matches decides, else the default. A
    /// missing subject is an error only once a percentage or a split is reached; the empty subject is one
    /// like any other.
    pub fn evaluate<A: Attributes + ?Sized>(
        &self,
        key: &str,
        subject: Option<&str>,
        attributes: &A,
    ) -> Result<Evaluation<'_>, EvaluateError> {
        self.flag(key)?.evaluate(subject, attributes)
    }

    /// The same for a flag whose place is known. Allocates nothing but for an error.
    ///
    /// An index of another rule set gives another flag, or [`EvaluateError::FlagNotFound`].
    pub fn evaluate_at<A: Attributes + ?Sized>(
        &self,
        index: FlagIndex,
        subject: Option<&str>,
        attributes: &A,
    ) -> Result<Evaluation<'_>, EvaluateError> {
        match self.flags.get(index.0) {
            Some(flag) => flag.evaluate(subject, attributes),
            None => Err(EvaluateError::FlagNotFound { flag: format!("#{}", index.0) }),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<&Flag, EvaluateError> {
        self.index(key)
            .and_then(|index| self.flags.get(index.0))
            .ok_or_else(|| EvaluateError::FlagNotFound { flag: key.to_owned() })
    }
}

#[derive(Debug)]
pub(super) struct Flag {
    pub(super) key: Box<str>,
    variants: Box<[(Box<str>, Json)]>,
    default: usize,
    pub(super) rules: Box<[Rule]>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: Box<str>,
    pub(super) priority: i64,
    pub(super) when: Option<Compiled>,
    pub(super) percentage: Option<Percentage>,
    serve: Serve,
}

/// Variants are places in the flag's list.
#[derive(Debug)]
enum Serve {
    Variant(usize),
    /// Each variant with the bucket that its share ends before, rising to 10000.
    Split(Box<[(u16, usize)]>),
}

/// What became of a rule whose condition was tested.
pub(super) enum Matched {
    /// The condition does not hold.
    Unmet,
    /// The subject's bucket is not in the share.
    Outside,
    /// It decides.
    Decides,
    /// It draws, and there is no subject.
    NoSubject,
}

impl Rule {
    /// Whether the rule decides. `bucket` remembers the subject's bucket, which is the same for every
    /// rule of the flag.
    pub(super) fn matches<A: Attributes + ?Sized>(
        &self,
        flag: &str,
        subject: Option<&str>,
        attributes: &A,
        drawn: &mut Option<u16>,
    ) -> Matched {
        if self.when.as_ref().is_some_and(|when| !when.holds(attributes)) {
            return Matched::Unmet;
        }
        if self.percentage.is_none() && matches!(self.serve, Serve::Variant(_)) {
            return Matched::Decides;
        }
        let Some(subject) = subject else { return Matched::NoSubject };
        match self.percentage {
            Some(percentage) if !hits(percentage, *drawn.get_or_insert_with(|| bucket(flag, subject))) => {
                Matched::Outside
            }
            _ => Matched::Decides,
        }
    }
}

impl Flag {
    fn compile(source: &model::Flag, segments: &Segments, faults: &mut Vec<FlagsFault>) -> Self {
        if source.key.contains(':') {
            faults.push(FlagsFault::ColonInKey { flag: source.key.clone() });
        }
        let variant = |name: &str, faults: &mut Vec<FlagsFault>| {
            source.variants.iter().position(|(variant, _)| variant == name).unwrap_or_else(|| {
                let (flag, variant) = (source.key.clone(), name.to_owned());
                faults.push(FlagsFault::UnknownVariant { flag, variant });
                0
            })
        };
        let default = variant(&source.default, faults);
        let mut rules = Vec::with_capacity(source.rules.len());
        for rule in &source.rules {
            let when = rule.when.as_ref().and_then(|when| {
                let fault =
                    |error| FlagsFault::Condition { flag: source.key.clone(), rule: rule.id.clone(), error };
                Compiled::new(when, segments).map_err(|error| faults.push(fault(error))).ok()
            });
            let serve = match &rule.serve {
                model::Serve::Variant(name) => Serve::Variant(variant(name, faults)),
                model::Serve::Split(shares) => {
                    let mut end = 0_u64;
                    let mut ends = Vec::with_capacity(shares.len());
                    for (name, share) in shares {
                        end += u64::from(share.hundredths());
                        ends.push((end.min(u64::from(BUCKETS)) as u16, variant(name, faults)));
                    }
                    if end != u64::from(BUCKETS) {
                        let (flag, rule) = (source.key.clone(), rule.id.clone());
                        faults.push(FlagsFault::SplitSum { flag, rule, sum: end });
                    }
                    Serve::Split(ends.into())
                }
            };
            rules.push(Rule {
                id: rule.id.as_str().into(),
                priority: rule.priority,
                when,
                percentage: rule.percentage,
                serve,
            });
        }
        // Stable: document order among equals.
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        let variants =
            source.variants.iter().map(|(name, value)| (name.as_str().into(), value.clone())).collect();
        Self { key: source.key.as_str().into(), variants, default, rules: rules.into() }
    }

    pub(super) fn evaluate<A: Attributes + ?Sized>(
        &self,
        subject: Option<&str>,
        attributes: &A,
    ) -> Result<Evaluation<'_>, EvaluateError> {
        let mut drawn = None;
        for rule in &self.rules {
            match rule.matches(&self.key, subject, attributes, &mut drawn) {
                Matched::Unmet | Matched::Outside => {}
                Matched::Decides => return Ok(self.serve(rule, subject, drawn)),
                Matched::NoSubject => {
                    let (flag, rule) = (self.key.to_string(), rule.id.to_string());
                    return Err(EvaluateError::SubjectMissing { flag, rule });
                }
            }
        }
        let reason = if self.rules.is_empty() { Reason::Static } else { Reason::Default };
        Ok(self.result(self.default, reason, None, drawn, None))
    }

    fn serve<'a>(&'a self, rule: &'a Rule, subject: Option<&str>, drawn: Option<u16>) -> Evaluation<'a> {
        let id = Some(&*rule.id);
        match &rule.serve {
            Serve::Variant(variant) => {
                let reason = if rule.percentage.is_some() { Reason::Split } else { Reason::TargetingMatch };
                self.result(*variant, reason, id, drawn, None)
            }
            Serve::Split(ends) => {
                // A rule that splits decides only with a subject, and its ends rise to BUCKETS.
                let at = split_bucket(&self.key, subject.unwrap_or_default());
                let variant =
                    ends.iter().find(|(end, _)| at < *end).map_or(self.default, |(_, variant)| *variant);
                self.result(variant, Reason::Split, id, drawn, Some(at))
            }
        }
    }

    fn result<'a>(
        &'a self,
        variant: usize,
        reason: Reason,
        rule: Option<&'a str>,
        bucket: Option<u16>,
        split_bucket: Option<u16>,
    ) -> Evaluation<'a> {
        let variant_index = variant;
        let (variant, value) = match self.variants.get(variant) {
            Some((name, value)) => (&**name, value),
            // Unreachable: compiling refuses a flag with a variant that does not exist.
            None => ("", &Json::Null),
        };
        Evaluation { flag: &self.key, variant, variant_index, value, reason, rule, bucket, split_bucket }
    }
}

#[cfg(test)]
mod tests;
