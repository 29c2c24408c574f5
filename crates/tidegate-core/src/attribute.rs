//! What a request says about itself: named scalar values.

/// The value of one attribute.
///
/// Text keeps its source spelling, numbers too (`1.10` stays `1.10`), so that two keys are equal
/// only when they were written alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A string: every header, query, cookie, path and address attribute is one.
    Text(&'a str),
    /// A JSON number, as it was written.
    Number(&'a str),
    /// A JSON boolean.
    Bool(bool),
    /// A JSON object or array: no condition holds for it, and no key can be made of it.
    Compound,
}

impl<'a> Value<'a> {
    /// A JSON value as an attribute; `None` for null.
    pub fn of_json(json: &'a serde_json::Value) -> Option<Self> {
        match json {
            serde_json::Value::Null => None,
            serde_json::Value::Bool(value) => Some(Self::Bool(*value)),
            serde_json::Value::Number(number) => Some(Self::Number(number.as_str())),
            serde_json::Value::String(text) => Some(Self::Text(text)),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => Some(Self::Compound),
        }
    }

    /// The text that stands for this scalar in keys and comparisons; `None` for a compound value.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(text),
            Self::Bool(true) => Some("true"),
            Self::Bool(false) => Some("false"),
            Self::Compound => None,
        }
    }
}

/// Looks up attributes by name. Absent and JSON `null` are both `None`.
pub trait Attributes {
    /// The value of the attribute called `name`.
    fn get(&self, name: &str) -> Option<Value<'_>>;
}

/// A slice of pairs: the first with the name counts.
impl Attributes for [(&str, Value<'_>)] {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// A JSON object, as the command line and the evaluation doors take it.
impl Attributes for serde_json::Map<String, serde_json::Value> {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        Value::of_json(self.get(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_object_gives_its_members_and_null_is_absent() {
        let document = serde_json::json!({
            "text": "a", "number": 1.10, "yes": true, "no": false, "null": null, "list": [], "object": {},
        });
        let object = document.as_object().unwrap();
        for (name, value, text) in [
            ("text", Some(Value::Text("a")), Some("a")),
            ("number", Some(Value::Number("1.1")), Some("1.1")),
            ("yes", Some(Value::Bool(true)), Some("true")),
            ("no", Some(Value::Bool(false)), Some("false")),
            ("null", None, None),
            ("list", Some(Value::Compound), None),
            ("object", Some(Value::Compound), None),
            ("absent", None, None),
        ] {
            let found = Attributes::get(object, name);
            assert_eq!((found, found.and_then(Value::text)), (value, text), "{name}");
        }
    }
}
