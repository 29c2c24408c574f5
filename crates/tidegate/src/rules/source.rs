//! Reads a rule file, or a directory of them.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256 as Hasher};
use tidegate_core::rule::Source as Text;
use tidegate_store::rules::Sha256;

/// The most that the rule files may take together, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// The most rule files that a directory may hold.
pub const MAX_FILES: usize = 256;

/// What a look at the path found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Texts.
    Texts(Snapshot),
    /// No file, or a directory without a rule file.
    Missing,
    /// Something that cannot be read; in words.
    Unreadable(String),
}

/// The texts at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// SHA-256 over names and texts.
    pub(super) content: Sha256,
    /// (name, text), sorted by file name.
    pub(super) sources: Vec<(String, String)>,
}

impl Seen {
    /// Equal for two looks that found the same.
    pub(super) fn id(&self) -> Sha256 {
        match self {
            Self::Texts(snapshot) => snapshot.content,
            Self::Missing => hash(b"missing", &[]),
            Self::Unreadable(why) => hash(b"unreadable", &[("", why)]),
        }
    }
}

/// Whether a file name is a rule file's: `*.yaml`, `*.yml` or `*.json`, and not hidden.
pub(super) fn is_rule_file(name: &Path) -> bool {
    let hidden = name.as_os_str().as_encoded_bytes().first() == Some(&b'.');
    let known = name.extension().is_some_and(|ext| ext == "yaml" || ext == "yml" || ext == "json");
    known && !hidden
}

/// Reads the file or directory at `path`. Blocks.
pub(super) fn read(path: &Path) -> Seen {
    match read_all(path) {
        Ok(sources) if sources.is_empty() => Seen::Missing,
        Ok(sources) => {
            let named: Vec<(&str, &str)> =
                sources.iter().map(|source| (source.file.as_str(), source.text.as_str())).collect();
            let content = hash(b"texts", &named);
            let sources = sources.into_iter().map(|source| (source.name, source.text)).collect();
            Seen::Texts(Snapshot { content, sources })
        }
        Err(fault) if fault.missing => Seen::Missing,
        Err(fault) => Seen::Unreadable(fault.to_string()),
    }
}

/// Reads the rule file at `path`, or those of a directory in the order of their names, as a rule service
/// does. Blocks.
///
/// # Errors
/// What cannot be read, a directory without a rule file, and more than [`MAX_FILES`] or [`MAX_BYTES`].
pub fn read_sources(path: &Path) -> Result<Vec<Text>, ReadError> {
    let sources = read_all(path)?;
    if sources.is_empty() {
        return Err(ReadError::new(path, "holds no rule file: put a *.yaml, *.yml or *.json into it"));
    }
    Ok(sources.into_iter().map(|source| Text::new(source.name, source.text)).collect())
}

struct Source {
    /// The file's own name: moving a directory does not change its content.
    file: String,
    /// The name that faults carry.
    name: String,
    text: String,
}

/// Why rule texts could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ReadError {
    /// The file or directory.
    pub path: String,
    /// Whether it is not there.
    pub missing: bool,
    /// What is wrong with it, without its path.
    pub message: String,
}

impl ReadError {
    fn new(path: &Path, what: impl std::fmt::Display) -> Self {
        Self { path: path.display().to_string(), missing: false, message: what.to_string() }
    }

    fn io(path: &Path, error: &std::io::Error) -> Self {
        let missing = error.kind() == ErrorKind::NotFound;
        Self { missing, ..Self::new(path, format_args!("cannot be read: {error}")) }
    }
}

fn read_all(path: &Path) -> Result<Vec<Source>, ReadError> {
    let mut left = MAX_BYTES;
    let metadata = path.metadata().map_err(|error| ReadError::io(path, &error))?;
    if !metadata.is_dir() {
        return Ok(vec![read_file(path, &mut left)?]);
    }
    let mut files = rule_files(path)?;
    files.sort();
    let read = |file: &PathBuf| {
        // A file of the listing that is gone by now must not pass for a directory that never had it.
        read_file(file, &mut left).map_err(|fault| ReadError { missing: false, ..fault })
    };
    files.iter().map(read).collect()
}

fn rule_files(directory: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(|error| ReadError::io(directory, &error))? {
        let entry = entry.map_err(|error| ReadError::io(directory, &error))?;
        let path = entry.path();
        if !is_rule_file(Path::new(&entry.file_name())) || path.is_dir() {
            continue;
        }
        if files.len() == MAX_FILES {
            return Err(ReadError::new(
                directory,
                format_args!("holds more than {MAX_FILES} rule files: join some"),
            ));
        }
        files.push(path);
    }
    Ok(files)
}

fn read_file(path: &Path, left: &mut usize) -> Result<Source, ReadError> {
    let io = |error| ReadError::io(path, &error);
    // Opening a pipe would wait for its other end.
    if !path.metadata().map_err(io)?.is_file() {
        return Err(ReadError::new(path, "is not a file: name a rule file or a directory of them"));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(*left).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).map_err(io)?.take(limit).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() > *left {
        return Err(ReadError::new(
            path,
            format_args!("more than {MAX_BYTES} bytes of rules: remove what is not needed"),
        ));
    }
    *left -= bytes.len();
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ReadError::new(path, format_args!("byte {at} is not UTF-8: save the file as UTF-8"))
    })?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Source { file, name: path.display().to_string(), text })
}

/// SHA-256 over parts with their lengths, so that no two lists of parts run together.
pub(super) fn hash(kind: &[u8], parts: &[(&str, &str)]) -> Sha256 {
    let mut hasher = Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    part(kind);
    for (name, text) in parts {
        part(name.as_bytes());
        part(text.as_bytes());
    }
    hasher.finalize().into()
}

/// SHA-256 of some bytes.
pub(super) fn sha256(bytes: &[u8]) -> Sha256 {
    Hasher::digest(bytes).into()
}

#[cfg(test)]
mod tests;
