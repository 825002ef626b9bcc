//! Which session a command is about.

use ensemble_client::SessionFilter;
use ensemble_types::ids::SessionId;
use ensemble_types::refs::IdOrRef;

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
                    [only] => {
                        let owner = described(me, only.owner_id).await;
                        print::note(format!("`last` is session {}, which {owner} shares with you.", only.reference));
                        Ok(only.id)
                    }
                    _ => Err(Failure::message(
                        "You have no active session, and several are shared with you. Say which one: `ensemble session list --shared` \
                         shows them.",
                    )),
                }
            }
        }
    }
}
