//! A session that is followed across losses of the connection and changes of its key.

use std::sync::Arc;

use ensemble_client::SessionEvent;
use ensemble_protocol::transcript::view::Changed;
use tokio::task::JoinSet;

use super::{KeyHints, Live, Watch, Watched};
use crate::error::{Error, Result};

/// A session whose view follows what happens in it.
pub struct Following {
    pub live: Live,
    watch: Watch,
    keys: KeyHints,
    /// Devices of the account that come and go.
    _devices: JoinSet<()>,
}

impl Live {
    /// Loads the newest messages, and follows the session from there.
    pub async fn follow(mut self) -> Result<Following> {
        let (client, id) = (self.me.client.clone(), self.session.id);
        let watch = Watch::new(client.clone(), id, self.load().await?);
        let devices = self.follow_devices(Arc::default());
        Ok(Following { live: self, watch, keys: KeyHints::new(client, id), _devices: devices })
    }
}

impl Following {
    /// Waits until the view has changed, and says in what. Not cancel safe: wait for it to the end.
    ///
    /// # Errors
    /// It cannot be followed any more: it was deleted, the access was taken back, or the server says what cannot be. Follow it again then:
    /// what was missed is read with the newest messages.
    pub async fn next(&mut self) -> Result<Changed> {
        loop {
            let watched = tokio::select! {
                watched = self.watch.next() => watched?,
                () = self.keys.next(self.live.is_waiting()) => Watched::Connected,
            };
            let changed = match watched {
                Watched::Connected => self.live.renew().await,
                Watched::Away => continue,
                Watched::Event(event) => {
                    let seq = if let SessionEvent::Message(message) = &event { Some(message.seq) } else { None };
                    let changed = self.live.event(event).await;
                    if let (Some(seq), Ok(_)) = (seq, &changed) {
                        self.watch.taken(seq);
                    }
                    changed
                }
            };
            match changed {
                // It comes again.
                Err(Error::Client(error)) if error.is_passing() => self.watch.lost(),
                changed => return changed,
            }
        }
    }
}
