//! Delivering texts and contexts to the agent: acknowledged RPC calls first, packets where the agent or the server has no
//! RPC.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::{GatewaySessionId, LeaseId};
use ensemble_types::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::VoiceGateway;
use crate::clients::livekit::CallError;
use crate::domain::outbox::{Item, Outcome, Speech, backoff};
use crate::domain::packet::{CONTEXT_METHOD, SAY_METHOD, TEXT_METHOD, Transport, pack};
use crate::domain::session::VoiceSession;
use crate::error::Error;
use crate::store::{StoredSession, sessions, texts};

/// After this many failures in the agent's handler a packet is sent instead.
const HANDLER_FAILURES: u32 = 4;

/// Whether this LiveKit lacks PerformRpc, which exists since v1.9.2. Learnt once per process.
#[derive(Debug, Default)]
pub(crate) struct RpcSupport(AtomicBool);

impl RpcSupport {
    fn is_missing(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set_missing(&self) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!("LiveKit has no PerformRpc; texts are sent as packets without acknowledgement");
        }
    }
}

/// A claimed delivery: no other replica delivers to this session until it is settled or its lease runs out.
#[derive(Debug)]
struct Delivery {
    claim: LeaseId,
    session: VoiceSession,
    item: Item,
    /// Failed attempts at this item.
    failures: u32,
}

impl VoiceGateway {
    /// Delivers what is queued in one session until the queue is empty or an attempt fails.
    pub(crate) async fn deliver(&self, id: GatewaySessionId) -> Result<(), Error> {
        let mut claimed = self.claim_delivery(id).await?;
        while let Some(delivery) = claimed.take() {
            let outcome = self.attempt(&delivery).await?;
            self.metrics.delivery(kind(&delivery.item), result(outcome));
            claimed = self.settle_delivery(delivery, outcome).await?;
            if outcome == Outcome::AgentGone {
                self.observe_now(id).await?;
            }
        }
        Ok(())
    }

    /// `None`: there is nothing to deliver now, or another replica delivers it.
    async fn claim_delivery(&self, id: GatewaySessionId) -> Result<Option<Delivery>, Error> {
        let lease = self.delivery.lease;
        let change = self
            .change("claim a delivery", id, move |tx, stored, now| {
                if stored.deliver_at.is_none_or(|at| at > now) {
                    return Ok(None);
                }
                // The lease of the previous claim has run out. The item goes out once more, under the same id.
                stored.delivery_claim = None;
                Ok(claim_next(tx, stored, now, lease)?)
            })
            .await?;
        Ok(change.and_then(|change| change.result))
    }

    /// Settles one delivery and claims the next one.
    async fn settle_delivery(&self, done: Delivery, outcome: Outcome) -> Result<Option<Delivery>, Error> {
        let (lease, retry) = (self.delivery.lease, self.delivery.retry);
        let change = self
            .change("settle a delivery", done.session.id, move |tx, stored, now| {
                if stored.delivery_claim != Some(done.claim) {
                    return Ok(None);
                }
                stored.delivery_claim = None;
                match outcome {
                    Outcome::Acknowledged | Outcome::HandedOver => {
                        mark(tx, stored, &done.item, outcome)?;
                        stored.delivery_failures = 0;
                        stored.deliver_at = None;
                        Ok(claim_next(tx, stored, now, lease)?)
                    }
                    Outcome::Later | Outcome::AgentGone => {
                        stored.deliver_at = Some(now.plus(backoff(retry, stored.failures())));
                        stored.delivery_failures = stored.delivery_failures.saturating_add(1);
                        Ok(None)
                    }
                }
            })
            .await?;
        Ok(change.and_then(|change| change.result))
    }

    async fn attempt(&self, delivery: &Delivery) -> Result<Outcome, Error> {
        if self.rpc_support.is_missing() {
            return self.send_packet(delivery).await;
        }
        let session = &delivery.session;
        let Some(agent) = session.reachable_agent() else { return Ok(Outcome::AgentGone) };
        let packet = pack(&delivery.item, session, Transport::Rpc, self.delivery.rpc_inline_max, &self.public_url)
            .map_err(Error::Encode)?;
        let method = match delivery.item {
            Item::Text { speech: Speech::Turn, .. } => TEXT_METHOD,
            Item::Text { speech: Speech::Say { .. }, .. } => SAY_METHOD,
            Item::Context { .. } => CONTEXT_METHOD,
        };
        match self.livekit.perform_rpc(&session.room_name, agent, method, packet.body).await {
            // A text counts as delivered once the agent knows where to fetch it, a context once it has been fetched.
            Ok(()) if packet.whole || matches!(delivery.item, Item::Text { .. }) => Ok(Outcome::Acknowledged),
            Ok(()) => Ok(Outcome::HandedOver),
            Err(error) => {
                tracing::debug!(voice.session = %session.id, item = ?delivery.item, %error, "A delivery failed");
                self.after_rpc_error(delivery, &error).await
            }
        }
    }

