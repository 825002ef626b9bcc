//! How a session and its people are called.

use ensemble_protocol::seal::KeyRing;
use ensemble_protocol::transcript::body::Control;
use ensemble_protocol::transcript::view::{Author, Item, Shown};
use ensemble_types::ids::UserId;
use ensemble_types::line::{inline, short};
use ensemble_types::sessions::Session;

use super::Live;
use crate::account::Account;
use crate::sessions::Card;

/// The beginning of a prompt.
pub fn title(prompt: &str) -> Option<String> {
    Some(short(prompt, 60)).filter(|title| !title.is_empty())
}

/// Lists show a session by the beginning of its first prompt, where its owner has given it no title. It can be worked in without.
pub(super) async fn give_title(me: &Account, session: &Session, ring: &KeyRing, prompt: &str) {
    let Some(title) = title(prompt).filter(|_| session.owner_id == me.id) else { return };
    let Ok(titled) = me.titled_for_writing(session, ring).await else { return };
    // One that does not count is not replaced by the way: its owner gives it a new one.
    let Some(known) = titled.card.clone().filter(|card| card.title.is_none()) else { return };
    let card = Card { title: Some(title), ..known };
    let _untitled = me.describe(session, ring, (&card, &titled)).await;
}

impl Live {
    /// How a user is called. Names are only the server's word.
    pub async fn name(&mut self, user: UserId) -> String {
        if user == self.me.id {
            return "you".to_owned();
        }
        if let Some(name) = self.names.get(&user) {
            return name.clone();
        }
        let named = self.me.client.user(user).await.ok().and_then(|user| user.display_name);
        let short = shortened(user);
        let name = match named.filter(|name| !name.trim().is_empty()) {
            Some(name) => format!("{} ({short})", inline(&name)),
            None => short,
        };
        self.names.insert(user, name.clone());
        name
    }

    /// The names of all who have written what is shown, and whom it names.
    pub async fn learn_names(&mut self) {
        let unknown: Vec<UserId> =
            self.view.items().flat_map(people_of).filter(|user| !self.names.contains_key(user)).collect();
        for user in unknown {
            self.name(user).await;
        }
    }

    pub fn known_name(&self, user: UserId) -> String {
        if user == self.me.id {
            return "you".to_owned();
        }
        self.names.get(&user).cloned().unwrap_or_else(|| shortened(user))
    }
}

/// Who has written an item, and the person whom it names.
fn people_of(item: &Item) -> impl Iterator<Item = UserId> {
    let author = match &item.author {
        Author::Person { user, .. } => Some(*user),
        Author::Host | Author::Unknown(_) => None,
    };
    let named = match &item.shown {
        Shown::Control(Control::Access(grant), _) => Some(grant.user),
        Shown::Card(card) => card.resolved.as_ref().and_then(|resolved| resolved.by),
        _ => None,
    };
    author.into_iter().chain(named)
}

/// The beginning of an id.
fn shortened(user: UserId) -> String {
    let short: String = user.to_string().chars().take(8).collect();
    format!("{short}…")
}
