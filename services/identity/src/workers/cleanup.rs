//! Deletes what has expired, and counts the open challenges.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;

use crate::error::Error;
use crate::first_account::FirstAccount;
use crate::operations::cleanup;
use crate::operations::sign_in::{OpenChallenges, count_challenges};

pub(crate) struct Cleanup {
    pub(crate) db: Db,
    pub(crate) challenges: Arc<OpenChallenges>,
    /// While the server has no account.
    pub(crate) first_account: Option<FirstAccount>,
    pub(crate) every: Duration,
    pub(crate) drain: Drain,
}

impl Cleanup {
    pub(crate) async fn run(mut self) {
        loop {
            if let Err(error) = self.run_once().await {
                tracing::warn!(%error, "Expired challenges and tokens could not be deleted");
            }
            tokio::select! {
                () = tokio::time::sleep(self.every) => {}
                () = self.drain.closing() => return,
            }
        }
    }

    async fn run_once(&mut self) -> Result<(), Error> {
        cleanup::delete_expired(&self.db).await?;
        if let Some(first) = &self.first_account
            && !first.is_open(&self.db).await?
        {
            self.first_account = first.again(&self.db).await?;
        }
        Ok(count_challenges(&self.db, &self.challenges).await?)
    }
}
