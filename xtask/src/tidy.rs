//! What reviews should not have to look for: arrows, purity, sizes, lints, licences, listed cases.
//!
//! Each check is a function over texts that were read before, so that its tests need no repository.

mod cases;
mod floors;
mod licences;
mod lints;
mod purity;
mod sizes;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Something to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Relative to the repository.
    file: String,
    /// From 1.
    line: usize,
    /// What is wrong, and how to mend it.
    message: String,
}

impl Finding {
    fn new(file: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Why the checks could not run.
#[derive(Debug)]
pub(crate) enum Error {
    /// A file or directory cannot be read.
    Read(PathBuf, std::io::Error),
    /// `cargo metadata` failed.
    Metadata(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Metadata(why) => write!(f, "cargo metadata: {why}"),
        }
    }
}

/// A text of the repository.
#[derive(Clone, Debug)]
struct SourceFile {
    /// Relative to the repository, with `/`.
    path: String,
    text: String,
}

impl SourceFile {
    /// Test code: held to other rules.
    fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        self.path.ends_with("/tests.rs") || parts.any(|part| part == "tests" || part == "benches")
    }
}

/// Runs every check on the repository at `root`.
pub(crate) fn run(root: &Path) -> Result<Vec<Finding>, Error> {
    let sources = rust_files(root, &["crates", "xtask"])?;
    let metadata = metadata(root)?;
    let manifests = manifests(root, &metadata)?;
    let mut findings = floors::check(&metadata, &manifests);
    findings.extend(sources.iter().flat_map(purity::check));
    findings.extend(sources.iter().filter_map(sizes::check));
    findings.extend(lints::check(&read(root, "Cargo.toml")?, &read(root, ".ci/run")?, &manifests));
    findings.extend(licences::check(&read(root, "deny.toml")?, &metadata));
    findings.extend(cases::check(&sources));
    Ok(findings)
}

fn read(root: &Path, path: &str) -> Result<SourceFile, Error> {
    let full = root.join(path);
    let text = std::fs::read_to_string(&full).map_err(|error| Error::Read(full, error))?;
    Ok(SourceFile { path: path.to_owned(), text })
}

/// The Rust files below these directories, sorted.
fn rust_files(root: &Path, directories: &[&str]) -> Result<Vec<SourceFile>, Error> {
    let mut pending: Vec<String> = directories.iter().map(|&directory| directory.to_owned()).collect();
    let mut found = Vec::new();
    while let Some(directory) = pending.pop() {
        let full = root.join(&directory);
        let failed = |error| Error::Read(full.clone(), error);
        for entry in std::fs::read_dir(&full).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = format!("{directory}/{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && entry.file_name() != "target" {
                pending.push(path);
            } else if kind.is_file() && Path::new(&path).extension().is_some_and(|ext| ext == "rs") {
                found.push(read(root, &path)?);
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// What cargo knows of every package that is built on this platform.
fn metadata(root: &Path) -> Result<Value, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let failed = |error: std::io::Error| Error::Metadata(error.to_string());
    let version = Command::new("rustc").arg("-vV").current_dir(root).output().map_err(failed)?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root);
    if let Some(host) = version.lines().find_map(|line| line.strip_prefix("host: ")) {
        command.args(["--filter-platform", host]);
    }
    let output = command.output().map_err(failed)?;
    if !output.status.success() {
        return Err(Error::Metadata(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| Error::Metadata(error.to_string()))
}

/// The packages of the workspace, each with its manifest.
fn manifests(root: &Path, metadata: &Value) -> Result<Vec<SourceFile>, Error> {
    let own = packages(metadata).filter(|package| package["source"].is_null());
    let paths =
        own.filter_map(|package| Path::new(package["manifest_path"].as_str()?).strip_prefix(root).ok());
    let mut paths: Vec<String> = paths.map(|path| path.to_string_lossy().into_owned()).collect();
    paths.sort();
    paths.iter().map(|path| read(root, path)).collect()
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

/// The number of the first line that `matches`, or 1.
fn line_of(text: &str, matches: impl Fn(&str) -> bool) -> usize {
    text.lines().position(matches).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shared by the tests of the checks.
    pub(super) fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn test_files_are_told_from_production_files() {
        for (path, expected) in [
            ("crates/a/src/limit.rs", false),
            ("crates/a/src/tests_of_time.rs", false),
            ("crates/a/src/limit/tests.rs", true),
            ("crates/a/tests/it/main.rs", true),
            ("crates/a/src/limit/tests/more.rs", true),
            ("crates/a/benches/limit.rs", true),
        ] {
            assert_eq!(file(path, "").is_test(), expected, "{path}");
        }
    }

    #[test]
    fn a_finding_says_where() {
        assert_eq!(Finding::new("a.rs", 3, "mend it").to_string(), "a.rs:3: mend it");
        assert_eq!(line_of("a\nb\nb", |line| line == "b"), 2);
    }

    #[test]
    fn this_repository_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let sources = rust_files(root, &["xtask"]).unwrap();
        assert!(sources.iter().any(|source| source.path == "xtask/src/tidy.rs"));
        let gone = rust_files(root, &["nowhere"]).unwrap_err();
        assert!(gone.to_string().contains("nowhere"), "{gone}");
    }
}
