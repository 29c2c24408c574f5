//! Text → tree of nodes, each with its place and its raw spelling.
//!
//! What YAML 1.2 has no use for in configuration is refused instead of guessed at: tags, merge keys,
//! several documents in one source, mappings as keys, an alias inside its own anchor.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError};

use super::diagnostic::quoted;
use super::report::Report;
use super::source::{Source, Span};

/// Largest document, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting of lists and mappings, aliases resolved. Everything that walks a tree may recurse.
pub const MAX_DEPTH: usize = 64;
/// Longest key of a mapping, in bytes. Written on one line, with every character escaped, it stays below
/// the 1024 characters that YAML reads as a key.
pub const MAX_KEY_BYTES: usize = 160;
/// Most nodes of a document, aliases resolved: what stops "billion laughs".
pub const MAX_NODES: u64 = 1_000_000;
/// Most bytes of text in a document, aliases resolved.
pub const MAX_EXPANDED: u64 = 16 << 20;

/// A value of a document. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it stands. For an alias: where the anchored node stands.
    pub span: Span,
    /// What it is.
    pub kind: Rc<Kind>,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A scalar.
    Scalar {
        /// As written, without quotes and escapes. An empty plain scalar is `~`.
        text: String,
        /// Whether it stands without quotes, so that it may be a number, a boolean or null.
        plain: bool,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping without repeated keys, in document order.
    Mapping(Vec<Entry>),
    /// Something that has been reported already; readers pass it over in silence.
    Invalid,
}

/// One key of a mapping and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key's text, whatever its spelling.
    pub key: String,
    /// Where the key stands.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

impl Node {
    /// Whether this was reported already.
    pub fn is_invalid(&self) -> bool {
        matches!(*self.kind, Kind::Invalid)
    }
}

/// Reads one document, the source with this `index` in the load, and adds every fault to `report`.
///
/// `None` when there is no tree to read: a fault was reported, or the document is empty.
pub fn parse(source: &Source, index: u32, report: &mut Report) -> Option<Node> {
    if source.text.len() > MAX_BYTES {
        report.fault(
            Span::top(index),
            format!("the document has {} bytes, and {MAX_BYTES} are the most", source.text.len()),
            "split it into several files of one directory",
        );
        return None;
    }
    let options = granit_parser::options! {
        emit_unresolved_aliases: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut builder = Builder {
        index,
        report,
        stack: Vec::new(),
        anchors: BTreeMap::new(),
        root: None,
        size: Size::default(),
    };
    for next in Parser::new_from_str_with_options(&source.text, options) {
        match next {
            Ok((event, span)) => {
                let span = builder.span(span);
                if builder.event(event, span).is_err() {
                    return None;
                }
            }
            Err(error) => {
                builder.syntax(&error, &source.text);
                return None;
            }
        }
    }
    builder.root
}

/// The document was refused as a whole and nothing more of it is read.
struct Refuse;

/// How large a node is, aliases resolved.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: u64,
    bytes: u64,
    depth: usize,
}

struct Builder<'r, 's> {
    index: u32,
    report: &'r mut Report<'s>,
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, (Node, Size)>,
    root: Option<Node>,
    size: Size,
}

/// A list or mapping that is not complete yet.
struct Frame {
    span: Span,
    anchor: usize,
    size: Size,
    content: Content,
}

enum Content {
    Sequence(Vec<Node>),
    Mapping { entries: Vec<Entry>, seen: BTreeMap<String, Span>, key: Key },
}

/// The key whose value comes next.
enum Key {
    None,
    Ready(String, Span),
    /// Reported already; its value is dropped.
    Refused,
}

impl Builder<'_, '_> {
    fn span(&self, span: granit_parser::Span) -> Span {
        let (start, end) = (span.start, span.end);
        let offset = start.byte_offset().unwrap_or(0);
        Span {
            source: self.index,
            line: start.line() as u32,
            column: start.col() as u32 + 1,
            start: offset as u32,
            length: end.byte_offset().unwrap_or(offset).saturating_sub(offset) as u32,
        }
    }

