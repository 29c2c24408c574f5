//! `tidegate idempotency show`.

use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};
use tidegate_core::Timestamp;
use tidegate_core::idempotency::{RecordId, Stage, StoredResponse};
use tidegate_core::rule::model::{CommitMode, OnUnknown};
use tidegate_core::rule::render;
use tidegate_store::traits::Shown;

use super::{Store, Trouble, Which};
use crate::cli::Exit;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    which: Which,
    /// Print the stored body, too: it may hold what is nobody's business
    #[arg(long)]
    body: bool,
    /// Print the record as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Args) -> Result<Exit, Trouble> {
    let store = Store::open(&args.which).await?;
    let (id, shown) = store.read(&args.which).await?;
    let mut out = io::stdout().lock();
    let fields = fields(&id, &shown);
    if args.json {
        let mut object: Map<String, Value> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if let (true, Stage::Finished(response)) = (args.body, &shown.record.stage) {
            body_to_json(response, &mut object);
        }
        writeln!(out, "{:#}", Value::Object(object))?;
        return Ok(Exit::Fine);
    }
    for (name, value) in fields {
        let lines = match value {
            Value::Null => continue,
            Value::String(text) => vec![text],
            Value::Array(items) => items.iter().map(header).collect(),
            other => vec![other.to_string()],
        };
        for line in lines {
            writeln!(out, "{:<18}{}", name.replace('_', " "), printable(&line))?;
        }
    }
    if let (true, Stage::Finished(response)) = (args.body, &shown.record.stage) {
        writeln!(out)?;
        out.write_all(response.body().map_or(&[][..], |body| body))?;
    }
    Ok(Exit::Fine)
}

/// What is shown of a record, in this order.
fn fields(id: &RecordId, shown: &Shown) -> Vec<(&'static str, Value)> {
    let Shown { record, now } = shown;
    let parts: Vec<String> = record.fingerprint.parts().map(render::fingerprint_part).collect();
    let span = |span| Value::from(render::duration(span));
    let mut fields = vec![
        ("operation", json!(id.operation())),
        ("scope", json!(id.scope())),
        ("key", json!(id.key())),
        ("state", json!(record.stage.state().as_str())),
        ("token", json!(record.fence.token)),
        ("owner", json!(record.fence.owner.to_string())),
        ("attempts", json!(record.attempts)),
        ("first_claimed_at", time(record.first_claimed_at)),
        ("claimed_at", time(record.claimed_at)),
        ("changed_at", time(record.changed_at)),
        ("lease_until", time(record.lease_until)),
        // Only an attempt that has not ended holds a lease.
        (
            "lease_left",
            match record.stage {
                Stage::Processing => span(record.lease_until.since(*now)),
                _ => Value::Null,
            },
        ),
        ("execution_until", time(record.execution_until)),
        ("expires_at", time(record.expires_at())),
        ("now", time(*now)),
        ("commit", json!(commit(record.policy.commit))),
        ("on_unknown", json!(on_unknown(record.policy.on_unknown))),
        ("retention", span(record.policy.retention)),
        ("window", record.policy.window.map_or(Value::Null, span)),
        ("fingerprint", json!(parts.join(", "))),
        ("rules_version", json!(record.first.version)),
        ("flags", json!(&*record.first.flags)),
    ];
    if let Stage::Finished(response) = &record.stage {
        let pair = |(name, value): (&str, &[u8])| json!([name, String::from_utf8_lossy(value)]);
        let headers: Vec<Value> = response.headers().map(pair).collect();
        fields.push(("status", json!(response.status())));
        fields.push(("headers", json!(headers)));
        fields.push(("body_bytes", json!(response.body().map(bytes::Bytes::len))));
    }
    fields
}

fn body_to_json(response: &StoredResponse, object: &mut Map<String, Value>) {
    let Some(body) = response.body() else {
        object.insert("body".to_owned(), Value::Null);
        return;
    };
    match std::str::from_utf8(body) {
        Ok(text) => object.insert("body".to_owned(), json!(text)),
        Err(_) => object.insert("body_base64".to_owned(), json!(BASE64.encode(body))),
    };
}

/// `["etag", "\"1\""]` as `etag: "1"`.
fn header(pair: &Value) -> String {
    let part = |at: usize| pair.get(at).and_then(Value::as_str).unwrap_or_default();
    format!("{}: {}", part(0), part(1))
}

/// RFC 3339, in UTC.
fn time(at: Timestamp) -> Value {
    let millis = i64::try_from(at.as_millis()).ok();
    match millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok()) {
        Some(time) => json!(format!("{time:.3}")),
        // Beyond the year 9999.
        None => json!(format!("{} ms", at.as_millis())),
    }
}

/// What a client sent must not steer the operator's terminal.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = if c.is_control() { None } else { Some(c) };
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

fn commit(mode: CommitMode) -> &'static str {
    match mode {
        CommitMode::AfterResponse => "after_response",
        CommitMode::WithEffects => "with_effects",
        CommitMode::OneTransaction => "one_transaction",
    }
}

fn on_unknown(policy: OnUnknown) -> &'static str {
    match policy {
        OnUnknown::Hold => "hold",
        OnUnknown::Retry => "retry",
    }
}
