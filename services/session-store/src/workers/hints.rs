//! Gives hints to the readers on this replica when something has changed anywhere.

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;
use tokio::time::{Instant, sleep_until};

use crate::operations::hints::{self, HintReaders, Subjects};

pub(crate) async fn run(db: Db, readers: HintReaders, drain: Drain) {
    let mut published = db.notifier().tap();
    let mut subjects = Subjects::default();
    loop {
        let next = subjects.next_due().map(Instant::from_std);
        let due = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            published = published.next() => hints::note(&readers, &mut subjects, &published),
            () = due => {
                if let Err(error) = hints::give(&db, &readers, &mut subjects).await {
                    tracing::warn!(?error, "Could not give hints");
                }
            }
            () = drain.closing() => return,
        }
    }
}
