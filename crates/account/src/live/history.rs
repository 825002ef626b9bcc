//! The messages of a live session in their order: from its history, as they come, and when a key comes that they have waited for.

use ensemble_client::{Client, SessionEvent, Window};
use ensemble_protocol::transcript::view::Changed;
use ensemble_types::hints::{Hint, HintKind};
use ensemble_types::ids::SessionId;
use ensemble_types::messages::Message;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

use super::{Live, Opened};
use crate::error::{Error, Result};

/// Messages that are loaded at once.
const NEWEST: u32 = 300;
/// Pages that are read to find a request that is open.
const MOST_PAGES: u32 = 20;
/// After the stream of hints has failed.
const FOLLOWS_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Messages at the end of the session that came before their key. They are not kept: they are read again when the key has come.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    /// The `seq` of the first one, and the epoch of its key.
    first: i64,
    epoch: u32,
    /// The `seq` of the newest one.
    newest: i64,
}

impl Live {
    /// Takes the newest messages, and older ones back to what the agent asks. Returns the `seq` from which to follow.
    pub async fn load(&mut self) -> Result<i64> {
        let newest = self.load_newest().await?;
        // What is asked must be seen, however much was written since.
        let mut pages = 0;
        while self.session.attention.open > 0
            && self.view.open().len() == 0
            && pages < MOST_PAGES
            && self.load_older().await?
        {
            pages += 1;
        }
        Ok(newest)
    }

    async fn load_newest(&mut self) -> Result<i64> {
        let window = Window { limit: Some(NEWEST), ..Window::default() };
        let mut page = self.me.client.message_page(self.session.id, window).await?;
        page.messages.sort_by_key(|message| message.seq);
        let (opened, waiting) = self.in_order(&page.messages).await?;
        for one in opened {
            self.view.message(one.incoming());
        }
        self.wait(waiting);
        self.first = page.messages.first().map(|message| message.seq);
        Ok(page.messages.last().map_or(page.last_seq, |message| message.seq))
    }

    /// Takes the newest messages, and older ones back to the machine's newest state.
    ///
    /// # Errors
    /// The state is older than the messages that are read at most.
    pub async fn load_state(&mut self) -> Result<()> {
        self.load_newest().await?;
        let mut pages = 0;
        while self.view.state().is_none() && pages < MOST_PAGES && self.load_older().await? {
            pages += 1;
        }
        if self.view.state().is_none() && pages == MOST_PAGES {
            let most = NEWEST * (MOST_PAGES + 1);
            return Err(Error::StateTooOld(most));
        }
        Ok(())
    }

    /// Takes the messages before the first one. False: there are none.
    pub async fn load_older(&mut self) -> Result<bool> {
        let Some(first) = self.first.filter(|first| *first > 1) else { return Ok(false) };
        let window = Window { limit: Some(NEWEST), before: Some(first), ..Window::default() };
        let mut page = self.me.client.message_page(self.session.id, window).await?;
        page.messages.sort_by_key(|message| message.seq);
        let (older, waiting) = self.in_order(&page.messages).await?;
        if let Some(waiting) = waiting {
            // Everything that was written under a newer key waits too.
            let newest = self.waiting.as_ref().map_or(waiting.newest, |waiting| waiting.newest);
            self.wait(Some(Waiting { newest, ..waiting }));
        }
        self.first = page.messages.first().map(|message| message.seq).or(Some(1));
        self.view.older(older.into_iter().map(Opened::incoming));
        Ok(true)
    }

    /// Opens consecutive messages, up to the first one whose key is missing.
    async fn in_order(&mut self, messages: &[Message]) -> Result<(Vec<Opened>, Option<Waiting>)> {
        let newest = messages.last().map_or(0, |message| message.seq);
        loop {
            let version = self.owner.list().version();
            let (mut opened, mut waiting) = (Vec::with_capacity(messages.len()), None);
            for message in messages {
                match self.opened(message).await? {
                    Ok(one) => opened.push(one),
                    Err(epoch) => {
                        waiting = Some(Waiting { first: message.seq, epoch, newest });
                        break;
                    }
                }
            }
            // Otherwise the machine has named a newer list, by which all of them are judged again.
            if self.owner.list().version() == version {
                return Ok((opened, waiting));
            }
        }
    }

    /// Takes the next message.
    pub async fn take(&mut self, message: &Message) -> Result<Changed> {
        let opened = self.arrived(message).await?;
        Ok(opened.map(|opened| self.view.message(opened.incoming())).unwrap_or_default())
    }

    /// Takes an event of the stream.
    pub async fn event(&mut self, event: SessionEvent) -> Result<Changed> {
        Ok(match event {
            SessionEvent::Message(message) => self.take(&message).await?,
            SessionEvent::Live(live) => {
                self.frame(&live.content).map(|frame| self.view.frame(&frame)).unwrap_or_default()
            }
            SessionEvent::Changed(_) => {
                self.renew().await?;
                Changed { state: true, ..Changed::default() }
            }
        })
    }

