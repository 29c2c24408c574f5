//! The sample payment service: what a team's own service would be, in fifty lines.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A request with this header set to `fail` gets a 500, so that a breaker can be seen at work.
const SAMPLE: &str = "x-sample";

/// Serves until the process ends.
pub(super) async fn serve(listener: TcpListener) {
    let payments = Arc::new(AtomicU64::new(0));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let payments = Arc::clone(&payments);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&payments), request));
            // A client that goes away in the middle is no fault of the sample.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    payments: Arc<AtomicU64>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    // Read to the end, as a service that parses its input does.
    let _ = body.collect().await;
    let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
    let (status, answer) = match (&head.method, path.as_slice()) {
        _ if head.headers.get(SAMPLE).is_some_and(|value| value == "fail") => {
            (StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": "as asked" }))
        }
        (&Method::POST, ["orders", order, "pay"]) => {
            let payment = payments.fetch_add(1, Ordering::Relaxed) + 1;
            (
                StatusCode::CREATED,
                json!({ "payment": payment, "order": order, "flags": flags(&head.headers) }),
            )
        }
        (&Method::GET, ["accounts", account]) => {
            (StatusCode::OK, json!({ "account": account, "balance": 100 }))
        }
        _ => (StatusCode::NOT_FOUND, json!({ "error": "no such path" })),
    };
    let mut response = Response::new(Full::new(Bytes::from(format!("{answer}\n"))));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}

/// What the gateway said about the caller's flags.
fn flags(headers: &HeaderMap) -> Value {
    headers.get("tidegate-flags").and_then(|value| value.to_str().ok()).map_or(Value::Null, Value::from)
}
