//! Limits.

use serde_json::{Map, Value, json};

use crate::limit::MAX_COUNT;
use crate::rule::bounds::{MAX_LOG, MAX_OVERRIDES, MAX_QUEUE};

use super::{attributes, choice, entries, integer, object, of};

/// The algorithms, of which a limit has exactly one.
const ALGORITHMS: [&str; 6] =
    ["token_bucket", "fixed_window", "sliding_log", "sliding_window", "leaky_bucket", "concurrency"];

pub(super) fn defs() -> Map<String, Value> {
    let exactly_one: Vec<Value> = ALGORITHMS.iter().map(|name| json!({ "required": [name] })).collect();
    let mut numbers = entries(algorithms());
    numbers.insert("when".to_owned(), json!({ "$ref": "#/$defs/condition" }));
    let mut other = object(
        "Other numbers for the keys for which the condition holds; it tests attributes of the key only. The same algorithm as \
         the limit's.",
        &["when"],
        &Value::Object(numbers),
    );
    other["oneOf"] = json!(exactly_one);
    let mut limit = object("A rate limit.", &["id", "resources"], &Value::Object(fields()));
    limit["oneOf"] = json!(exactly_one);
    limit["allOf"] = json!([
        {
            "if": { "properties": { "sharing": { "enum": ["exact", "leased"] } }, "required": ["sharing"] },
            "then": { "required": ["on_store_failure"] }
        },
        {
            "if": { "properties": { "sharing": { "const": "leased" } }, "required": ["sharing"] },
            "then": { "not": { "anyOf": [{ "required": ["leaky_bucket"] }, { "required": ["concurrency"] }] } }
        }
    ]);
    entries(json!({ "limit": limit, "override": other }))
}

fn fields() -> Map<String, Value> {
    let text = |description: &str| json!({ "type": "string", "maxLength": 4096, "description": description });
    let cost = json!({
        "description": "What a call costs.",
        "default": 1,
        "oneOf": [
            integer("The same for each call.", 1, MAX_COUNT, Value::Null),
            object(
                "Taken from an attribute that must be an integer from 1 to max, else 400.",
                &["from", "max"],
                &json!({
                    "from": { "type": "string", "description": "The attribute's name." },
                    "default": integer("The cost of a call without it.", 1, MAX_COUNT, json!(1)),
                    "max": integer("The largest accepted cost.", 1, MAX_COUNT, Value::Null)
                }),
            )
        ]
    });
    let mut fields = entries(json!({
        "id": of("name", "Unique among limits.", Value::Null),
        "description": text("Free text for people, at most 4096 bytes."),
        "owner": text("Free text: who is paged."),
        "mode": choice(
            "enforce refuses; shadow decides, counts and logs but never refuses; off does nothing.",
            &["enforce", "shadow", "off"],
        ),
        "resources": { "$ref": "#/$defs/covered" },
        "key": attributes("Attributes whose values make the counter's key; [] is one counter for the rule."),
        "cost": cost,
        "overrides": {
            "type": "array", "maxItems": MAX_OVERRIDES, "default": [], "items": { "$ref": "#/$defs/override" },
            "description": "The first whose condition holds counts; at most 1000."
        },
        "sharing": choice(
            "Where the counter lives: local in each process; exact in the shared store, which makes every decision; leased takes \
             batches of permits from the shared store. Must be written once a shared store is configured.",
            &["local", "exact", "leased"],
        ),
        "on_store_failure": {
            "enum": ["fail_open", "fail_closed", "local_fallback"],
            "description": "What happens while the shared store does not answer: admit; refuse with 503; count locally against \
                this instance's share. Must be written with exact and leased."
        },
        "after_store_loss": choice(
            "How counters start after the shared store lost its data: as if nothing, or as if all had been used.",
            &["fresh", "exhausted"],
        )
    }));
    fields.append(&mut entries(algorithms()));
    fields
}

fn algorithms() -> Value {
    let window = |description: &str, most: u64| {
        object(
            description,
            &["limit", "window"],
            &json!({
                "limit": integer("Calls in a window.", 1, most, Value::Null),
                "window": of("duration", "Length of the window; 1ms to 366d.", Value::Null)
            }),
        )
    };
    json!({
        "token_bucket": object(
            "Admits capacity at once, and at most capacity + refill × t in any time t.",
            &["capacity", "refill"],
            &json!({
                "capacity": integer("Most tokens that the bucket holds.", 1, MAX_COUNT, Value::Null),
                "refill": of("rate", "How fast it refills; at most 100 years from empty to full.", Value::Null)
            }),
        ),
        "fixed_window": window("At most limit in each window aligned to the UTC epoch, so up to 2 × limit in any window.", MAX_COUNT),
        "sliding_log": window("At most limit in any window, exactly; keeps every timestamp.", MAX_LOG),
        "sliding_window": window("Two weighted counters: approximate and cheap, under 2 × limit in any window.", MAX_COUNT),
        "leaky_bucket": object(
            "Shapes: calls wait their turn at the rate; 429 when the queue is full.",
            &["rate", "queue"],
            &json!({
                "rate": of("rate", "How fast calls leave.", Value::Null),
                "queue": integer("How many may wait.", 0, MAX_QUEUE, Value::Null)
            }),
        ),
        "concurrency": object(
            "At most max calls at the same time.",
            &["max"],
            &json!({ "max": integer("Calls in flight.", 1, MAX_COUNT, Value::Null) }),
        )
    })
}
