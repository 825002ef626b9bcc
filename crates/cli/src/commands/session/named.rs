//! Which session a command is about.

use ensemble_client::SessionFilter;
use ensemble_types::ids::SessionId;
use ensemble_types::refs::IdOrRef;
use ensemble_types::sessions::Session;
use futures_util::{StreamExt, TryStreamExt};

use crate::commands::share::people::described;
use crate::context::Me;
use crate::failure::{Failure, Result};
use crate::print;

/// One's own sessions. Anybody can share a session at any time, so `last` must not be one of those while there is another.
const OWN: SessionFilter = SessionFilter { active_only: true, shared: false };
const ALL: SessionFilter = SessionFilter { active_only: true, shared: true };

/// The server orders sessions by the minute of their change. The last one is among the first so many, unless more changed at once.
const OF_ONE_MINUTE: u32 = 20;

/// A session, given as its ref, its id, or as `last` for the first one of `ensemble session list --own`. A guest without one means the
/// only session that is shared with them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    Is(IdOrRef<SessionId>),
    Last,
}

impl std::str::FromStr for Named {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "last" {
            return Ok(Self::Last);
        }
        text.parse().map(Self::Is).map_err(|_| "must be the ref (eight characters) or the id of a session, or `last`")
    }
}

impl Named {
    /// The session for a command to its agent: `last` is the last one in which an agent works.
    pub(crate) async fn with_agent(self, me: &Me) -> Result<SessionId> {
        let Self::Last = self else { return self.find(me).await };
        let has_agent = |session: &Session| std::future::ready(session.hosted);
        let mut own = std::pin::pin!(me.client.sessions(OWN).try_filter(has_agent));
        if let Some(newest) = own.try_next().await? {
            return Ok(newest.id);
        }
        let shared: Vec<Session> = me.client.sessions(ALL).try_filter(has_agent).take(2).try_collect().await?;
        match shared.as_slice() {
            [] => Err(Failure::message(
                "You have no active session in which an agent works. `ensemble claude` starts one, `ensemble sessions --all` shows those \
                 that have ended.",
            )),
            [only] => Ok(shared_with(me, only).await),
            _ => Err(Failure::message(
                "You have no active session in which an agent works, and several are shared with you. Say which one: `ensemble sessions` \
                 shows them.",
            )),
        }
    }

    pub(crate) async fn find(self, me: &Me) -> Result<SessionId> {
        match self {
            Self::Is(IdOrRef::Id(id)) => Ok(id),
            Self::Is(IdOrRef::Ref(reference)) => Ok(me.client.find_session(reference).await?),
            Self::Last => {
                let page = me.client.session_page(OWN, Some(OF_ONE_MINUTE), None).await?;
                if let Some(newest) = page.sessions.first() {
                    return Ok(newest.id);
                }
                match me.client.session_page(ALL, Some(2), None).await?.sessions.as_slice() {
                    [] => Err(Failure::message(
                        "You have no active session. `ensemble claude` starts one with an agent, `ensemble session create` one of \
                         people; `ensemble session list --all` shows those that have ended.",
                    )),
                    [only] => Ok(shared_with(me, only).await),
                    _ => Err(Failure::message(
                        "You have no active session, and several are shared with you. Say which one: `ensemble session list --shared` \
                         shows them.",
                    )),
                }
            }
        }
    }
}

/// Says whose session `last` is.
async fn shared_with(me: &Me, session: &Session) -> SessionId {
    let owner = described(me, session.owner_id).await;
    print::note(format!("`last` is session {}, which {owner} shares with you.", session.reference));
    session.id
}
