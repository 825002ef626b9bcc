//! People, as they are named on the command line.

use std::collections::BTreeSet;
use std::convert::Infallible;

use ensemble_client::seal::fingerprint;
use ensemble_types::accounts::PublicUser;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::Share;
use futures_util::TryStreamExt;

use crate::context::{Context, Me};
use crate::failure::{Failure, Result};

/// A user: an id, or the name or the fingerprint of somebody who is known here.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    Id(UserId),
    Called(String),
}

impl std::str::FromStr for Who {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::Called(text.trim().to_owned()), Self::Id))
    }
}

impl Who {
    /// Those are known whose keys this machine has stored, because something was shared with them, and those with whom this
    /// session is shared.
    pub(super) async fn find(&self, context: &Context, me: &Me, session: SessionId) -> Result<UserId> {
        let called = match self {
            Self::Id(id) => return Ok(*id),
            Self::Called(called) => called,
        };
        let stored = context.home.settings()?.known_users.remove(me.client.origin()).unwrap_or_default();
        let mut known: BTreeSet<UserId> = stored.keys().filter_map(|id| id.parse().ok()).collect();
        // Not everybody who may see a session may see who else may.
        if let Ok(shares) = me.client.shares(session).try_collect::<Vec<Share>>().await {
            known.extend(shares.iter().map(|share| share.user_id));
        }
        let mut found = Vec::new();
        for id in known {
            found.extend(me.client.user(id).await.ok().filter(|user| is_called(user, called)));
        }
        match found.as_slice() {
            [one] => Ok(one.id),
            [] => Err(Failure::message(format!(
                "Nobody known here is called {called:?}. Give the id that `ensemble whoami` shows them. When something was shared \
                 with them once, their name and their fingerprint work too."
            ))),
            several => {
                let ids: Vec<String> = several.iter().map(|user| user.id.to_string()).collect();
                Err(Failure::message(format!(
                    "{} people are called {called:?}: {}. Give the id.",
                    several.len(),
                    ids.join(", ")
                )))
            }
        }
    }
}

/// Whether this is the name of a user, or the fingerprint of the user's key.
fn is_called(user: &PublicUser, called: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    let has_name = user.display_name.as_deref().is_some_and(|name| name.trim().to_lowercase() == called.to_lowercase());
    has_name || fingerprint(&user.public_key).is_ok_and(|key| letters(&key) == letters(called))
}

/// `Ada (01a2…)`, or the id.
pub(crate) async fn described(me: &Me, id: UserId) -> String {
    let name = me.client.user(id).await.ok().and_then(|user| user.display_name);
    name.map_or_else(|| id.to_string(), |name| format!("{} ({id})", crate::print::inline(&name)))
}