    async fn after_rpc_error(&self, delivery: &Delivery, error: &CallError) -> Result<Outcome, Error> {
        match error.twirp_code() {
            Some("bad_route" | "unimplemented") => {
                self.rpc_support.set_missing();
                self.send_packet(delivery).await
            }
            // The agent has no such method: an older agent that reads packets.
            Some("invalid_argument") => self.send_packet(delivery).await,
            Some("internal") if delivery.failures >= HANDLER_FAILURES => self.send_packet(delivery).await,
            Some("not_found") => Ok(Outcome::AgentGone),
            // Includes "canceled": it is not known whether the agent took the item, so it is sent again under the same id.
            _ => Ok(Outcome::Later),
        }
    }

    async fn send_packet(&self, delivery: &Delivery) -> Result<Outcome, Error> {
        let session = &delivery.session;
        let Some(agent) = session.reachable_agent() else { return Ok(Outcome::AgentGone) };
        let packet = pack(&delivery.item, session, Transport::Data, self.delivery.rpc_inline_max, &self.public_url)
            .map_err(Error::Encode)?;
        let topic = format!("{}.{}", self.delivery.topic_prefix, kind(&delivery.item));
        match self.livekit.send_data(&session.room_name, agent, &topic, packet.body, nonce(delivery)).await {
            Ok(()) => Ok(Outcome::HandedOver),
            Err(CallError::Twirp { code, .. }) if code == "not_found" => Ok(Outcome::AgentGone),
            Err(_) => Ok(Outcome::Later),
        }
    }
}

fn claim_next(
    tx: &mut Conn,
    stored: &mut StoredSession,
    now: Timestamp,
    lease: Duration,
) -> Result<Option<Delivery>, StoreError> {
    if !stored.is_deliverable() {
        stored.deliver_at = None;
        return Ok(None);
    }
    let Some(item) = sessions::next_item(tx, stored)? else {
        // The count was wrong: correct it, so that the session does not become due again.
        stored.queued = 0;
        stored.deliver_at = None;
        return Ok(None);
    };
    let claim = LeaseId::generate();
    stored.delivery_claim = Some(claim);
    stored.deliver_at = Some(now.plus(lease));
    Ok(Some(Delivery { claim, session: stored.session.clone(), item, failures: stored.failures() }))
}

fn mark(tx: &mut Conn, stored: &mut StoredSession, item: &Item, outcome: Outcome) -> Result<(), StoreError> {
    let acknowledged = outcome == Outcome::Acknowledged;
    match item {
        Item::Text { seq, .. } => {
            stored.queued -= i64::from(texts::mark(tx, stored.session.id, *seq, acknowledged)?);
        }
        Item::Context { version, .. } if acknowledged => stored.session.context.was_delivered(*version),
        Item::Context { version, .. } => stored.session.context.was_sent(*version),
    }
    Ok(())
}

/// The same for every attempt at one item, so that LiveKit drops repetitions.
fn nonce(delivery: &Delivery) -> [u8; 16] {
    let number = match &delivery.item {
        Item::Text { seq, .. } => *seq,
        Item::Context { version, .. } => *version,
    };
    let digest = Sha256::digest(format!("{}:{}:{number}", delivery.session.id, kind(&delivery.item)));
    let mut nonce = [0_u8; 16];
    nonce.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    nonce
}

fn kind(item: &Item) -> &'static str {
    match item {
        Item::Text { speech: Speech::Turn, .. } => "text",
        Item::Text { speech: Speech::Say { .. }, .. } => "say",
        Item::Context { .. } => "context",
    }
}

fn result(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Acknowledged => "delivered",
        Outcome::HandedOver => "sent",
        Outcome::Later => "later",
        Outcome::AgentGone => "agent_gone",
    }
}
