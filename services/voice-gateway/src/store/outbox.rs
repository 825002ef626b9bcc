//! Texts and contexts for the agent: taken in, claimed by one replica at a time, settled one by one.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{GatewaySessionId, LeaseId};
use ensemble_types::time::Timestamp;
use ensemble_types::voice::VoiceDelivery;

use super::Store;
use super::rows::{Loaded, voice_contexts, voice_sessions, voice_texts};
use super::sessions::context;
use crate::domain::outbox::{Item, Outcome, backoff};
use crate::domain::session::VoiceSession;

/// What became of a text or context that a caller sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Accepted<T> {
    Unknown,
    NotLive,
    QueueFull,
    Yes(T),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextAccepted {
    pub(crate) seq: i64,
    pub(crate) message_id: String,
    pub(crate) delivery: VoiceDelivery,
    /// The agent can take it now, so waiting for its acknowledgement makes sense.
    pub(crate) reachable: bool,
}

/// A claimed delivery: nobody else delivers to this session until it is settled or its lease runs out.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) claim: LeaseId,
    pub(crate) session: VoiceSession,
    pub(crate) item: Item,
    /// Failed attempts at this item.
    pub(crate) failures: u32,
}

impl Store {
    /// Takes a text in. One with a `message_id` that is known already stays the first.
    pub(crate) async fn accept_text(
        &self,
        id: GatewaySessionId,
        message_id: String,
        text: String,
        queue_max: i64,
    ) -> Result<Accepted<TextAccepted>, StoreError> {
        let change = self
            .change("take in a text", id, move |tx, loaded, now| {
                let reachable = loaded.session.reachable_agent().is_some();
                if let Some((seq, delivery)) = text_by_message(tx, id, &message_id)? {
                    if delivery == VoiceDelivery::Queued && loaded.session.is_over() {
                        return Ok(Accepted::NotLive);
                    }
                    return Ok(Accepted::Yes(TextAccepted {
                        seq,
                        message_id: message_id.clone(),
                        delivery,
                        reachable,
                    }));
                }
                if loaded.session.is_over() {
                    return Ok(Accepted::NotLive);
                }
                if loaded.queued >= queue_max {
                    return Ok(Accepted::QueueFull);
                }
                let seq = loaded.next_seq;
                on!(tx, |c| diesel::insert_into(voice_texts::table)
                    .values((
                        voice_texts::session.eq(id.db()),
                        voice_texts::seq.eq(seq),
                        voice_texts::message_id.eq(&message_id),
                        voice_texts::body.eq(&text),
                        voice_texts::created_at.eq(now.db()),
                    ))
                    .execute(c))?;
                loaded.next_seq += 1;
                loaded.queued += 1;
                let delivery = VoiceDelivery::Queued;
                Ok(Accepted::Yes(TextAccepted { seq, message_id: message_id.clone(), delivery, reachable }))
            })
            .await?;
        Ok(change.map_or(Accepted::Unknown, |change| change.result))
    }

    /// Takes a context in, in the place of the one before. Gives its version.
    pub(crate) async fn accept_context(
        &self,
        id: GatewaySessionId,
        body: String,
    ) -> Result<Accepted<(i64, bool)>, StoreError> {
        let change = self
            .change("take in a context", id, move |tx, loaded, _| {
                if loaded.session.is_over() {
                    return Ok(Accepted::NotLive);
                }
                let version = loaded.session.context.version + 1;
                loaded.session.context.version = version;
                on!(tx, |c| diesel::insert_into(voice_contexts::table)
                    .values((
                        voice_contexts::session.eq(id.db()),
                        voice_contexts::version.eq(version),
                        voice_contexts::body.eq(&body),
                    ))
                    .on_conflict(voice_contexts::session)
                    .do_update()
                    .set((voice_contexts::version.eq(version), voice_contexts::body.eq(&body)))
                    .execute(c))?;
                Ok(Accepted::Yes((version, loaded.session.reachable_agent().is_some())))
            })
            .await?;
        Ok(change.map_or(Accepted::Unknown, |change| change.result))
    }

    /// How far a text has come.
    pub(crate) async fn text_delivery(&self, id: GatewaySessionId, seq: i64) -> Result<VoiceDelivery, StoreError> {
        self.db
            .read("read a text's delivery", move |c| {
                let delivery: Option<Option<String>> = on!(c, |c| voice_texts::table
                    .find((id.db(), seq))
                    .select(voice_texts::delivery)
                    .first(c)
                    .optional())?;
                Ok(delivery_of(delivery.flatten().as_deref()))
            })
            .await
    }

    /// A text that its agent fetches: its id and body.
    pub(crate) async fn text(&self, id: GatewaySessionId, seq: i64) -> Result<Option<(String, String)>, StoreError> {
        self.db
            .read("fetch a text", move |c| {
                let found = on!(c, |c| voice_texts::table
                    .find((id.db(), seq))
                    .select((voice_texts::message_id, voice_texts::body))
                    .first::<(String, String)>(c)
                    .optional())?;
                Ok::<_, StoreError>(found.filter(|(_, body)| !body.is_empty()))
            })
            .await
    }

    /// Sessions in which something can be delivered now.
    pub(crate) async fn deliverable(&self, limit: i64) -> Result<Vec<GatewaySessionId>, StoreError> {
        use voice_sessions::dsl;
        self.db
            .read("list what can be delivered", move |c| {
                let now = c.now()?;
                on!(c, |c| dsl::voice_sessions
                    .filter(dsl::deliver_at.le(now.db()))
                    .order(dsl::deliver_at)
                    .limit(limit)
                    .select(dsl::id)
                    .load(c))
            })
            .await
    }

