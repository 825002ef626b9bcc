//! Gives ends of runs to identity, which notifies the owners' devices.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_rpc::PushGiver;
use ensemble_store_kit::Db;

use crate::operations::pushes;

/// What was taken and not given is looked for after this time.
const AGAIN: Duration = Duration::from_secs(30);

pub(crate) async fn run(db: Db, identity: PushGiver, drain: Drain) {
    let mut added = db.notifier().subscribe(pushes::topic());
    while !drain.is_closing() {
        if let Err(error) = pushes::give(&db, &identity).await {
            tracing::warn!(%error, "Ends of runs could not be given to identity; they are given again");
        }
        tokio::select! {
            () = added.changed() => {}
            () = tokio::time::sleep(AGAIN) => {}
            () = drain.closing() => return,
        }
    }
}
