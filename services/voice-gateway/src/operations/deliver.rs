//! Carrying texts and contexts to the agent: acknowledged calls first, packets where the agent or the server has none.

use std::sync::atomic::{AtomicBool, Ordering};

use ensemble_types::ids::GatewaySessionId;
use sha2::{Digest, Sha256};

use crate::VoiceGateway;
use crate::clients::livekit::CallError;
use crate::domain::outbox::{Item, Outcome};
use crate::domain::packet::{CONTEXT_METHOD, TEXT_METHOD, Way, pack};
use crate::error::Error;
use crate::store::Delivery;

/// After so many answers that the agent's handler threw, a packet is sent instead.
const TIMEOUT_WITH_HANDLERS: u32 = 4;

/// Whether this LiveKit has PerformRpc at all (since v1.9.2). Learnt once, for good.
#[derive(Debug, Default)]
pub(crate) struct RpcSupport(AtomicBool);

impl RpcSupport {
    fn is_missing(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn note_missing(&self) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!("LiveKit has no PerformRpc; texts go as packets that nobody acknowledges");
        }
    }
}

impl VoiceGateway {
    /// Delivers what is queued in one session until it is empty or an attempt fails.
    pub(crate) async fn deliver(&self, id: GatewaySessionId) -> Result<(), Error> {
        let lease = self.delivery.lease;
        let mut claimed = self.store.claim_delivery(id, lease).await?;
        while let Some(delivery) = claimed.take() {
            let outcome = self.attempt(&delivery).await?;
            self.metrics.delivery(kind(&delivery.item), result(outcome));
            claimed = self.store.settle_delivery(delivery, outcome, lease, self.delivery.retry).await?;
            if outcome == Outcome::AgentGone {
                self.look_soon(id).await?;
            }
        }
        Ok(())
    }

    async fn attempt(&self, delivery: &Delivery) -> Result<Outcome, Error> {
        if self.rpc_support.is_missing() {
            return self.send_packet(delivery).await;
        }
        let session = &delivery.session;
        let Some(agent) = session.reachable_agent() else { return Ok(Outcome::AgentGone) };
        let packet = pack(&delivery.item, session, Way::Rpc, self.delivery.rpc_inline_max, &self.public_url)
            .map_err(Error::Shape)?;
        let method = match delivery.item {
            Item::Text { .. } => TEXT_METHOD,
            Item::Context { .. } => CONTEXT_METHOD,
        };
        match self.livekit.perform_rpc(&session.room_name, agent, method, packet.body).await {
            // A text that the agent was told where to fetch is the agent's from then on; a context is, once fetched.
            Ok(()) if packet.whole || matches!(delivery.item, Item::Text { .. }) => Ok(Outcome::Acknowledged),
            Ok(()) => Ok(Outcome::HandedOver),
            Err(error) => {
                tracing::debug!(voice.session = %session.id, item = ?delivery.item, %error, "A delivery failed");
                match error.twirp_code() {
                    Some("bad_route" | "unimplemented") => {
                        self.rpc_support.note_missing();
                        self.send_packet(delivery).await
                    }
                    // The agent has no such method: an older one, that listens for packets.
                    Some("invalid_argument") => self.send_packet(delivery).await,
                    Some("internal") if delivery.failures >= TIMEOUT_WITH_HANDLERS => self.send_packet(delivery).await,
                    Some("not_found") => Ok(Outcome::AgentGone),
                    // "canceled" among them: whether the agent took it is not known, and the same id goes out again.
                    _ => Ok(Outcome::Later),
                }
            }
        }
    }

    async fn send_packet(&self, delivery: &Delivery) -> Result<Outcome, Error> {
        let session = &delivery.session;
        let Some(agent) = session.reachable_agent() else { return Ok(Outcome::AgentGone) };
        let packet = pack(&delivery.item, session, Way::Data, self.delivery.rpc_inline_max, &self.public_url)
            .map_err(Error::Shape)?;
        let topic = format!("{}.{}", self.delivery.topic_prefix, kind(&delivery.item));
        match self.livekit.send_data(&session.room_name, agent, &topic, packet.body, nonce(delivery)).await {
            Ok(()) => Ok(Outcome::HandedOver),
            Err(CallError::Twirp { code, .. }) if code == "not_found" => Ok(Outcome::AgentGone),
            Err(_) => Ok(Outcome::Later),
        }
    }
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
        Item::Text { .. } => "text",
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
