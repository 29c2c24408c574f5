//! The JSON Schema (draft 2020-12) of rule documents, for editors and reviews.
//!
//! It says all that a schema can say: names, types, patterns, bounds, what is required, what excludes
//! what. It accepts a few documents that loading refuses, because a schema cannot follow references,
//! compare two values, or see how a number was written; it refuses none that loads.

mod condition;
mod limit;
mod rollout;
mod safety;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

/// The characters of an HTTP token (RFC 9110, section 5.6.2), inside brackets of a pattern.
const TOKEN: &str = "A-Za-z0-9!#$%&'*+.^_`|~-";
/// A duration, without `^` and `$`.
const DURATION: &str = "([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?([0-9]+us)?";

/// The schema of one rule document.
pub fn json_schema() -> Value {
    let list = |name: &str, description: &str| json!({ "type": "array", "description": description, "items": { "$ref": format!("#/$defs/{name}") } });
    let mut defs = Map::new();
    defs.extend(grammar());
    defs.extend(condition::defs());
    defs.insert("resource".to_owned(), resource());
    defs.extend(limit::defs());
    defs.extend(safety::defs());
    defs.extend(rollout::defs());
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tidegate:schema:rules:v1",
        "title": "Tidegate rules",
        "description": "One versioned rule set for rollout, limits, idempotency and breakers. Sections may be left out. \
            Fields that begin with x- are ignored: a home for YAML anchors.",
        "type": "object",
        "required": ["apiVersion"],
        "properties": {
            "apiVersion": { "const": "tidegate/v1", "description": "The version of this format." },
            "resources": list("resource", "What the gates protect; the only place that names a transport."),
            "limits": list("limit", "Rate limits. All limits of a resource and of \"*\" apply to each call, all or nothing."),
            "idempotency": list("idempotency", "Idempotency rules; at most one for each resource."),
            "breakers": list("breaker", "Circuit breakers."),
            "segments": list("segment", "Named conditions."),
            "flags": list("flag", "Feature flags.")
        },
        "patternProperties": { "^x-": true },
        "additionalProperties": false,
        "$defs": defs
    })
}

/// An object with these fields and no others.
fn object(description: &str, required: &[&str], properties: &Value) -> Value {
    json!({
        "type": "object",
        "description": description,
        "required": required,
        "properties": properties,
        "additionalProperties": false
    })
}

/// A definition of [`grammar`] with a description and a default of its own.
fn of(name: &str, description: &str, default: Value) -> Value {
    let mut field = json!({ "$ref": format!("#/$defs/{name}"), "description": description });
    if !default.is_null() {
        field["default"] = default;
    }
    field
}

/// One of some words; the first is the default.
fn choice(description: &str, words: &[&str]) -> Value {
    json!({ "enum": words, "description": description, "default": words.first() })
}

/// A whole number.
fn integer(description: &str, least: u64, most: u64, default: Value) -> Value {
    let mut field =
        json!({ "type": "integer", "minimum": least, "maximum": most, "description": description });
    if !default.is_null() {
        field["default"] = default;
    }
    field
}

/// A list of different names of attributes.
fn attributes(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true, "description": description })
}

