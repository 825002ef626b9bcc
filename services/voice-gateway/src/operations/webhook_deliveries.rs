//! Webhooks to the operator's endpoints: stored with the change that they tell of, then sent by a loop of each endpoint until it has
//! taken them, or they are too old.

use ensemble_store_kit::deliveries::Due;
use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::time::Timestamp;

use crate::VoiceGateway;
use crate::clients::endpoints::{self, Sent};
use crate::domain::announcement::announcements;
use crate::domain::endpoint::{Endpoint, Endpoints};
use crate::domain::session::VoiceSession;
use crate::store::webhook_deliveries::{self as rows, Delivery};

/// What is recorded of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    Gone,
    Later,
    Expired,
}

/// Stores the deliveries for a change, in the transaction of the change.
pub(super) fn store(
    tx: &mut Conn,
    (before, after): (&VoiceSession, &VoiceSession),
    endpoints: &Endpoints,
    now: Timestamp,
) -> Result<(), StoreError> {
    if endpoints.is_empty() {
        return Ok(());
    }
    let all = announcements(before, after, now);
    for new in &all {
        for endpoint in endpoints.iter() {
            rows::insert(tx, &endpoint.name, new, (now, now.plus(endpoints.give_up)))?;
        }
    }
    if !all.is_empty() {
        tx.notify(rows::topic());
    }
    Ok(())
}

impl VoiceGateway {
    /// Takes what is due for an endpoint, and says how long until the next one is.
    pub(crate) async fn take_webhook_deliveries(
        &self,
        endpoint: &Endpoint,
        limit: usize,
    ) -> Result<Due<Delivery>, StoreError> {
        let (name, limit) = (endpoint.name.clone(), i64::try_from(limit).unwrap_or(0));
        // No other process tries it while this one may still wait for an answer.
        let taken_for = self.webhooks.timeout.saturating_mul(2);
        let (taken, next, expired) = self
            .db
            .write("take webhooks to send", move |tx| {
                let now = tx.now()?;
                let taken = rows::take(tx, &name, limit, now.plus(taken_for))?;
                let (taken, old): (Vec<_>, Vec<_>) = taken.into_iter().partition(|one| one.expires_at > now);
                for delivery in &old {
                    rows::delete(tx, &name, &delivery.id)?;
                }
                let next = rows::next_due(tx, &name)?.map(|due| due.since(now));
                Ok::<_, StoreError>((taken, next, old.len()))
            })
            .await?;
        for _ in 0..expired {
            self.note_webhook(&endpoint.name, Outcome::Expired);
        }
        Ok(Due { taken, next })
    }

    /// Sends one and records what became of it. True: the endpoint did not answer.
    pub(crate) async fn send_webhook(&self, endpoint: &Endpoint, delivery: Delivery) -> bool {
        let sent = endpoints::send(&self.webhooks.outward, endpoint, &delivery, self.clock.now()).await;
        match self.record_webhook(endpoint, delivery, sent).await {
            Ok(outcome) => self.note_webhook(&endpoint.name, outcome),
            // It is taken again, and at worst sent a second time under the same id.
            Err(error) => tracing::warn!(%error, "It could not be recorded what became of a webhook"),
        }
        sent == Sent::Silent
    }

    async fn record_webhook(&self, to: &Endpoint, delivery: Delivery, sent: Sent) -> Result<Outcome, StoreError> {
        let (name, first) = (to.name.clone(), self.webhooks.first_wait);
        self.db
            .write("record a webhook", move |tx| {
                let (outcome, asked) = match sent {
                    Sent::Taken => (Outcome::Delivered, None),
                    Sent::Gone => (Outcome::Gone, None),
                    Sent::Later(asked) => (Outcome::Later, asked),
                    Sent::Silent => (Outcome::Later, None),
                };
                if outcome != Outcome::Later {
                    rows::delete(tx, &name, &delivery.id)?;
                    return Ok(outcome);
                }
                let tries = delivery.tries + 1;
                let next = tx.now()?.plus(ensemble_chassis::outward::backoff(first, tries, asked));
                if next >= delivery.expires_at {
                    rows::delete(tx, &name, &delivery.id)?;
                    return Ok(Outcome::Expired);
                }
                rows::postpone(tx, &name, &delivery.id, (next, tries))?;
                Ok(outcome)
            })
            .await
    }

    fn note_webhook(&self, endpoint: &str, outcome: Outcome) {
        let label = match outcome {
            Outcome::Delivered => "delivered",
            Outcome::Gone => "gone",
            Outcome::Later => "later",
            Outcome::Expired => "expired",
        };
        self.metrics.webhook_sent(endpoint, label);
        if matches!(outcome, Outcome::Gone | Outcome::Expired) {
            tracing::warn!(endpoint, outcome = label, "An event of a voice session was not delivered to an endpoint");
        }
    }

    /// Counts for the metrics what endpoints still have to get.
    pub(super) async fn count_webhook_deliveries(&self) -> Result<(), StoreError> {
        for endpoint in self.webhooks.endpoints.iter() {
            let name = endpoint.name.clone();
            let (waiting, age) = self
                .db
                .read("count webhooks that wait", move |c| {
                    let (waiting, oldest) = rows::waiting(c, &name)?;
                    let now = c.now()?;
                    Ok::<_, StoreError>((waiting, oldest.map_or(0, |at| now.since(at).as_secs())))
                })
                .await?;
            self.metrics.set_webhooks_waiting(&endpoint.name, waiting, age);
        }
        Ok(())
    }
}