    /// Claims the next delivery of a session. `None`: there is nothing to deliver now, or somebody else does it.
    pub(crate) async fn claim_delivery(
        &self,
        id: GatewaySessionId,
        lease: Duration,
    ) -> Result<Option<Delivery>, StoreError> {
        let change = self
            .change("claim a delivery", id, move |tx, loaded, now| {
                if loaded.deliver_at.is_none_or(|at| at > now) {
                    return Ok(None);
                }
                // Whoever held it is dead or has been too slow; the item goes out once more, under the same id.
                loaded.claim = None;
                next(tx, loaded, now, lease)
            })
            .await?;
        Ok(change.and_then(|change| change.result))
    }

    /// Settles one delivery and claims the one after it.
    pub(crate) async fn settle_delivery(
        &self,
        done: Delivery,
        outcome: Outcome,
        lease: Duration,
        retry: Duration,
    ) -> Result<Option<Delivery>, StoreError> {
        let Delivery { claim, session, item, .. } = done;
        let change = self
            .change("settle a delivery", session.id, move |tx, loaded, now| {
                if loaded.claim != Some(claim) {
                    return Ok(None);
                }
                loaded.claim = None;
                match outcome {
                    Outcome::Acknowledged | Outcome::HandedOver => {
                        mark(tx, loaded, &item, outcome)?;
                        loaded.failures = 0;
                        loaded.deliver_at = None;
                        next(tx, loaded, now, lease)
                    }
                    Outcome::Later | Outcome::AgentGone => {
                        loaded.deliver_at = Some(now.plus(backoff(retry, u32::try_from(loaded.failures).unwrap_or(0))));
                        loaded.failures = loaded.failures.saturating_add(1);
                        Ok(None)
                    }
                }
            })
            .await?;
        Ok(change.and_then(|change| change.result))
    }
}

/// Claims what comes next: the newest context before any text, since texts may speak of it.
fn next(tx: &mut Conn, loaded: &mut Loaded, now: Timestamp, lease: Duration) -> Result<Option<Delivery>, StoreError> {
    if !loaded.is_deliverable() {
        loaded.deliver_at = None;
        return Ok(None);
    }
    let Some(item) = next_item(tx, loaded)? else {
        // The count was wrong: mend it, and do not come back for nothing.
        loaded.queued = 0;
        loaded.deliver_at = None;
        return Ok(None);
    };
    let claim = LeaseId::generate();
    loaded.claim = Some(claim);
    loaded.deliver_at = Some(now.plus(lease));
    let failures = u32::try_from(loaded.failures).unwrap_or(0);
    Ok(Some(Delivery { claim, session: loaded.session.clone(), item, failures }))
}

fn next_item(tx: &mut Conn, loaded: &Loaded) -> Result<Option<Item>, StoreError> {
    let id = loaded.session.id;
    if loaded.session.context.is_pending()
        && let Some(newest) = context(tx, id)?
    {
        return Ok(Some(Item::Context { version: newest.version, body: newest.body }));
    }
    let text: Option<(i64, String, String, Timestamp)> = on!(tx, |c| voice_texts::table
        .filter(voice_texts::session.eq(id.db()).and(voice_texts::delivery.is_null()))
        .order(voice_texts::seq)
        .select((voice_texts::seq, voice_texts::message_id, voice_texts::body, voice_texts::created_at))
        .first(c)
        .optional())?;
    Ok(text.map(|(seq, message_id, text, created_at)| Item::Text { seq, message_id, text, created_at }))
}

fn mark(tx: &mut Conn, loaded: &mut Loaded, item: &Item, outcome: Outcome) -> Result<(), StoreError> {
    let acknowledged = outcome == Outcome::Acknowledged;
    match item {
        Item::Text { seq, .. } => {
            let delivery = if acknowledged { "delivered" } else { "sent" };
            let marked = on!(tx, |c| diesel::update(
                voice_texts::table.find((loaded.session.id.db(), *seq)).filter(voice_texts::delivery.is_null())
            )
            .set(voice_texts::delivery.eq(delivery))
            .execute(c))?;
            loaded.queued -= i64::try_from(marked).unwrap_or(0);
        }
        Item::Context { version, .. } if acknowledged => loaded.session.context.was_delivered(*version),
        Item::Context { version, .. } => loaded.session.context.was_sent(*version),
    }
    Ok(())
}

fn text_by_message(
    tx: &mut Conn,
    id: GatewaySessionId,
    message_id: &str,
) -> Result<Option<(i64, VoiceDelivery)>, StoreError> {
    let found: Option<(i64, Option<String>)> = on!(tx, |c| voice_texts::table
        .filter(voice_texts::session.eq(id.db()).and(voice_texts::message_id.eq(message_id)))
        .select((voice_texts::seq, voice_texts::delivery))
        .first(c)
        .optional())?;
    Ok(found.map(|(seq, delivery)| (seq, delivery_of(delivery.as_deref()))))
}

fn delivery_of(column: Option<&str>) -> VoiceDelivery {
    match column {
        Some("delivered") => VoiceDelivery::Delivered,
        Some(_) => VoiceDelivery::Sent,
        None => VoiceDelivery::Queued,
    }
}
