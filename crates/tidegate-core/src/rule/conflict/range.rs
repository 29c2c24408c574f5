//! What a version range can contain at most.

/// A version without pre-release and build: major, minor, patch.
pub(super) type Release = (u64, u64, u64);

/// An interval of versions that contains every version of a range, and maybe more.
///
/// Only its emptiness proves something, so where dialects of ranges differ (`>1.2`, a bare `1.2`) it
/// is the widest reading of them all. Versions count as dense: pre-releases lie between releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hull {
    /// Lowest version, and whether it is contained.
    low: (Release, bool),
    /// Highest version, and whether it is contained; `None` is without end.
    high: Option<(Release, bool)>,
}

impl Hull {
    /// The hull of a range of comparators that are separated by spaces or commas and must all hold;
    /// `None` when it is written in a way that proves nothing (`||`, `*`, pre-releases).
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut hull = Self { low: ((0, 0, 0), true), high: None };
        let mut operator = None;
        for word in text.split([' ', ',', '\t']).filter(|word| !word.is_empty()) {
            let version = word.trim_start_matches(['<', '>', '=', '^', '~']);
            let written = &word[..word.len() - version.len()];
            // `>= 1.2`: the operator may stand apart from its version.
            let written = match (operator.take(), written) {
                (Some(before), "") => before,
                (Some(_), _) => return None,
                (None, here) => here,
            };
            if version.is_empty() {
                operator = Some(written);
                continue;
            }
            hull = hull.intersect(&Self::comparator(written, version)?);
        }
        if operator.is_some() { None } else { Some(hull) }
    }

    fn comparator(operator: &str, version: &str) -> Option<Self> {
        let (release, parts) = parse_release(version)?;
        let (major, minor, _) = release;
        let next_minor = (major, minor.checked_add(1)?, 0);
        let next_major = (major.checked_add(1)?, 0, 0);
        // One past everything that `version` with left-out parts can stand for.
        let above = match parts {
            1 => (next_major, false),
            2 => (next_minor, false),
            _ => (release, true),
        };
        let from_zero = ((0, 0, 0), true);
        Some(match operator {
            ">=" => Self { low: (release, true), high: None },
            ">" => Self { low: (release, false), high: None },
            "<" => Self { low: from_zero, high: Some((release, false)) },
            "<=" => Self { low: from_zero, high: Some(above) },
            "=" | "==" => Self { low: (release, true), high: Some(above) },
            "~" => {
                let end = if parts == 1 { next_major } else { next_minor };
                Self { low: (release, true), high: Some((end, false)) }
            }
            // A bare version is read as exact by some dialects and as `^` by others.
            "^" | "" => Self { low: (release, true), high: Some((next_major, false)) },
            _ => return None,
        })
    }

    fn intersect(&self, other: &Self) -> Self {
        let low = match self.low.0.cmp(&other.low.0) {
            std::cmp::Ordering::Greater => self.low,
            std::cmp::Ordering::Less => other.low,
            std::cmp::Ordering::Equal => (self.low.0, self.low.1 && other.low.1),
        };
        let high = match (self.high, other.high) {
            (None, high) | (high, None) => high,
            (Some(left), Some(right)) => Some(match left.0.cmp(&right.0) {
                std::cmp::Ordering::Less => left,
                std::cmp::Ordering::Greater => right,
                std::cmp::Ordering::Equal => (left.0, left.1 && right.1),
            }),
        };
        Self { low, high }
    }

    fn is_empty(&self) -> bool {
        self.high.is_some_and(|high| self.low.0 > high.0 || (self.low.0 == high.0 && !(self.low.1 && high.1)))
    }

    /// Whether surely no version is in all of these.
    pub(super) fn disjoint<'a>(mut hulls: impl Iterator<Item = &'a Self>) -> bool {
        let Some(first) = hulls.next().cloned() else { return false };
        hulls.fold(first, |all, hull| all.intersect(hull)).is_empty()
    }

    /// Whether it surely does not contain `release`.
    pub(super) fn excludes(&self, release: Release) -> bool {
        let exactly = Self { low: (release, true), high: Some((release, true)) };
        self.intersect(&exactly).is_empty()
    }
}

/// `1`, `1.2` or `1.2.3`, maybe after a `v`: the release with zeros for what is left out, and how
/// many parts were written.
fn parse_release(text: &str) -> Option<(Release, usize)> {
    let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
    let mut parts = [0_u64; 3];
    let mut count = 0;
    for part in text.split('.') {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *parts.get_mut(count)? = part.parse().ok()?;
        count += 1;
    }
    Some(((parts[0], parts[1], parts[2]), count))
}

/// A full release, `1.2.3`, on whose meaning every dialect agrees.
pub(super) fn full_release(text: &str) -> Option<Release> {
    match parse_release(text) {
        Some((release, 3)) if text.starts_with(|first: char| first.is_ascii_digit()) => Some(release),
        _ => None,
    }
}
