//! Parameters: what of an experiment can be set, and to what.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tidegate_core::document::quantity::{parse_duration, show};
use tidegate_core::document::suggest::nearest;

use crate::experiment::Experiment;

/// One parameter of an experiment. Its type says what it is set to.
#[derive(Clone, Copy, Debug)]
pub struct Param<T> {
    /// What `--set` calls it.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What it is when it is not set.
    pub default: T,
    /// The lowest that it can be set to.
    pub low: T,
    /// The highest that it can be set to. It bounds how long a run takes.
    pub high: T,
}

/// A share of all, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u16);

impl Share {
    /// Nobody.
    pub const NONE: Self = Self(0);
    /// Everybody.
    pub const ALL: Self = Self(10_000);

    /// From whole percent, at most 100.
    pub const fn percent(percent: u8) -> Self {
        Self(if percent > 100 { 10_000 } else { percent as u16 * 100 })
    }

    /// The part of 1 that it is.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }

    /// Reads `10%` and `0.5%`, with at most two decimals; the sign may be left out.
    fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix('%').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 2 {
            return None;
        }
        let hundredths: u16 = format!("{part:0<2}").parse().ok()?;
        let share = whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(hundredths)?;
        (share <= Self::ALL.0).then_some(Self(share))
    }
}

/// As rules write it without the sign: `10`, `0.5`, `99.99`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}"),
        }
    }
}

/// A parameter of any type.
#[derive(Clone, Copy, Debug)]
pub enum Spec {
    /// A whole number.
    Count(Param<u64>),
    /// A duration, as rules write it: `500ms`, `1m30s`.
    Span(Param<Duration>),
    /// A percentage: `10%`.
    Share(Param<Share>),
}

/// A value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Count(u64),
    Span(Duration),
    Share(Share),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Span(span) => f.write_str(&show(*span)),
            Self::Share(share) => write!(f, "{share}%"),
        }
    }
}

impl Spec {
    /// What `--set` calls it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Count(param) => param.name,
            Self::Span(param) => param.name,
            Self::Share(param) => param.name,
        }
    }

    /// What it is.
    pub const fn about(&self) -> &'static str {
        match self {
            Self::Count(param) => param.about,
            Self::Span(param) => param.about,
            Self::Share(param) => param.about,
        }
    }

    /// What it is when it is not set, as it would be written.
    pub fn default(&self) -> String {
        self.bounds().0.to_string()
    }

    /// Default, lowest, highest.
    fn bounds(&self) -> (Value, Value, Value) {
        fn all<T: Copy>(param: &Param<T>, value: fn(T) -> Value) -> (Value, Value, Value) {
            (value(param.default), value(param.low), value(param.high))
        }
        match self {
            Self::Count(param) => all(param, Value::Count),
            Self::Span(param) => all(param, Value::Span),
            Self::Share(param) => all(param, Value::Share),
        }
    }

    fn parse(&self, text: &str) -> Result<Value, ParamsError> {
        let value = match self {
            Self::Count(param) => within(text.parse().ok(), param).map(Value::Count),
            Self::Span(param) => within(parse_duration(text).ok(), param).map(Value::Span),
            Self::Share(param) => within(Share::parse(text), param).map(Value::Share),
        };
        value.ok_or_else(|| {
            let (_, low, high) = self.bounds();
            ParamsError::BadValue {
                name: self.name(),
                value: text.to_owned(),
                expected: match self {
                    Self::Count(_) => format!("a whole number from {low} to {high}"),
                    Self::Span(_) => format!("a duration from {low} to {high}, such as 500ms"),
                    Self::Share(_) => format!("a percentage from {low} to {high}"),
                },
            }
        })
    }
}

fn within<T: PartialOrd>(value: Option<T>, param: &Param<T>) -> Option<T> {
    value.filter(|value| *value >= param.low && *value <= param.high)
}

