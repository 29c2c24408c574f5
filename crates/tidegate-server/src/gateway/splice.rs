//! Upgraded connections: bytes both ways until both sides have ended.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::drain::Token;
use super::pool::Lease;

/// Joins both sides once both have switched. The lease bounds upgraded streams along with calls; the
/// token tells a shutdown of them.
pub(super) fn splice(client: OnUpgrade, upstream: OnUpgrade, lease: Lease, token: Option<Arc<Token>>) {
    tokio::spawn(async move {
        let _held = (lease, token);
        match tokio::try_join!(client, upstream) {
            Ok((client, upstream)) => {
                let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
                // Either side may just go away: an upgraded stream has no other end.
                if let Err(error) = copy_bidirectional(&mut client, &mut upstream).await {
                    tracing::debug!(%error, "an upgraded stream broke");
                }
            }
            Err(error) => tracing::debug!(%error, "an upgrade was not completed"),
        }
    });
}
