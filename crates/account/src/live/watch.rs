//! Follows a session for as long as a person looks at it, and says when the server is away.

use std::time::Duration;

use ensemble_client::{Client, Error as ClientError, SessionEvent};
use ensemble_types::ids::SessionId;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::time::{Instant, sleep_until};

use crate::error::{Error, Result};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

type Events = BoxStream<'static, ensemble_client::Result<Option<SessionEvent>>>;

/// The events of a session, also across losses of the connection.
pub struct Watch {
    client: Client,
    session: SessionId,
    /// The `seq` of the last message that was taken.
    after: i64,
    /// `None`: there is no connection.
    events: Option<Events>,
    pause: Duration,
    next_try: Instant,
}

/// What has happened.
#[derive(Debug)]
pub enum Watched {
    /// The server is there, for the first time or again. The session may have changed meanwhile.
    Connected,
    /// The connection is lost. It is made again automatically.
    Away,
    Event(SessionEvent),
}

impl Watch {
    pub fn new(client: Client, session: SessionId, after: i64) -> Self {
        Self { client, session, after, events: None, pause: FIRST_PAUSE, next_try: Instant::now() }
    }

    /// Waits for the next thing. Cancel safe.
    ///
    /// # Errors
    /// The session cannot be followed any more: it was deleted, or the access was taken back.
    pub async fn next(&mut self) -> Result<Watched> {
        if self.events.is_none() {
            sleep_until(self.next_try).await;
        }
        let watch = || self.client.watch_session(self.session, self.after).boxed();
        match self.events.get_or_insert_with(watch).next().await {
            Some(Ok(None)) => {
                self.pause = FIRST_PAUSE;
                Ok(Watched::Connected)
            }
            Some(Ok(Some(event))) => Ok(Watched::Event(event)),
            Some(Err(ClientError::StreamEnded { reason })) if reason == "access_revoked" => Err(Error::AccessEnded),
            Some(Err(error)) if error.is_passing() => {
                self.lost();
                Ok(Watched::Away)
            }
            Some(Err(error)) => Err(error.into()),
            None => Err(Error::SessionDeleted),
        }
    }

    /// The message with this `seq` was taken. It does not come again.
    pub fn taken(&mut self, seq: i64) {
        self.after = seq;
    }

    /// The connection is given up, and what was not taken comes again.
    pub fn lost(&mut self) {
        self.events = None;
        self.next_try = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}