/// A `--set` that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// Not `name=value`.
    #[error("`--set {given}` is not NAME=VALUE; write for example --set limit=700")]
    NoPair {
        /// What was given.
        given: String,
    },
    /// No selected experiment has such a parameter.
    #[error("no selected experiment has a parameter `{name}`{}; they have: {known}", hint(.nearest.as_deref()))]
    Unknown {
        /// What was given.
        name: String,
        /// What was probably meant.
        nearest: Option<String>,
        /// The parameters that there are.
        known: String,
    },
    /// Each fine alone, they make no experiment together.
    #[error("{experiment}: {why}")]
    Together {
        /// Which experiment.
        experiment: &'static str,
        /// What to set.
        why: String,
    },
    /// Out of range, or of another kind.
    #[error("`{value}` does not fit the parameter `{name}`; give {expected}")]
    BadValue {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
        /// What fits.
        expected: String,
    },
}

pub(crate) fn hint(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
}

/// What the parameters of one run are set to.
#[derive(Clone, Debug, Default)]
pub struct Params {
    set: BTreeMap<&'static str, Value>,
}

impl Params {
    /// Splits `name=value` arguments.
    pub fn pairs(given: &[String]) -> Result<Vec<(String, String)>, ParamsError> {
        let pair = |given: &String| {
            let (name, value) =
                given.split_once('=').ok_or_else(|| ParamsError::NoPair { given: given.clone() })?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        };
        given.iter().map(pair).collect()
    }

    /// Refuses a name that none of `experiments` has.
    pub fn check_names(
        pairs: &[(String, String)],
        experiments: &[&'static Experiment],
    ) -> Result<(), ParamsError> {
        let mut known: Vec<&str> =
            experiments.iter().flat_map(|experiment| experiment.params).map(Spec::name).collect();
        known.sort_unstable();
        known.dedup();
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(ParamsError::Unknown {
                name: name.clone(),
                nearest: nearest(name, known.iter().copied()).map(str::to_owned),
                known: known.join(", "),
            }),
        }
    }

    /// The parameters of `experiment`: what `pairs` say of those that it has. The last counts.
    pub fn of(experiment: &Experiment, pairs: &[(String, String)]) -> Result<Self, ParamsError> {
        let mut set = BTreeMap::new();
        for (name, text) in pairs {
            if let Some(spec) = experiment.params.iter().find(|spec| spec.name() == name) {
                set.insert(spec.name(), spec.parse(text)?);
            }
        }
        let params = Self { set };
        match experiment.fits.map_or(Ok(()), |fits| fits(&params)) {
            Ok(()) => Ok(params),
            Err(why) => Err(ParamsError::Together { experiment: experiment.id, why }),
        }
    }

    /// All parameters of `experiment` as they are, as they would be written.
    pub fn shown(&self, experiment: &Experiment) -> BTreeMap<&'static str, String> {
        let value = |spec: &Spec| self.set.get(spec.name()).copied().unwrap_or(spec.bounds().0).to_string();
        experiment.params.iter().map(|spec| (spec.name(), value(spec))).collect()
    }

    /// Whether each of `params` is as it is by default: then the known figures must come out.
    pub(crate) fn are_default(&self, params: &[Spec]) -> bool {
        let default = |spec: &Spec| self.set.get(spec.name()).is_none_or(|value| *value == spec.bounds().0);
        params.iter().all(default)
    }

    pub(crate) fn count(&self, param: &Param<u64>) -> u64 {
        match self.set.get(param.name) {
            Some(Value::Count(count)) => *count,
            _ => param.default,
        }
    }

    pub(crate) fn span(&self, param: &Param<Duration>) -> Duration {
        match self.set.get(param.name) {
            Some(Value::Span(span)) => *span,
            _ => param.default,
        }
    }

    pub(crate) fn share(&self, param: &Param<Share>) -> Share {
        match self.set.get(param.name) {
            Some(Value::Share(share)) => *share,
            _ => param.default,
        }
    }
}

#[cfg(test)]
mod tests;