    /// Reads what the server says of the session now, and takes the messages whose key has come.
    pub async fn renew(&mut self) -> Result<()> {
        self.refresh().await?;
        loop {
            let opened = self.waited().await?;
            if opened.is_empty() {
                return Ok(());
            }
            for one in opened {
                self.view.message(one.incoming());
            }
        }
    }

    /// Opens the next message. `None`: it waits for its key, as those before it that are not shown.
    pub async fn arrived(&mut self, message: &Message) -> Result<Option<Opened>> {
        if let Some(waiting) = &mut self.waiting {
            waiting.newest = waiting.newest.max(message.seq);
            return Ok(None);
        }
        Ok(match self.opened(message).await? {
            Ok(opened) => Some(opened),
            Err(epoch) => {
                self.wait(Some(Waiting { first: message.seq, epoch, newest: message.seq }));
                None
            }
        })
    }

    /// Some of the messages whose key has come, in order. None: the others still wait.
    pub async fn waited(&mut self) -> Result<Vec<Opened>> {
        let Some(Waiting { first, epoch, newest }) = self.waiting else { return Ok(Vec::new()) };
        if epoch > self.ring.epoch() {
            return Ok(Vec::new());
        }
        let window = Window { limit: Some(NEWEST), after: Some(first - 1), ..Window::default() };
        let page = self.me.client.message_page(self.session.id, window).await?;
        let messages = asked_for(page.messages, first, newest);
        let last = messages.last().map_or(newest, |message| message.seq);
        let (opened, lacking) = self.in_order(&messages).await?;
        let rest = (last < newest).then_some(Waiting { first: last + 1, epoch, newest });
        self.wait(lacking.map(|lacking| Waiting { newest, ..lacking }).or(rest));
        Ok(opened)
    }

    /// Whether messages wait for their key.
    pub fn lacks_key(&self) -> bool {
        self.waiting.is_some()
    }

    fn wait(&mut self, waiting: Option<Waiting>) {
        self.view.lacks_key = waiting.is_some();
        self.waiting = waiting;
    }
}

/// The messages from `first` to `newest` in their order, each once. The stream gives those after them, and a server that gives others again
/// would be asked for ever.
fn asked_for(mut messages: Vec<Message>, first: i64, newest: i64) -> Vec<Message> {
    messages.retain(|message| (first..=newest).contains(&message.seq));
    messages.sort_by_key(|message| message.seq);
    messages.dedup_by_key(|message| message.seq);
    messages
}

/// Says when a key of a session may have come. The session's own stream does not tell of a key that a guest is given.
pub struct KeyHints {
    client: Client,
    session: SessionId,
    hints: Option<BoxStream<'static, ensemble_client::Result<Hint>>>,
    next_try: Instant,
}

impl KeyHints {
    pub fn new(client: Client, session: SessionId) -> Self {
        Self { client, session, hints: None, next_try: Instant::now() }
    }

    /// Waits for the next one, for as long as a key is lacked. The first comes at once: nothing tells of a key that came before. Cancel
    /// safe.
    pub async fn next(&mut self, lacks_key: bool) {
        if !lacks_key {
            self.hints = None;
            return std::future::pending().await;
        }
        loop {
            if self.hints.is_none() {
                sleep_until(self.next_try).await;
            }
            match self.hints.get_or_insert_with(|| self.client.follow_hints().boxed()).next().await {
                Some(Ok(hint)) if self.is_meant(&hint) => return,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => {
                    self.hints = None;
                    self.next_try = Instant::now() + FOLLOWS_AGAIN_AFTER;
                }
            }
        }
    }

    fn is_meant(&self, hint: &Hint) -> bool {
        let is_of_session = hint.id.as_deref() == Some(self.session.to_string().as_str());
        matches!(hint.kind, HintKind::All | HintKind::Device) || is_of_session
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(seq: i64) -> Message {
        let (session, user) = (SessionId::generate(), ensemble_types::ids::UserId::generate());
        let document = json!({
            "id": session, "seq": seq, "localId": "l", "content": "c", "senderId": user, "keyEpoch": 1,
            "createdAt": "2026-03-26T00:00:00.000Z",
        });
        serde_json::from_value(document).unwrap()
    }

    /// What comes after the newest one comes by the stream too, and would be printed twice.
    #[test]
    fn of_what_the_server_gives_only_what_waits_is_taken_once_and_in_order() {
        let taken = |given: &[i64]| -> Vec<i64> {
            let given = given.iter().map(|seq| message(*seq)).collect();
            asked_for(given, 4, 6).into_iter().map(|message| message.seq).collect()
        };
        assert_eq!(taken(&[4, 5, 6]), [4, 5, 6]);
        assert_eq!(taken(&[6, 5, 4, 5]), [4, 5, 6]);
        assert_eq!(taken(&[4, 5, 6, 7, 8]), [4, 5, 6]);
        assert!(taken(&[1, 2, 3]).is_empty(), "it would be asked for ever");
    }
}
