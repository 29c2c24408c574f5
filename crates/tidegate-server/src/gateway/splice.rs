//! Upgraded connections: bytes both ways until both sides have ended.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// Joins both sides once both have switched. `held` is what lasts as long as the stream: the lease,
/// which bounds upgraded streams along with calls, and the token, which tells a shutdown of them.
pub(super) fn splice(client: OnUpgrade, upstream: OnUpgrade, held: impl Send + 'static) {
    tokio::spawn(async move {
        let _held = held;
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
