//! Texts and contexts for the agent: stored first, then delivered while the caller waits for a moment.

use std::time::Duration;

use ensemble_store_kit::Conn;
use ensemble_types::ids::{GatewaySessionId, MessageId};
use ensemble_types::time::Timestamp;
use ensemble_types::voice::{SayVoiceText, SendVoiceContext, SendVoiceText, VoiceContext, VoiceDelivery, VoiceText};
use tokio::time::{Instant, timeout_at};

use crate::VoiceGateway;
use crate::domain::caller::VoiceCaller;
use crate::domain::outbox::Speech;
use crate::error::Error;
use crate::store::{StoredSession, contexts, texts, topic};

/// A text in the outbox.
struct QueuedText {
    seq: i64,
    delivery: VoiceDelivery,
    /// The agent can take it now, so that it is worth waiting for its acknowledgement.
    reachable: bool,
}

impl VoiceGateway {
    pub(crate) async fn send_text(&self, caller: &VoiceCaller, body: SendVoiceText) -> Result<VoiceText, Error> {
        let id = self.session_to_address(caller, &body.gateway_session_id).await?;
        let message_id = body.message_id.map(|id| id.into_string());
        self.send(id, message_id, body.text.into_string(), Speech::Turn).await
    }

    /// Words that the agent speaks as they are.
    pub(crate) async fn say(&self, caller: &VoiceCaller, body: SayVoiceText) -> Result<VoiceText, Error> {
        let id = self.session_to_address(caller, &body.gateway_session_id).await?;
        let message_id = body.message_id.map(|id| id.into_string());
        let speech = Speech::Say { interrupt: body.interrupt.unwrap_or(false) };
        self.send(id, message_id, body.text.into_string(), speech).await
    }

    async fn send(
        &self,
        id: GatewaySessionId,
        message_id: Option<String>,
        text: String,
        speech: Speech,
    ) -> Result<VoiceText, Error> {
        let message_id = message_id.unwrap_or_else(|| MessageId::generate().to_string());
        let (known_as, queue_max) = (message_id.clone(), self.delivery.queue_max);
        let change = self
            .change("accept a text", id, move |tx, stored, now| {
                accept_text(tx, stored, now, &known_as, (&text, speech), queue_max)
            })
            .await?;
        let accepted = change.ok_or(Error::Unknown("accepted"))?.result;
        let delivery = if accepted.delivery == VoiceDelivery::Queued && accepted.reachable {
            self.await_text(id, accepted.seq).await?
        } else {
            accepted.delivery
        };
        Ok(VoiceText { accepted: true, message_id, delivery })
    }

    pub(crate) async fn send_context(
        &self,
        caller: &VoiceCaller,
        body: SendVoiceContext,
    ) -> Result<VoiceContext, Error> {
        let id = self.session_to_address(caller, &body.gateway_session_id).await?;
        let payload = body.payload.as_text().to_owned();
        let change = self
            .change("accept a context", id, move |tx, stored, _| {
                if stored.session.is_over() {
                    return Err(Error::NotLive);
                }
                let version = stored.session.context.version + 1;
                stored.session.context.version = version;
                contexts::put(tx, id, version, &payload)?;
                Ok((version, stored.session.reachable_agent().is_some()))
            })
            .await?;
        let (version, reachable) = change.ok_or(Error::Unknown("accepted"))?.result;
        let delivery = if reachable { self.await_context(id, version).await? } else { VoiceDelivery::Queued };
        Ok(VoiceContext { accepted: true, context_version: u64::try_from(version).unwrap_or(0), delivery })
    }

    async fn session_to_address(&self, caller: &VoiceCaller, id: &str) -> Result<GatewaySessionId, Error> {
        let found = self.find_visible(caller, id).await?.ok_or(Error::Unknown("accepted"))?;
        let counted = "texts and contexts for this voice session";
        self.rates.injection(found.session.id).map_err(|retry_after| Error::TooMany { counted, retry_after })?;
        Ok(found.session.id)
    }

    async fn await_text(&self, id: GatewaySessionId, seq: i64) -> Result<VoiceDelivery, Error> {
        let mut changes = self.db.notifier().subscribe(topic(id));
        let deadline = self.delivery_deadline();
        loop {
            let delivery = self.db.read("read a text's delivery", move |c| texts::delivery(c, id, seq)).await?;
            if delivery != VoiceDelivery::Queued || timeout_at(deadline, changes.changed()).await.is_err() {
                return Ok(delivery);
            }
        }
    }

    /// Waits for the agent to take this version of the context or a newer one.
    async fn await_context(&self, id: GatewaySessionId, version: i64) -> Result<VoiceDelivery, Error> {
        let mut changes = self.db.notifier().subscribe(topic(id));
        let deadline = self.delivery_deadline();
        loop {
            let Some(found) = self.find(id).await? else { return Err(Error::Unknown("accepted")) };
            let marks = &found.session.context;
            let so_far = if marks.delivered >= version {
                return Ok(VoiceDelivery::Delivered);
            } else if marks.sent >= version {
                VoiceDelivery::Sent
            } else {
                VoiceDelivery::Queued
            };
            if found.session.is_over() || timeout_at(deadline, changes.changed()).await.is_err() {
                return Ok(so_far);
            }
        }
    }

    fn delivery_deadline(&self) -> Instant {
        Instant::now() + self.delivery.timeout.min(Duration::from_secs(60))
    }
}

/// A text whose message id is known already changes nothing: the first one counts.
fn accept_text(
    tx: &mut Conn,
    stored: &mut StoredSession,
    now: Timestamp,
    message_id: &str,
    (text, speech): (&str, Speech),
    queue_max: i64,
) -> Result<QueuedText, Error> {
    let (id, reachable) = (stored.session.id, stored.session.reachable_agent().is_some());
    let known = texts::by_message_id(tx, id, message_id)?;
    if let Some((seq, delivery)) = known
        && !(delivery == VoiceDelivery::Queued && stored.session.is_over())
    {
        return Ok(QueuedText { seq, delivery, reachable });
    }
    if stored.session.is_over() {
        return Err(Error::NotLive);
    }
    if stored.queued >= queue_max {
        return Err(Error::QueueFull);
    }
    let seq = stored.next_seq;
    texts::insert(tx, id, seq, message_id, (text, speech), now)?;
    stored.next_seq += 1;
    stored.queued += 1;
    Ok(QueuedText { seq, delivery: VoiceDelivery::Queued, reachable })
}
