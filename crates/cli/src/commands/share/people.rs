//! People, as they are named on the command line.

use std::collections::BTreeSet;
use std::convert::Infallible;

use ensemble_account::sharing::has_fingerprint;
use ensemble_account::{Account, fingerprint};
use ensemble_types::accounts::PublicUser;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::Share;
use futures_util::TryStreamExt;

use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// A user: an id, or the name or the fingerprint of a user with whom this computer has shared something.
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
    /// The user who is to get a session. A name that is not remembered here is only what the server says, so a person has to look at the
    /// fingerprint.
    ///
    /// The fingerprint that was given or looked at comes with the user, because the key that is used in the end must have it.
    pub(super) async fn chosen(&self, context: &Context, me: &Account) -> Result<(UserId, Option<String>)> {
        let called = match self {
            Self::Id(id) => return Ok((*id, None)),
            Self::Called(called) => called,
        };
        // The name that was remembered with the key is not one that the server can give to another user.
        if let Some(known) = known(context, me, called).await? {
            return Ok((known, None));
        }
        let user = only(known_here(context, me, BTreeSet::new(), called).await?, called)?;
        let key = fingerprint(&user.public_key)?;
        if has_fingerprint(&user, called)
            || confirm::change(&format!("Share with {called}, whose fingerprint is {key}"))?
        {
            return Ok((user.id, Some(key)));
        }
        Err(Failure::message(format!(
            "Nothing was shared. {called:?} is the user with the id {} and the fingerprint {key}: give one of these.",
            user.id
        )))
    }

    /// Finds the user among those whose keys this machine has stored, because something was shared with them, and those with whom this
    /// session is shared.
    pub(super) async fn find(&self, context: &Context, me: &Account, session: SessionId) -> Result<UserId> {
        let called = match self {
            Self::Id(id) => return Ok(*id),
            Self::Called(called) => called,
        };
        if let Some(known) = known(context, me, called).await? {
            return Ok(known);
        }
        // Not everyone who may see a session may see who else may.
        let shares: Vec<Share> = me.client.shares(session).try_collect().await.unwrap_or_default();
        let members = shares.iter().map(|share| share.user_id).collect();
        only(known_here(context, me, members, called).await?, called).map(|user| user.id)
    }
}

/// The person who is called so in the account, and on this computer.
async fn known(context: &Context, me: &Account, called: &str) -> Result<Option<UserId>> {
    let names = context.home.settings()?.known_names.remove(me.place()).unwrap_or_default();
    let here = names.get(&called.trim().to_lowercase()).copied();
    match (me.person_called(called).await?, here) {
        (Some(person), Some(here)) if person != here => Err(Failure::message(format!(
            "Two people are called {called:?}: {person} has joined by an invitation, and this computer has shared something with {here}. \
             Give the id."
        ))),
        (person, here) => Ok(person.or(here)),
    }
}

/// Remembers the name of a user with whom something was shared, unless it is that of another one. Later commands find the user by it.
pub(super) async fn remember(context: &Context, me: &Account, user: UserId) -> Result<()> {
    let named = me.client.user(user).await.ok().and_then(|user| user.display_name);
    let Some(name) = named.map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let settings = context.home.settings()?;
    if settings.known_names.get(me.place()).is_some_and(|names| names.contains_key(&name)) {
        return Ok(());
    }
    context.home.change_settings(|settings| {
        settings.known_names.entry(me.place().to_owned()).or_default().entry(name).or_insert(user);
    })?;
    Ok(())
}

/// The users with this name, among those whose keys this computer has seen and these others.
async fn known_here(
    context: &Context,
    me: &Account,
    others: BTreeSet<UserId>,
    called: &str,
) -> Result<Vec<PublicUser>> {
    let stored = context.home.settings()?.known_users.remove(me.place()).unwrap_or_default();
    let known: BTreeSet<UserId> = stored.keys().filter_map(|id| id.parse().ok()).chain(others).collect();
    let mut found = Vec::new();
    for id in known {
        found.extend(me.client.user(id).await.ok().filter(|user| is_called(user, called)));
    }
    Ok(found)
}

fn only(mut found: Vec<PublicUser>, called: &str) -> Result<PublicUser> {
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(Failure::message(format!(
            "No one with whom this computer has shared anything is called {called:?}. Give the id that `ensemble whoami` shows them; \
             after that their name and their fingerprint work too."
        ))),
        (Some(one), false) => {
            found.push(one);
            let ids: Vec<String> = found.iter().map(|user| user.id.to_string()).collect();
            Err(Failure::message(format!(
                "{} people are called {called:?}: {}. Give the id.",
                found.len(),
                ids.join(", ")
            )))
        }
    }
}

/// Whether this is the name of a user, or the fingerprint of the user's key.
fn is_called(user: &PublicUser, called: &str) -> bool {
    let has_name = user.display_name.as_deref().is_some_and(|name| name.trim().to_lowercase() == called.to_lowercase());
    has_name || has_fingerprint(user, called)
}
