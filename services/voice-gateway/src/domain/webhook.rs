//! LiveKit's webhooks, parsed leniently. Unknown kinds and enum values are not errors: an error would make LiveKit repeat
//! the event and hold back all events after it.

use serde::Deserialize;

use super::session::VoiceSession;
use super::state::{Event, Sid};

/// The fields of `livekit.WebhookEvent` (protojson) that are used here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Webhook {
    /// `EV_…`, the same on every repetition.
    pub(crate) id: String,
    event: String,
    room: Option<Room>,
    participant: Option<Participant>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Room {
    name: String,
    sid: Sid,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Participant {
    sid: Sid,
    identity: String,
    /// Enums are names, or numbers from other writers.
    kind: serde_json::Value,
    disconnect_reason: serde_json::Value,
}

/// `ParticipantInfo.Kind.AGENT` and values of `DisconnectReason` in livekit_models.proto.
const AGENT: (&str, i64) = ("AGENT", 4);
const CLIENT_INITIATED: (&str, i64) = ("CLIENT_INITIATED", 1);
const ROOM_DELETED: (&str, i64) = ("ROOM_DELETED", 5);

fn is(value: &serde_json::Value, (name, number): (&str, i64)) -> bool {
    value.as_str() == Some(name) || value.as_i64() == Some(number)
}

impl Webhook {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    pub(crate) fn room_name(&self) -> Option<&str> {
        self.room.as_ref().map(|room| room.name.as_str()).filter(|name| !name.is_empty())
    }

    /// A room was started. It must be deleted if its session is over.
    pub(crate) fn is_room_started(&self) -> bool {
        self.event == "room_started"
    }

    /// Whether it can change a session. Most do not: every track that begins and ends has its own.
    pub(crate) fn is_relevant(&self) -> bool {
        let kinds = ["room_finished", "participant_joined", "participant_left", "participant_connection_aborted"];
        kinds.contains(&self.event.as_str())
    }

    /// The event for its session; `None`: it changes nothing.
    pub(crate) fn event(&self, session: &VoiceSession) -> Option<Event> {
        let room = self.room.as_ref()?.sid.clone();
        let participant = self.participant.as_ref();
        match self.event.as_str() {
            "room_finished" => Some(Event::RoomGone { sid: room }),
            "participant_joined" => {
                let one = participant?;
                let (sid, identity) = (one.sid.clone(), one.identity.clone());
                if is(&one.kind, AGENT) {
                    Some(Event::AgentJoined { room, identity, sid })
                } else {
                    (identity == session.human_identity).then_some(Event::HumanJoined { room, sid })
                }
            }
            "participant_left" | "participant_connection_aborted" => {
                let one = participant?;
                let sid = one.sid.clone();
                if is(&one.kind, AGENT) {
                    return Some(Event::AgentLeft { sid });
                }
                // LiveKit reports the departures before the end of the room.
                if is(&one.disconnect_reason, ROOM_DELETED) {
                    return Some(Event::RoomGone { sid: room });
                }
                let on_purpose = is(&one.disconnect_reason, CLIENT_INITIATED);
                (one.identity == session.human_identity).then_some(Event::HumanLeft { sid, on_purpose })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_and_values_are_not_errors() {
        let body = br#"{"event":"participant_danced","id":"EV_1","createdAt":"1774483200","room":{"sid":"RM_1","name":"voice_x","numParticipants":3},
            "participant":{"sid":"PA_1","identity":"h","kind":"HOLOGRAM","state":"FLOATING"}}"#;
        let webhook = Webhook::parse(body).unwrap();
        assert_eq!(webhook.room_name(), Some("voice_x"));
        assert!(!webhook.is_room_started() && !webhook.is_relevant());
    }

    #[test]
    fn invalid_json_is_no_webhook() {
        assert!(Webhook::parse(b"{").is_none());
    }
}
