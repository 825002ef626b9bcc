//! Which session a person means.

use std::str::FromStr;

use ensemble_types::ids::SessionId;
use ensemble_types::refs::IdOrRef;

use crate::account::Account;
use crate::error::{Error, Result};

/// A session, given as its ref, its id, or as `last` for the one that was used last on this device.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    Is(IdOrRef<SessionId>),
    Last,
}

impl FromStr for Named {
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
    pub async fn with_agent(self, me: &Account) -> Result<SessionId> {
        match self {
            Self::Last => me.last_session(true).ok_or(Error::NoLastWithAgent),
            Self::Is(_) => self.find(me).await,
        }
    }

    pub async fn find(self, me: &Account) -> Result<SessionId> {
        match self {
            Self::Is(IdOrRef::Id(id)) => Ok(id),
            Self::Is(IdOrRef::Ref(reference)) => Ok(me.client.find_session(reference).await?),
            Self::Last => me.last_session(false).ok_or(Error::NoLast),
        }
    }
}
