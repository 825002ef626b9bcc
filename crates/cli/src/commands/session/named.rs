//! Which session a command is about.

use ensemble_account::Account;
use ensemble_types::ids::SessionId;
use ensemble_types::refs::IdOrRef;

use crate::context::Context;
use crate::failure::{Failure, Result};

/// A session, given as its ref, its id, or as `last` for the one that was used last on this device.
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
    pub(crate) async fn with_agent(self, context: &Context, me: &Account) -> Result<SessionId> {
        let Self::Last = self else { return self.find(context, me).await };
        context.home.last_session(me, true).ok_or_else(|| {
            Failure::message(
                "No session in which an agent works was used on this device yet, so there is no `last`. Name one: `ensemble sessions` \
                 shows them, `ensemble claude` starts one.",
            )
        })
    }

    pub(crate) async fn find(self, context: &Context, me: &Account) -> Result<SessionId> {
        match self {
            Self::Is(IdOrRef::Id(id)) => Ok(id),
            Self::Is(IdOrRef::Ref(reference)) => Ok(me.client.find_session(reference).await?),
            Self::Last => context.home.last_session(me, false).ok_or_else(|| {
                Failure::message(
                    "No session was used on this device yet, so there is no `last`. Name one: `ensemble session list` shows them.",
                )
            }),
        }
    }
}
