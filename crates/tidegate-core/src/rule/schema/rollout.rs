//! Segments and flags.

use serde_json::{Map, Value, json};

use super::{choice, entries, object, of};

pub(super) fn defs() -> Map<String, Value> {
    let segment = object(
        "A named condition.",
        &["id", "when"],
        &json!({
            "id": of("name", "Unique among segments.", Value::Null),
            "when": { "$ref": "#/$defs/condition" }
        }),
    );
    entries(json!({ "segment": segment, "flag": flag(), "flag_rule": flag_rule() }))
}

fn flag() -> Value {
    object(
        "A feature flag.",
        &["key", "default"],
        &json!({
            "key": {
                "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^:\\u0000-\\u001f\\u007f-\\u009f]+$",
                "description": "Unique among flags; 1 to 256 bytes without ':'."
            },
            "variants": {
                "type": "object", "minProperties": 1, "maxProperties": 1000,
                "propertyNames": { "pattern": "^[ -~]{1,128}$" },
                "default": { "on": true, "off": false },
                "description": "Names and their values, any JSON. Quote \"on\" and \"off\" so that every YAML reader takes them for text."
            },
            "default": { "type": "string", "description": "The variant when no rule decides." },
            "sticky": choice("Whether a session keeps its first result, in a signed cookie.", &["none", "session"]),
            "rules": {
                "type": "array", "items": { "$ref": "#/$defs/flag_rule" }, "default": [],
                "description": "Highest priority first; the first that matches decides."
            }
        }),
    )
}

fn flag_rule() -> Value {
    object(
        "Two rules of equal priority that can both hold must serve the same.",
        &["id", "serve"],
        &json!({
            "id": of("name", "Unique in its flag.", Value::Null),
            "priority": {
                "type": "integer", "minimum": -1_000_000_000, "maximum": 1_000_000_000, "default": 0,
                "description": "Higher is asked first."
            },
            "when": { "$ref": "#/$defs/condition", "description": "Whom it is for. Left out: everybody." },
            "percentage": of(
                "percentage",
                "The share of subjects. Left out: all, and no subject is needed.",
                Value::Null,
            ),
            "serve": {
                "description": "A variant, or shares of variants that add up to 100.",
                "oneOf": [
                    { "type": "string" },
                    object(
                        "Shares in document order.",
                        &["split"],
                        &json!({
                            "split": {
                                "type": "object", "minProperties": 1,
                                "additionalProperties": { "$ref": "#/$defs/percentage" }
                            }
                        }),
                    )
                ]
            }
        }),
    )
}
