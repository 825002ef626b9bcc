//! Taking in a webhook: once, and together with what it changes.

use diesel::prelude::*;
use ensemble_store_kit::types::now;
use ensemble_store_kit::{StoreError, on};
use ensemble_types::ids::GatewaySessionId;

use super::Store;
use super::rows::voice_webhooks;
use super::sessions::{Change, change_in};
use crate::domain::webhook::Webhook;

/// What became of a webhook.
pub(crate) enum Taken {
    /// It was taken in before.
    Before,
    /// It says nothing new, or speaks of a session that is none of ours.
    Ignored,
    Applied,
}

impl Store {
    /// `id`: the session that the room's name speaks of.
    pub(crate) async fn take_webhook(&self, id: GatewaySessionId, webhook: Webhook) -> Result<Taken, StoreError> {
        let rules = self.rules.clone();
        let taken: Option<Option<Change<bool>>> = self
            .db
            .write("take in a webhook", move |tx| {
                let row = (voice_webhooks::id.eq(&webhook.id), voice_webhooks::received_at.eq(now()));
                let new = on!(tx, |c| diesel::insert_into(voice_webhooks::table)
                    .values(row)
                    .on_conflict_do_nothing()
                    .execute(c))?;
                if new == 0 {
                    return Ok(None);
                }
                let change = change_in(tx, id, &rules, &mut |_, loaded, now| {
                    let Some(event) = webhook.event(&loaded.session) else { return Ok(false) };
                    Ok(loaded.session.apply(event, now, &rules).is_ok())
                })?;
                Ok::<_, StoreError>(Some(change))
            })
            .await?;
        let Some(known) = taken else { return Ok(Taken::Before) };
        let Some(change) = known else { return Ok(Taken::Ignored) };
        self.tell(&change);
        Ok(if change.result { Taken::Applied } else { Taken::Ignored })
    }
}
