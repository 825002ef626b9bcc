//! The events of a session that an operator's endpoints receive: it started, became active, and ended.

use ensemble_types::time::Timestamp;
use ensemble_types::voice_webhooks::{VoiceWebhook, VoiceWebhookSession, VoiceWebhookType};

use super::session::VoiceSession;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// The same however often it is made or sent.
    pub(crate) id: String,
    pub(crate) body: String,
}

/// What a change of a session is worth telling. A start that failed before there was a room is not: its caller knows.
pub(crate) fn announcements(before: &VoiceSession, after: &VoiceSession, now: Timestamp) -> Vec<Announcement> {
    let was_live = before.state.live().is_some();
    let mut kinds = Vec::new();
    if !was_live && after.state.live().is_some() {
        kinds.push(VoiceWebhookType::Started);
    }
    if before.state.active_at().is_none() && after.state.active_at().is_some() {
        kinds.push(VoiceWebhookType::Active);
    }
    if was_live && after.is_over() {
        kinds.push(VoiceWebhookType::Ended);
    }
    kinds.into_iter().filter_map(|kind| announcement(kind, after, now)).collect()
}

fn announcement(kind: VoiceWebhookType, session: &VoiceSession, now: Timestamp) -> Option<Announcement> {
    let webhook = VoiceWebhook {
        kind,
        timestamp: now,
        data: VoiceWebhookSession {
            gateway_session_id: session.id,
            session_id: session.session_id.clone(),
            user_id: session.user_id.clone(),
            user_proven: session.user_proven,
            state: session.state.name(),
            created_at: session.created_at,
            active_at: session.state.active_at(),
            ended_at: session.ended_at(),
            end_reason: session.state.end().map(|end| end.reason),
            duration_seconds: session.duration_seconds(now),
        },
    };
    let short = match kind {
        VoiceWebhookType::Started => "started",
        VoiceWebhookType::Active => "active",
        VoiceWebhookType::Ended => "ended",
    };
    let id = format!("voice_{}_{short}", session.id.to_string().replace('-', ""));
    Some(Announcement { id, body: serde_json::to_string(&webhook).ok()? })
}
