//! The bodies of the fuzz targets over the seeds that are committed beside them.

use std::fs;
use std::path::PathBuf;

#[path = "../../../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "they are public to the fuzz targets")]
mod targets;

/// Runs a body over every file of a folder, of which there must be some.
fn check(folder: &str, run: fn(&[u8]), least: usize) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut seeds = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // Captured, and shown when the body panics.
        println!("{}", path.display());
        run(&fs::read(&path).unwrap());
        seeds += 1;
    }
    assert!(seeds >= least, "{} has only {seeds} files", folder.display());
    run(b"");
}

#[test]
fn rule_parser() {
    check("../../fuzz/corpus-seed/rule_parser", targets::rule_parser::run, 6);
    check("tests/corpus/good", targets::rule_parser::run, 12);
    check("tests/corpus/bad", targets::rule_parser::run, 40);
}

#[test]
fn key_parser() {
    check("../../fuzz/corpus-seed/key_parser", targets::key_parser::run, 10);
}

#[test]
fn path_normaliser() {
    check("../../fuzz/corpus-seed/path_normaliser", targets::path_normaliser::run, 10);
}

#[test]
fn matchers() {
    check("../../fuzz/corpus-seed/matchers", targets::matchers::run, 20);
}
