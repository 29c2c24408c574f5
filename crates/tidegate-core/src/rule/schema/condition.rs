//! Conditions.

use serde_json::{Map, Value, json};

use crate::rule::parse::condition::TESTS;

use super::{entries, object};

pub(super) fn defs() -> Map<String, Value> {
    let conditions = json!({ "type": "array", "items": { "$ref": "#/$defs/condition" } });
    let scalar = |description: &str| json!({ "$ref": "#/$defs/scalar", "description": description });
    let scalars = |description: &str| json!({ "type": "array", "items": { "$ref": "#/$defs/scalar" }, "description": description });
    let number = |description: &str| json!({ "type": "number", "description": description });
    let test = object(
        "Tests of one attribute, all of which must hold. An absent, null or wrong-typed attribute makes a test false; \
         not_in is \"not in\", so it then holds.",
        &[],
        &json!({
            "equals": scalar("The same value. Text is compared with the source text, a JSON number by value."),
            "in": scalars("One of these."),
            "not_in": scalars("None of these, or absent."),
            "starts_with": scalar("Text that begins so; case counts."),
            "ends_with": scalar("Text that ends so; case counts."),
            "matches": scalar("A regular expression that is found anywhere in the text; ^ and $ anchor it."),
            "gt": number("A number greater than this."),
            "gte": number("A number greater than or equal to this."),
            "lt": number("A number less than this."),
            "lte": number("A number less than or equal to this."),
            "semver": scalar("A version in this range, for example \">=1.2 <2\"."),
            "cidr": {
                "description": "An address in one of these networks, for example 10.0.0.0/8.",
                "oneOf": [
                    { "type": "string" },
                    { "type": "array", "minItems": 1, "items": { "type": "string" } }
                ]
            },
            "before": scalar("A time before this one; RFC 3339, for example 2030-01-31T08:00:00Z."),
            "after": scalar("A time after this one; RFC 3339.")
        }),
    );
    let mut test = test;
    test["minProperties"] = json!(1);
    let condition = json!({
        "type": "object",
        "minProperties": 1,
        "description": "Entries that must all hold: all, any, not, segment, or an attribute with its tests.",
        "properties": {
            "all": conditions,
            "any": conditions,
            "not": { "$ref": "#/$defs/condition" },
            "segment": { "type": "string", "description": "The request is in this segment." }
        },
        "additionalProperties": { "$ref": "#/$defs/test" },
        "propertyNames": { "minLength": 1, "not": { "enum": TESTS } }
    });
    entries(json!({
        "scalar": {
            "type": ["string", "number", "boolean"],
            "description": "Text, a number or a boolean; the source text is kept (1.10 stays 1.10)."
        },
        "test": test,
        "condition": condition
    }))
}
