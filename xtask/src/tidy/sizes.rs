//! A file has one subject.

use super::{Finding, SourceFile};

/// The most lines of a production file.
const MAX_LINES: usize = 500;

pub(super) fn check(source: &SourceFile) -> Option<Finding> {
    let lines = source.text.lines().count();
    if source.is_test() || lines <= MAX_LINES {
        return None;
    }
    let message =
        format!("{lines} lines, and at most {MAX_LINES}: move one subject, or the tests, to a sibling file");
    Some(Finding::new(&source.path, MAX_LINES + 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::file;

    #[test]
    fn a_long_production_file_is_found() {
        let of = |path: &str, lines: usize| check(&file(path, &"x\n".repeat(lines)));
        assert_eq!(of("crates/a/src/lib.rs", 500), None);
        let found = of("crates/a/src/lib.rs", 501).unwrap();
        assert_eq!(found.line, 501);
        assert!(found.message.starts_with("501 lines"), "{found}");
        assert_eq!(of("crates/a/src/lib/tests.rs", 501), None);
        assert_eq!(of("crates/a/tests/it/main.rs", 501), None);
    }
}
