//! Hints of what has changed in the caller's account, and the looks that a machine is asked for.

use ensemble_types::hints::Hint;
use ensemble_types::looks::LookAsked;
use futures_util::{Stream, StreamExt};
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::follow::{CONNECTED, Event, Source, follow};
use crate::poll::Look;
use crate::transport::Client;

/// What an account's stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountNews {
    Hint(Hint),
    /// Only to the machine that is asked, and once: answer it with [`Client::answer_look`].
    Look(LookAsked),
}

impl Client {
    /// Follows what changes: read again what a hint names. The first hint, and the first after each reconnect, is
    /// [`Hint::ANY`]: read everything. Where the address holds streams back, it is the only one, and comes every 30 s; then there are no
    /// looks.
    pub fn follow_account(&self) -> impl Stream<Item = Result<AccountNews>> + Send + use<> {
        let source = Source {
            path: ["v1", "events"].map(str::to_owned).to_vec(),
            marks_connections: true,
            look: Some(Look::Account),
            ..Source::default()
        };
        follow(self.clone(), source).filter_map(|event| async move { read(event).transpose() })
    }

    /// The hints of [`Self::follow_account`].
    pub fn follow_hints(&self) -> impl Stream<Item = Result<Hint>> + Send + use<> {
        self.follow_account().filter_map(|news| async move {
            match news {
                Ok(AccountNews::Hint(hint)) => Some(Ok(hint)),
                Ok(AccountNews::Look(_)) => None,
                Err(error) => Some(Err(error)),
            }
        })
    }
}

fn read(event: Result<Event>) -> Result<Option<AccountNews>> {
    let event = event?;
    Ok(match event.name.as_str() {
        CONNECTED => Some(AccountNews::Hint(Hint::ANY)),
        "hint" => Some(AccountNews::Hint(data(&event)?)),
        "look" => Some(AccountNews::Look(data(&event)?)),
        // An event type of a later version.
        _ => None,
    })
}

fn data<T: DeserializeOwned>(event: &Event) -> Result<T> {
    let unreadable = |source| Error::InvalidResponse { call: format!("event {}", event.name), source };
    serde_json::from_str(&event.data).map_err(unreadable)
}
