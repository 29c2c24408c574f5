//! A JSON tree that keeps the order of its fields and the text of its numbers.

use std::fmt::Write as _;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Written as it is: a number, `true`, `false`, `null`.
    Raw(String),
    /// Written in quotes.
    Text(String),
    /// An array.
    List(Vec<Node>),
    /// An object, in this order.
    Map(Vec<(String, Node)>),
}

impl Node {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn raw(number: &(impl ToString + ?Sized)) -> Self {
        Self::Raw(number.to_string())
    }

    pub(crate) fn texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    pub(crate) fn of(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::String(text) => Self::text(text),
            serde_json::Value::Array(items) => Self::List(items.iter().map(Self::of).collect()),
            serde_json::Value::Object(fields) => {
                Self::Map(fields.iter().map(|(name, value)| (name.clone(), Self::of(value))).collect())
            }
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
                Self::raw(value)
            }
        }
    }

    /// How many values it is, keys and itself included.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Raw(_) | Self::Text(_) => 1,
            Self::List(items) => 1 + items.iter().map(Self::count).sum::<u64>(),
            Self::Map(fields) => 1 + fields.iter().map(|(_, value)| 1 + value.count()).sum::<u64>(),
        }
    }

    /// [`Node::write`] into a new string.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// On one line, with a blank after each colon and comma, which YAML needs between some of them.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Raw(text) => out.push_str(text),
            Self::Text(text) => write_quoted(text, out),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Map(fields) => {
                out.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    write_quoted(name, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// The text as a JSON string.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_quoted(text, &mut out);
    out
}

/// Escapes what RFC 8259, section 7, asks for, and what YAML 1.2 does not count as printable.
fn write_quoted(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_escaped_as_json_and_yaml_ask() {
        for (text, written) in [
            ("", r#""""#),
            ("a b/é😀", r#""a b/é😀""#),
            ("\"\\", r#""\"\\""#),
            ("\n\r\t", r#""\n\r\t""#),
            ("\0\u{8}\u{1f}", r#""\u0000\u0008\u001f""#),
            ("\u{7f}\u{85}\u{9f}\u{a0}", "\"\\u007f\\u0085\\u009f\u{a0}\""),
            ("\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}", r#""\u2028\u2029\ufeff\ufffe\uffff""#),
        ] {
            assert_eq!(quote(text), written);
            assert_eq!(serde_json::from_str::<String>(written).unwrap(), text);
        }
    }

    #[test]
    fn values_and_keys_are_counted() {
        for (text, count) in [
            ("1", 1),
            ("\"a\"", 1),
            ("[]", 1),
            ("{}", 1),
            ("[1, null, true]", 4),
            ("{\"a\": 1, \"b\": \"c\"}", 5),
            ("[{\"a\": [1, 2]}, []]", 7),
        ] {
            let node = Node::of(&serde_json::from_str(text).unwrap());
            assert_eq!((node.count(), node.render().as_str()), (count, text));
        }
    }
}
