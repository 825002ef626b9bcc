//! Comparing all rooms with all sessions, which finds what lost webhooks did not report.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use futures_util::StreamExt;
use futures_util::stream;

use crate::VoiceGateway;
use crate::clients::livekit::ListedRoom;
use crate::domain::session::VoiceSession;
use crate::domain::state::Event;
use crate::error::Error;
use crate::store::chores::{self, Chore};
use crate::store::sessions;

/// Concurrent calls to LiveKit.
const AT_ONCE: usize = 8;

impl VoiceGateway {
    /// Reconciles if no other replica has done it within `every`.
    pub(crate) async fn reconcile(&self, every: Duration) -> Result<(), Error> {
        let claimed: Result<bool, Error> =
            self.db.write("claim the reconciliation", move |tx| Ok(chores::claim(tx, Chore::Reconcile, every)?)).await;
        if !claimed? {
            return Ok(());
        }
        // Sessions are read before rooms, so that a room which is missing then is gone and not merely late.
        let (now, live): (Timestamp, Vec<VoiceSession>) =
            self.db.read("list live voice sessions", |c| Ok::<_, Error>((c.now()?, sessions::live(c)?))).await?;
        let rooms = self.livekit.rooms().await.map_err(Error::RoomService)?;
        let ours: Vec<ListedRoom> =
            rooms.into_iter().filter(|room| room.name.starts_with(&self.rooms.prefix)).collect();
        let sids: HashMap<&str, &str> = ours.iter().map(|room| (room.name.as_str(), room.sid.as_str())).collect();
        stream::iter(&live)
            .for_each_concurrent(AT_ONCE, |session| async {
                let listed = sids.get(session.room_name.as_str()).copied();
                if let Err(error) = self.reconcile_session(session, listed, now).await {
                    tracing::debug!(voice.session = %session.id, %error, "A session could not be reconciled");
                }
            })
            .await;
        let names: Vec<String> = ours.into_iter().map(|room| room.name).collect();
        self.delete_orphan_rooms(&names).await
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
        // LiveKit's list lags behind a room that has just been created.
        if live.room_created_at.plus(self.rules.settle) <= now {
            self.apply(session.id, Event::RoomGone { sid: live.room_sid.clone() }).await?;
            if listed.is_some() {
                // The room was created again, for example with an old token.
                self.livekit.delete_room(&session.room_name).await.map_err(Error::RoomService)?;
            }
        }
        Ok(())
    }

    /// Deletes those rooms of ours whose session is not open or does not exist.
    pub(crate) async fn delete_orphan_rooms(&self, rooms: &[String]) -> Result<(), Error> {
        let ids: Vec<GatewaySessionId> = rooms.iter().filter_map(|room| self.rooms.session_of(room)).collect();
        let open = self.db.read("find the sessions of rooms", move |c| sessions::open_among(c, &ids)).await?;
        let open: HashSet<GatewaySessionId> = open.into_iter().collect();
        let is_orphan = |room: &&String| self.rooms.session_of(room).is_none_or(|id| !open.contains(&id));
        stream::iter(rooms.iter().filter(is_orphan))
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
