//! `/v1/flags/{key}/explain`: what a flag says to a subject, and why.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use http::Uri;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tidegate::explain::explain_flag;

use super::Subject;
use super::problem::Problem;
use super::view::{self, Document};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Who {
    subject: Option<String>,
    attributes: Option<String>,
}

pub(super) async fn explain(
    State(subject): State<Subject>,
    uri: Uri,
    who: Result<Query<Who>, QueryRejection>,
) -> Result<Document, Problem> {
    let key = key(uri.path())?;
    let Query(who) = who.map_err(|error| Problem::bad_request(error.body_text()))?;
    let attributes = attributes(who.attributes.as_deref())?;
    let in_force = subject.in_force()?;
    let says = explain_flag(&in_force, &key, who.subject.as_deref(), &attributes)
        .map_err(|error| Problem::not_found(error.to_string()))?;
    let mut document = view::flag(&says);
    document["subject"] = json!(who.subject);
    document["version"] = view::version(in_force.version);
    Ok(Document(document))
}

/// The key in a path as it was sent: everything between the two fixed parts, decoded once. So a `/` of
/// a key may be sent as it is or as `%2F`, and a key that has a `%2F` in it is sent with `%252F`.
fn key(path: &str) -> Result<String, Problem> {
    let key = path.strip_prefix("/v1/flags/").and_then(|rest| rest.strip_suffix("/explain"));
    let Some(key) = key.filter(|key| !key.is_empty()) else {
        return Err(Problem::not_found("there is /v1/flags/{key}/explain, with the key percent-encoded"));
    };
    let decoded = percent_decode_str(key).decode_utf8();
    decoded.map(String::from).map_err(|_| Problem::bad_request("the key is no UTF-8 once it is decoded"))
}

fn attributes(json: Option<&str>) -> Result<Map<String, Value>, Problem> {
    let Some(json) = json else { return Ok(Map::new()) };
    serde_json::from_str(json).map_err(|error| {
        Problem::bad_request(format!(
            "attributes is a JSON object of names and values, percent-encoded: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn r8_a_key_is_decoded_once_whatever_is_in_it() {
        for (path, expected) in [
            ("/v1/flags/new-checkout/explain", "new-checkout"),
            ("/v1/flags/a/b/explain", "a/b"),
            ("/v1/flags/a%2Fb/explain", "a/b"),
            ("/v1/flags/a%252Fb/explain", "a%2Fb"),
            ("/v1/flags/%C3%A9t%C3%A9/explain", "été"),
            ("/v1/flags/%F0%9F%98%80/explain", "😀"),
            ("/v1/flags/a+b%20c/explain", "a+b c"),
            ("/v1/flags/x%2Fexplain/explain", "x/explain"),
            ("/v1/flags/explain/explain", "explain"),
        ] {
            assert_eq!(key(path).as_deref(), Ok(expected), "{path}");
        }
        for (path, status) in [
            ("/v1/flags/a", 404),
            ("/v1/flags/a%2Fexplain", 404),
            ("/v1/flags//explain", 404),
            ("/v1/flags/%FF/explain", 400),
        ] {
            assert_eq!(key(path).unwrap_err().status().as_u16(), status, "{path}");
        }
    }
}