    fn syntax(&mut self, error: &ScanError, text: &str) {
        let mark = error.marker();
        let span = Span {
            source: self.index,
            line: mark.line().max(1) as u32,
            column: mark.col() as u32 + 1,
            start: mark.byte_offset().unwrap_or(text.len()) as u32,
            length: 1,
        };
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
            self.too_deep(span);
            return;
        }
        let mut message = format!("this is not valid YAML: {}", error.info());
        message.retain(|c| !c.is_control());
        self.report.fault(span, message, "mend the syntax; nothing below this place was read");
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Refuse> {
        if event.tag().is_some() {
            self.report.fault(
                span,
                "tags (`!…`) are not supported",
                "remove the tag; quote a value to make it a string",
            );
        }
        match event {
            Event::DocumentStart(_, version) => {
                if version.is_some_and(|version| (version.major, version.minor) != (1, 2)) {
                    self.report.fault(
                        span,
                        "this document declares another version of YAML than 1.2",
                        "remove the `%YAML` line; note that `on`, `off`, `yes` and `no` are strings in YAML 1.2",
                    );
                }
                if self.root.is_some() {
                    self.report.fault(
                        span,
                        "a second document begins here",
                        "keep one document in a file; put others into files of their own in one directory",
                    );
                    return Err(Refuse);
                }
            }
            Event::Scalar(text, style, anchor, _) => {
                let size = Size { nodes: 1, bytes: text.len() as u64, depth: 0 };
                let plain = style == ScalarStyle::Plain;
                let kind = Kind::Scalar { text: Cow::into_owned(text), plain };
                self.complete(Node { span, kind: Rc::new(kind) }, anchor, size, size)?;
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(span, anchor, Content::Sequence(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Mapping { entries: Vec::new(), seen: BTreeMap::new(), key: Key::None };
                self.open(span, anchor, content)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Frame { span, anchor, size, content }) = self.stack.pop() {
                    let kind = match content {
                        Content::Sequence(items) => Kind::Sequence(items),
                        Content::Mapping { entries, .. } => Kind::Mapping(entries),
                    };
                    let own = Size { nodes: 1, ..Size::default() };
                    self.complete(Node { span, kind: Rc::new(kind) }, anchor, size, own)?;
                }
            }
            Event::Alias(anchor) => {
                if let Some((node, size)) = self.anchors.get(&anchor).cloned() {
                    self.complete(node, 0, size, size)?;
                } else {
                    self.report.fault(
                        span,
                        "this alias stands inside the node that it refers to",
                        "write the value out, or refer to a node that ends before",
                    );
                    self.invalid(span)?;
                }
            }
            Event::UnresolvedAlias(name) => {
                self.report.fault(
                    span,
                    format!("no anchor `&…` is called {}", quoted(&name)),
                    "define the anchor before its first alias, in the same file; quote a text that begins with `*`",
                );
                self.invalid(span)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn invalid(&mut self, span: Span) -> Result<(), Refuse> {
        let size = Size { nodes: 1, ..Size::default() };
        self.complete(Node { span, kind: Rc::new(Kind::Invalid) }, 0, size, size)
    }

    fn open(&mut self, span: Span, anchor: usize, content: Content) -> Result<(), Refuse> {
        self.check_depth(span, 1)?;
        self.stack.push(Frame { span, anchor, size: Size { nodes: 1, bytes: 0, depth: 1 }, content });
        Ok(())
    }

    fn check_depth(&mut self, span: Span, more: usize) -> Result<(), Refuse> {
        if self.stack.len() + more <= MAX_DEPTH {
            return Ok(());
        }
        self.too_deep(span);
        Err(Refuse)
    }

    fn too_deep(&mut self, span: Span) {
        self.report.fault(
            span,
            format!("lists and mappings nest deeper than {MAX_DEPTH} here"),
            "flatten the document; no rule needs such depth",
        );
    }

    /// Adds a complete node, `size` large, to whatever it stands in. `new` is what it adds to the
    /// whole document: all of an alias, but only itself of a collection whose parts are counted.
    fn complete(&mut self, node: Node, anchor: usize, size: Size, new: Size) -> Result<(), Refuse> {
        self.size.nodes = self.size.nodes.saturating_add(new.nodes);
        self.size.bytes = self.size.bytes.saturating_add(new.bytes);
        if self.size.nodes > MAX_NODES || self.size.bytes > MAX_EXPANDED {
            self.report.fault(
                node.span,
                format!("the document grows beyond {MAX_NODES} values or {MAX_EXPANDED} bytes here, aliases resolved"),
                "use fewer aliases, or split the document",
            );
            return Err(Refuse);
        }
        self.check_depth(node.span, size.depth)?;
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.size.nodes = frame.size.nodes.saturating_add(size.nodes);
        frame.size.bytes = frame.size.bytes.saturating_add(size.bytes);
        frame.size.depth = frame.size.depth.max(size.depth + 1);
        match &mut frame.content {
            Content::Sequence(items) => items.push(node),
            Content::Mapping { entries, seen, key } => match std::mem::replace(key, Key::None) {
                Key::None => {
                    if frame.span.length == 0 && entries.is_empty() {
                        frame.span.length = node.span.length;
                    }
                    *key = accept_key(&node, seen, self.report);
                }
                Key::Ready(name, key_span) => entries.push(Entry { key: name, key_span, value: node }),
                Key::Refused => {}
            },
        }
        Ok(())
    }
}

fn accept_key(node: &Node, seen: &mut BTreeMap<String, Span>, report: &mut Report) -> Key {
    let (text, plain) = match &*node.kind {
        Kind::Scalar { text, plain } => (text, *plain),
        Kind::Invalid => return Key::Refused,
        Kind::Sequence(_) | Kind::Mapping(_) => {
            report.fault(node.span, "a list or mapping cannot be a key", "write a name before the colon");
            return Key::Refused;
        }
    };
    if plain && text == "<<" {
        report.fault(
            node.span,
            "YAML 1.2 has no merge keys (`<<`)",
            "write the fields out, or use an alias for a whole value",
        );
        return Key::Refused;
    }
    if text.len() > MAX_KEY_BYTES {
        report.fault(
            node.span,
            format!("the key {} has {} bytes, and {MAX_KEY_BYTES} are the most", quoted(text), text.len()),
            "shorten it",
        );
        return Key::Refused;
    }
    if let Some(first) = seen.get(text) {
        let place = report.place(*first, node.span);
        report.fault(
            node.span,
            format!("the key {} is written twice in one mapping; the first is at {place}", quoted(text)),
            "remove or rename one of them",
        );
        return Key::Refused;
    }
    seen.insert(text.clone(), node.span);
    Key::Ready(text.clone(), node.span)
}

#[cfg(test)]
mod tests;
