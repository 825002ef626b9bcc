//! Processing a webhook: once, in one transaction with what it changes.

use ensemble_types::ids::GatewaySessionId;

use super::change::{Change, change_in};
use crate::VoiceGateway;
use crate::domain::webhook::Webhook;
use crate::error::Error;
use crate::store::webhooks;

impl VoiceGateway {
    /// Gives the result as a label for metrics.
    pub(crate) async fn take_webhook(&self, webhook: Webhook) -> Result<&'static str, Error> {
        let Some(room) = webhook.room_name().filter(|room| room.starts_with(&self.rooms.prefix)) else {
            return Ok("ignored");
        };
        if webhook.is_room_started() {
            self.started_rooms.report(room.to_owned());
            return Ok("noted");
        }
        let (Some(id), true) = (self.rooms.session_of(room), webhook.is_relevant()) else { return Ok("ignored") };
        self.apply_webhook(id, webhook).await
    }

    async fn apply_webhook(&self, id: GatewaySessionId, webhook: Webhook) -> Result<&'static str, Error> {
        let saving = self.saving();
        let processed: Option<Option<Change<bool>>> = self
            .db
            .write("process a webhook", move |tx| {
                if !webhooks::record(tx, &webhook.id)? {
                    return Ok::<_, Error>(None);
                }
                let change = change_in(tx, id, &saving, &mut |_, stored, now| {
                    let Some(event) = webhook.event(&stored.session) else { return Ok(false) };
                    Ok(stored.session.apply(event, now, &saving.rules).is_ok())
                })?;
                Ok(Some(change))
            })
            .await?;
        let Some(first_time) = processed else { return Ok("repeated") };
        let Some(change) = first_time else { return Ok("ignored") };
        self.publish(&change.transition);
        Ok(if change.result { "applied" } else { "ignored" })
    }
}
