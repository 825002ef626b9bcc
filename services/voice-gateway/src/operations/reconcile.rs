//! Comparing all rooms with all sessions: what webhooks lose, this finds.

use std::collections::{HashMap, HashSet};

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use futures_util::StreamExt;
use futures_util::stream;

use crate::VoiceGateway;
use crate::clients::livekit::ListedRoom;
use crate::domain::session::VoiceSession;
use crate::domain::state::Event;
use crate::error::Error;

/// Calls to LiveKit at once.
const AT_ONCE: usize = 8;

impl VoiceGateway {
    pub(crate) async fn reconcile(&self) -> Result<(), Error> {
        let now = self.store.now().await?;
        // Sessions first, rooms second: a room that is missing then was gone, and not merely not made yet.
        let sessions = self.store.live_sessions().await?;
        let rooms = self.livekit.rooms().await.map_err(Error::RoomService)?;
        let ours: Vec<ListedRoom> =
            rooms.into_iter().filter(|room| room.name.starts_with(&self.rooms.prefix)).collect();
        let sids: HashMap<&str, &str> = ours.iter().map(|room| (room.name.as_str(), room.sid.as_str())).collect();
        stream::iter(&sessions)
            .for_each_concurrent(AT_ONCE, |session| async {
                if let Err(error) =
                    self.reconcile_session(session, sids.get(session.room_name.as_str()).copied(), now).await
                {
                    tracing::debug!(voice.session = %session.id, %error, "A session could not be compared");
                }
            })
            .await;
        let names: Vec<String> = ours.into_iter().map(|room| room.name).collect();
        self.delete_strays(&names).await
    }

    async fn reconcile_session(
        &self,
        session: &VoiceSession,
        listed: Option<&str>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Some(live) = session.state.live() else { return Ok(()) };
        if listed == Some(live.room_sid.as_str()) {
            self.observe(session, now, None).await?;
            return Ok(());
        }
        // LiveKit's list lags behind a room that was only just made.
        if live.room_created_at.plus(self.store.rules().settle) <= now {
            self.store.apply(session.id, Event::RoomGone { sid: live.room_sid.clone() }).await?;
            if listed.is_some() {
                // Somebody made the room again, with an old token perhaps.
                self.livekit.delete_room(&session.room_name).await.map_err(Error::RoomService)?;
            }
        }
        Ok(())
    }

    /// Deletes those of our rooms whose session is over, or was never heard of.
    pub(crate) async fn delete_strays(&self, rooms: &[String]) -> Result<(), Error> {
        let ids: Vec<GatewaySessionId> = rooms.iter().filter_map(|room| self.rooms.session_of(room)).collect();
        let known: HashSet<GatewaySessionId> = self.store.with_room(ids).await?.into_iter().collect();
        let is_stray = |room: &&String| self.rooms.session_of(room).is_none_or(|id| !known.contains(&id));
        stream::iter(rooms.iter().filter(is_stray))
            .for_each_concurrent(AT_ONCE, |room| async move {
                match self.livekit.delete_room(room).await {
                    Ok(()) => tracing::info!(room, "Deleted a room without a session"),
                    Err(error) => tracing::debug!(room, %error, "A room without a session could not be deleted"),
                }
            })
            .await;
        Ok(())
    }
}
