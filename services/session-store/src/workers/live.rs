//! Hands live frames on that any replica was sent.

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;

use crate::operations::live::{self, LiveFeeds};

pub(crate) async fn run(db: Db, feeds: LiveFeeds, drain: Drain) {
    let mut frames = live::subscribe(&db);
    loop {
        tokio::select! {
            () = frames.changed() => {}
            () = drain.closing() => return,
        }
        if let Err(error) = live::relay(&db, &feeds).await {
            tracing::warn!(?error, "Could not hand on live frames");
        }
    }
}
