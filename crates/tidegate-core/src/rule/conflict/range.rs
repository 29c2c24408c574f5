//! What a version range contains, as an interval.

/// A version without pre-release and build: major, minor, patch.
pub(super) type Release = (u64, u64, u64);

/// A place in the order of versions (Semantic Versioning 2.0.0, section 11): before all pre-releases of a release,
/// or at the release itself. Pre-releases lie between the two, so places count as dense.
type Place = (Release, At);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    FirstPreRelease,
    Release,
}

/// The interval of a range of comparators that must all hold. A partial version stands for everything
/// that begins so, pre-releases included: `<2` ends before the first pre-release of 2.0.0, and `>=2`
/// begins there; a whole version stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hull {
    /// Lowest place, and whether it is contained.
    low: (Place, bool),
    /// Highest place, and whether it is contained; `None` is without end.
    high: Option<(Place, bool)>,
}

impl Hull {
    /// The interval of a range; `None` when it is written in a way that proves nothing here, for
    /// example with a pre-release.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut hull = Self { low: (((0, 0, 0), At::FirstPreRelease), true), high: None };
        let mut words = text.split_ascii_whitespace();
        while let Some(word) = words.next() {
            let version = word.trim_start_matches(['<', '>', '=']);
            let operator = &word[..word.len() - version.len()];
            // `>= 1.2`: the operator may stand apart from its version.
            let version = if version.is_empty() { words.next()? } else { version };
            hull = hull.intersect(&Self::comparator(operator, version)?);
        }
        Some(hull)
    }

    fn comparator(operator: &str, version: &str) -> Option<Self> {
        let (release, parts) = parse_release(version)?;
        let (major, minor, _) = release;
        let start = if parts == 3 { (release, At::Release) } else { (release, At::FirstPreRelease) };
        // The first place after all that the version stands for, if it stands for several.
        let next = match parts {
            1 => Some(((major.checked_add(1)?, 0, 0), At::FirstPreRelease)),
            2 => Some(((major, minor.checked_add(1)?, 0), At::FirstPreRelease)),
            _ => None,
        };
        let end = next.map_or((start, true), |next| (next, false));
        let zero = (((0, 0, 0), At::FirstPreRelease), true);
        Some(match operator {
            ">=" => Self { low: (start, true), high: None },
            ">" => Self { low: next.map_or((start, false), |next| (next, true)), high: None },
            "<" => Self { low: zero, high: Some((start, false)) },
            "<=" => Self { low: zero, high: Some(end) },
            "=" | "" => Self { low: (start, true), high: Some(end) },
            _ => return None,
        })
    }

    fn intersect(&self, other: &Self) -> Self {
        // At equal places the end that leaves the place out is the narrower one.
        let low = std::cmp::max_by_key(self.low, other.low, |(place, contained)| (*place, !contained));
        let high = match (self.high, other.high) {
            (None, high) | (high, None) => high,
            (Some(left), Some(right)) => Some(std::cmp::min(left, right)),
        };
        Self { low, high }
    }

    fn is_empty(&self) -> bool {
        let (low, low_contained) = self.low;
        self.high
            .is_some_and(|(high, contained)| low > high || (low == high && !(low_contained && contained)))
    }

    /// Whether surely no version is in all of these.
    pub(super) fn disjoint<'a>(mut hulls: impl Iterator<Item = &'a Self>) -> bool {
        let Some(first) = hulls.next().cloned() else { return false };
        hulls.fold(first, |all, hull| all.intersect(hull)).is_empty()
    }

    /// Whether it surely does not contain `release`.
    pub(super) fn excludes(&self, release: Release) -> bool {
        let place = (release, At::Release);
        self.intersect(&Self { low: (place, true), high: Some((place, true)) }).is_empty()
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

/// A whole release, `1.2.3`.
pub(super) fn full_release(text: &str) -> Option<Release> {
    match parse_release(text) {
        Some((release, 3)) => Some(release),
        _ => None,
    }
}
