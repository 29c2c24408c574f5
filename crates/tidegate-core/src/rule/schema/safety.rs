//! Idempotency rules and breakers.

use serde_json::{Map, Value, json};

use crate::breaker::policy::MAX_PROBES;
use crate::limit::MAX_COUNT;

use super::{TOKEN, attributes, choice, entries, integer, object, of};

pub(super) fn defs() -> Map<String, Value> {
    entries(json!({ "idempotency": idempotency(), "breaker": breaker(), "fallback": fallback() }))
}

fn idempotency() -> Value {
    let key = json!({
        "oneOf": [
            object(
                "Sent by the client: 1 to 255 bytes of visible ASCII.",
                &["from"],
                &json!({
                    "from": of("source", "Where it stands.", Value::Null),
                    "required": {
                        "type": "boolean", "default": true,
                        "description": "Whether a request without it is refused (400) or passes unguarded."
                    }
                }),
            ),
            object(
                "Derived from the request.",
                &["derive", "window"],
                &json!({
                    "derive": { "$ref": "#/$defs/parts" },
                    "window": of("duration", "How long equal values mean one intent, from the first claim.", Value::Null)
                }),
            )
        ]
    });
    let in_progress = json!({
        "description": "What a concurrent duplicate gets: 409 at once, or the first result if it comes in time.",
        "default": "reject",
        "oneOf": [
            { "const": "reject" },
            object("Wait for the first result.", &["wait"], &json!({ "wait": of("duration", "How long at most.", Value::Null) }))
        ]
    });
    let replay_headers = json!({
        "type": "array", "uniqueItems": true,
        "items": {
            "type": "string", "pattern": format!("^[{TOKEN}]+$"),
            "not": {
                "anyOf": [
                    { "pattern": "^(ratelimit|x-ratelimit|tidegate-)" },
                    { "enum": [
                        "connection", "content-length", "date", "idempotent-replayed", "keep-alive", "proxy-authenticate",
                        "proxy-connection", "retry-after", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade", "age"
                    ] }
                ]
            }
        },
        "default": ["content-type", "content-encoding", "location", "etag"],
        "description": "Headers of the stored answer that a replay repeats."
    });
    object(
        "An idempotency rule: one intent, one execution.",
        &["id", "resources", "scope", "key"],
        &json!({
            "id": of("name", "Unique among idempotency rules.", Value::Null),
            "resources": { "$ref": "#/$defs/covered" },
            "operation": of("name", "A key means one intent inside one operation. Left out: the rule's id.", Value::Null),
            "scope": attributes("Attributes that say whose key it is, each with missing: reject; [] is allowed and warns."),
            "key": key,
            "fingerprint": {
                "$ref": "#/$defs/parts",
                "default": ["method", "path", "body"],
                "description": "What must be equal on a retry, else 422."
            },
            "commit": choice(
                "When the record is completed: after the response; in the same transaction as the business write; or claim, \
                 effects and completion in one transaction (library only).",
                &["after_response", "with_effects", "one_transaction"],
            ),
            "on_unknown": choice(
                "What a retry gets when the outcome is not known: hold is 409 until it is resolved; retry takes over, at least once.",
                &["hold", "retry"],
            ),
            "lease": of("duration", "How long an executor that has fallen silent holds the record.", json!("30s")),
            "max_execution": of("duration", "How long an executor may renew its lease.", json!("5m")),
            "retention": of(
                "duration",
                "How long a record is kept after its last transition; longer than max_execution + lease.",
                json!("24h"),
            ),
            "in_progress": in_progress,
            "max_response": of("bytes", "Largest response body that is kept; at most 64MiB.", json!("1MiB")),
            "replay_headers": replay_headers
        }),
    )
}

fn breaker() -> Value {
    let at_least = || of("ratio", "The share that trips; at least this, so 100% works.", Value::Null);
    let mut trip = object(
        "One reason to open.",
        &[],
        &json!({
            "slow_ratio": object(
                "The share of calls slower than a threshold.",
                &["slower_than", "at_least"],
                &json!({
                    "slower_than": of("duration", "Slower than this is slow; choose it from P99, not from a mean.", Value::Null),
                    "at_least": at_least()
                }),
            ),
            "error_ratio": object("The share of failures.", &["at_least"], &json!({ "at_least": at_least() })),
            "error_count": object(
                "The number of failures in the window.",
                &["at_least"],
                &json!({ "at_least": integer("The number that trips.", 1, MAX_COUNT, Value::Null) }),
            )
        }),
    );
    trip["minProperties"] = json!(1);
    trip["maxProperties"] = json!(1);
    object(
        "A circuit breaker.",
        &["id", "resources", "trip"],
        &json!({
            "id": of("name", "Unique among breakers.", Value::Null),
            "resources": { "$ref": "#/$defs/covered" },
            "key": {
                "type": "array", "items": { "const": "upstream_host" }, "uniqueItems": true, "default": [],
                "description": "[] is one breaker for the rule, [upstream_host] one for each upstream host."
            },
            "failure": {
                "type": "array", "minItems": 1, "uniqueItems": true, "default": ["connect", "timeout", "reset", "5xx"],
                "items": {
                    "oneOf": [
                        { "enum": ["connect", "timeout", "reset", "5xx"] },
                        { "type": "integer", "minimum": 400, "maximum": 599 }
                    ]
                },
                "description": "Which results are failures; a number is exactly that status."
            },
            "trip": { "type": "array", "minItems": 1, "items": trip, "description": "What opens it; any one does." },
            "min_requests": integer("Nothing trips before so many results stand in the window.", 1, MAX_COUNT, json!(20)),
            "window": of("duration", "Length of the sliding window.", json!("10s")),
            "open_for": of(
                "duration",
                "How long the first opening lasts; jitter lengthens it by at most 20 %, repeated trips up to max_open.",
                json!("5s"),
            ),
            "max_open": of("duration", "The longest opening; at least open_for.", json!("60s")),
            "half_open": object(
                "How recovery is tried.",
                &[],
                &json!({
                    "probes": integer("Calls that must all succeed.", 1, MAX_PROBES.into(), json!(1)),
                    "probe_timeout": of("duration", "A probe that is silent for so long is a failure.", json!("10s"))
                }),
            ),
            "fallback": {
                "type": "array", "items": { "$ref": "#/$defs/fallback" }, "default": [],
                "description": "What answers while it is open, in order; then fail fast with 503."
            }
        }),
    )
}

fn fallback() -> Value {
    let mut respond = object(
        "A fixed answer, with at most one body.",
        &["status"],
        &json!({
            "status": integer("The status.", 200, 599, Value::Null),
            "json": { "description": "A body, application/json." },
            "text": { "type": "string", "maxLength": 4096, "description": "A body, text/plain; charset=utf-8." }
        }),
    );
    respond["not"] = json!({ "required": ["json", "text"] });
    let mut fallback = object(
        "One layer.",
        &[],
        &json!({
            "cache": object(
                "The last good answer. GET and HEAD only.",
                &["ttl"],
                &json!({ "ttl": of("duration", "Its age at most.", Value::Null) }),
            ),
            "respond": respond
        }),
    );
    fallback["minProperties"] = json!(1);
    fallback["maxProperties"] = json!(1);
    fallback
}
