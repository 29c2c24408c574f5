//! Texts to read, and places in them.

/// One document's text and the name it goes by in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A file's path, or `-` for standard input.
    pub name: String,
    /// The text as it was read.
    pub text: String,
}

impl Source {
    /// A document called `name`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

/// A place in one of the sources of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Which source, counted from 0.
    pub source: u32,
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
    /// Offset in bytes.
    pub start: u32,
    /// Length in bytes; may reach over several lines.
    pub length: u32,
}

impl Span {
    /// The beginning of a source.
    pub const fn top(source: u32) -> Self {
        Self { source, line: 1, column: 1, start: 0, length: 0 }
    }
}