/// The grammar of single values.
fn grammar() -> Map<String, Value> {
    let durations = format!("^{DURATION}$");
    let rates = format!("^0*[1-9][0-9]*/(us|ms|s|m|h|d|{DURATION})$");
    let sources = format!(
        "^(header\\.[{TOKEN}]+|cookie\\.[{TOKEN}]+|query\\..+|path\\..+|client\\.ip|body\\.(/([^~/]|~[01])*)+|descriptor\\..+)$"
    );
    let defs = json!({
        "name": {
            "type": "string", "pattern": "^[!-~]{1,128}$", "not": { "const": "*" },
            "description": "1 to 128 visible ASCII characters without spaces; unique in its section."
        },
        "duration": {
            "type": "string", "minLength": 2, "pattern": durations, "not": { "pattern": "^(0+[a-z]+)+$" },
            "description": "Whole numbers with d, h, m, s, ms, us, larger units first: 250ms, 30s, 1h30m. Longer than zero, \
                at most 366d; never a bare number.",
            "examples": ["250ms", "30s", "1h30m"]
        },
        "rate": {
            "type": "string", "pattern": rates, "not": { "pattern": "/((0+[a-z]+)+)?$" },
            "description": "A count from 1, a slash, and a unit or a duration: 10/s is ten each second, 5/10s five every ten \
                seconds. At most one each nanosecond.",
            "examples": ["10/s", "5/10s"]
        },
        "percentage": {
            "type": "number", "minimum": 0, "maximum": 100, "multipleOf": 0.01,
            "description": "Percent, 0 to 100, in steps of 0.01; a bare number.",
            "examples": [10, 0.29]
        },
        "ratio": {
            "description": "A share above 0: 50% or 0.5. A whole number without % is refused, because it could mean either.",
            "examples": ["50%", 0.5],
            "oneOf": [
                { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
                {
                    "type": "string",
                    "pattern": "^(0*(100|[0-9]{1,2})(\\.[0-9]{1,2}0*)?%|0+\\.[0-9]{1,4}0*|0*1\\.0+)$",
                    "not": { "pattern": "^0+(\\.0+)?%?$" }
                }
            ]
        },
        "bytes": {
            "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$",
            "description": "A whole number and B, KiB, MiB or GiB.", "examples": ["64KiB", "1MiB"]
        },
        "source": {
            "type": "string", "pattern": sources,
            "description": "Where a value is taken from: header.NAME, query.NAME, cookie.NAME, path.NAME, client.ip, \
                body./json/pointer or descriptor.KEY.",
            "examples": ["header.x-tenant", "body./order/id"]
        },
        "covered": {
            "description": "The resources that the rule covers: a list of ids, or \"*\" for all. Several share one counter or breaker.",
            "oneOf": [
                { "const": "*" },
                {
                    "type": "array", "minItems": 1, "uniqueItems": true,
                    "items": { "type": "string", "not": { "const": "*" } }
                }
            ]
        },
        "parts": {
            "type": "array", "minItems": 1, "uniqueItems": true,
            "items": { "type": "string", "not": { "pattern": "^body\\.($|[^/])" } },
            "description": "Parts of a request: method, path, query, body, body./json/pointer, or an attribute's name."
        }
    });
    entries(defs)
}

fn resource() -> Value {
    let matcher = object(
        "Which HTTP requests are this resource. Without it, the resource is named by library code or is a dependency. \
         Exact host wins over wildcard over none; then exact path over more literal segments over {x} over {*rest}; then a \
         listed method over any. A tie is a fault.",
        &["path"],
        &json!({
            "hosts": {
                "type": "array", "minItems": 1, "uniqueItems": true, "items": { "type": "string", "minLength": 1 },
                "description": "Names without port; *.example.com is every name below it. Left out: any."
            },
            "methods": {
                "type": "array", "minItems": 1, "uniqueItems": true,
                "items": { "type": "string", "pattern": "^[A-Z0-9!#$%&'*+.^_`|~-]+$" },
                "description": "In capitals. Left out: any."
            },
            "path": {
                "type": "string", "pattern": "^/[^?#]*$", "maxLength": 2048,
                "description": "Literal segments, {name} for one segment, {*rest} as the last for all that is left."
            }
        }),
    );
    let attribute = object(
        "A value of the request that rules can name.",
        &["from"],
        &json!({
            "from": of("source", "Where it is taken from.", Value::Null),
            "missing": choice(
                "What a request without it gets: share is one counter for all that lack it, distinct from the empty value; \
                 reject is 400.",
                &["share", "reject"],
            )
        }),
    );
    object(
        "Something that the gates protect.",
        &["id"],
        &json!({
            "id": of("name", "Unique among resources.", Value::Null),
            "match": matcher,
            "timeout": of("duration", "For the upstream call; 1ms to 1d.", json!("30s")),
            "attributes": {
                "type": "object", "maxProperties": 100, "additionalProperties": attribute,
                "propertyNames": {
                    "pattern": "^[!-~]{1,128}$",
                    "not": {
                        "anyOf": [
                            { "enum": ["method", "path", "query", "body", "all", "any", "not", "segment"] },
                            { "pattern": "^body\\." }
                        ]
                    }
                },
                "description": "Named values of a request, at most 100. Names: 1 to 128 visible ASCII characters."
            },
            "subject": { "type": "string", "description": "The attribute that says who is asking: the subject of flags." },
            "flags": {
                "type": "array", "items": { "type": "string" }, "uniqueItems": true, "default": [],
                "description": "Flags that are evaluated for each request and told to the upstream."
            }
        }),
    )
}

/// The entries of a JSON object.
fn entries(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}
