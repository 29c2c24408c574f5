//! "Did you mean": the nearest known word.

/// Longer words are not compared, which bounds the cost of one comparison.
pub const MAX_WORD: usize = 64;

/// How many edits (insert, delete, replace, swap of neighbours) turn `a` into `b`; `None` when one
/// of them is longer than [`MAX_WORD`] characters.
pub fn distance(a: &str, b: &str) -> Option<usize> {
    let a: Vec<char> = a.chars().take(MAX_WORD + 1).collect();
    let b: Vec<char> = b.chars().take(MAX_WORD + 1).collect();
    if a.len() > MAX_WORD || b.len() > MAX_WORD {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replace = last[j] + usize::from(x != y);
            let mut best = replace.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = last;
        last = row;
    }
    last.last().copied()
}

/// The candidate that `word` was probably meant to be: the nearest within a third of its length.
pub fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let reach = (word.chars().count() / 3).max(1);
    candidates
        .filter_map(|candidate| distance(word, candidate).map(|edits| (edits, candidate)))
        .filter(|(edits, candidate)| *edits <= reach && *edits < candidate.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits_and_swaps() {
        for (a, b, edits) in [
            ("", "", Some(0)),
            ("", "abc", Some(3)),
            ("capcity", "capacity", Some(1)),
            ("limti", "limit", Some(1)),
            ("kitten", "sitting", Some(3)),
            ("xcapacity", "capacity", Some(1)),
            ("capacityx", "capacity", Some(1)),
            ("", &"x".repeat(64), Some(64)),
            (&"x".repeat(64), "", Some(64)),
            (&"x".repeat(65), "x", None),
            ("x", &"x".repeat(65), None),
            ("x", &"x".repeat(100), None),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["capacity", "refill", "id"];
        for (word, suggestion) in
            [("capcity", Some("capacity")), ("refil", Some("refill")), ("window", None), ("x", None)]
        {
            assert_eq!(nearest(word, known.into_iter()), suggestion, "{word}");
        }
        for (word, candidate, near) in [
            // A third of the word's length, and one edit at least.
            ("abcdef", "abcdxy", true),
            ("abcdef", "abcxyz", false),
            ("abcde", "abcdx", true),
            ("abcde", "abcxy", false),
            ("ab", "ax", true),
            ("ab", "ba", true),
            // Never all of the candidate.
            ("x", "y", false),
            ("abcdef", "ab", false),
            ("", "a", false),
        ] {
            assert_eq!(nearest(word, [candidate].into_iter()).is_some(), near, "{word} {candidate}");
        }
    }
}
