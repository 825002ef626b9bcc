//! Hints of what has changed in the caller's account.

use ensemble_types::hints::Hint;
use futures_util::{Stream, StreamExt};

use crate::error::{Error, Result};
use crate::follow::{CONNECTED, Event, Source, follow};
use crate::poll::Look;
use crate::transport::Client;

impl Client {
    /// Follows what changes: read again what a hint names. The first hint, and the first after each reconnect, is
    /// [`Hint::ANY`]: read everything. Where the address holds streams back, it is the only one, and comes every 30 s.
    pub fn follow_hints(&self) -> impl Stream<Item = Result<Hint>> + Send + use<> {
        let source = Source {
            path: ["v1", "events"].map(str::to_owned).to_vec(),
            marks_connections: true,
            look: Some(Look::Account),
            ..Source::default()
        };
        follow(self.clone(), source).filter_map(|event| async move { read(event).transpose() })
    }
}

fn read(event: Result<Event>) -> Result<Option<Hint>> {
    let event = event?;
    let unreadable = |source| Error::InvalidResponse { call: format!("event {}", event.name), source };
    Ok(match event.name.as_str() {
        CONNECTED => Some(Hint::ANY),
        "hint" => Some(serde_json::from_str(&event.data).map_err(unreadable)?),
        // An event type of a later version.
        _ => None,
    })
}
