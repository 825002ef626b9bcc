//! The messages of a live session in their order: from its history, as they come, and when a key comes that they have waited for.

use ensemble_client::{Client, SessionEvent, Window};
use ensemble_protocol::transcript::view::{Author, Changed};
use ensemble_types::hints::{Hint, HintKind};
use ensemble_types::ids::SessionId;
use ensemble_types::messages::Message;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

use super::{Live, Opened};
use crate::error::{Error, Result};

/// Messages that are loaded at once.
const NEWEST: u32 = 300;
/// Pages that are read to find a request that is open.
const MOST_PAGES: u32 = 20;
/// The longest time until missing lists and keys are looked for: there are no hints about lists of other accounts.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_secs(60);
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

    /// Opens consecutive messages, up to the first one whose key is missing. Their authors, and those of the view, are judged by one list.
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
            self.judge().await?;
            // Otherwise there is a newer list, by which all of them are judged again: the machine has named it, or a sender has read it.
            if self.view.list() == Some(version) {
                return Ok((opened, waiting));
            }
        }
    }

    /// Takes the next message.
    pub async fn take(&mut self, message: &Message) -> Result<Changed> {
        if let Some(opened) = self.arrived(message).await? {
            self.show(opened);
        }
        Ok(std::mem::take(&mut self.unreported))
    }

    fn show(&mut self, opened: Opened) {
        let changed = self.view.message(opened.incoming());
        self.unreported.add(changed);
    }

    /// Takes an event of the stream.
    pub async fn event(&mut self, event: SessionEvent) -> Result<Changed> {
        Ok(match event {
            SessionEvent::Message(message) => self.take(&message).await?,
            SessionEvent::Live(live) => {
                self.frame(&live.content).map(|frame| self.view.frame(&frame)).unwrap_or_default()
            }
            SessionEvent::Changed(_) => self.renew().await?,
        })
    }

    /// Reads what the server says of the session now, and takes the messages whose key has come. A list that it has kept back is asked
    /// for again. Says what has changed.
    pub async fn renew(&mut self) -> Result<Changed> {
        self.refresh().await?;
        self.ask_for_list().await?;
        loop {
            let opened = self.waited().await?;
            if opened.is_empty() {
                return Ok(Changed { state: true, ..std::mem::take(&mut self.unreported) });
            }
            opened.into_iter().for_each(|one| self.show(one));
        }
    }

    /// Asks again for a list that the server has kept back. The view is judged by it.
    pub async fn ask_for_list(&mut self) -> Result<()> {
        if self.view.withheld().is_some() {
            self.owner.ask_again().await?;
        }
        self.judge().await
    }

    /// What the owner's devices have written is shown by the newest list that is known.
    async fn judge(&mut self) -> Result<()> {
        let (owner, version) = (self.owner.user(), self.owner.list().version());
        if self.view.list() == Some(version) {
            return Ok(());
        }
        let mut removed = HashMap::new();
        for key in self.view.unconfirmed() {
            if let Author::Person { removed_in: Some(list), .. } = self.author(owner, &key).await? {
                removed.insert(key, list);
            }
        }
        let changed = self.view.checked(owner, version, &removed);
        self.unreported.add(changed);
        Ok(())
    }

    /// Opens the next message. `None`: it waits for its key, as those before it that are not shown.
    pub async fn arrived(&mut self, message: &Message) -> Result<Option<Opened>> {
        if let Some(waiting) = &mut self.waiting {
            waiting.newest = waiting.newest.max(message.seq);
            return Ok(None);
        }
        let (mut opened, waiting) = self.in_order(std::slice::from_ref(message)).await?;
        self.wait(waiting);
        Ok(opened.pop())
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

    /// Whether something is lacked that may come: the key of messages, or a list of the owner that the machine has named.
    pub fn is_waiting(&self) -> bool {
        self.lacks_key() || self.view.withheld().is_some()
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

/// Says when a key of a session, or a list of its owner, may have come. The session's own stream does not tell of a key that a guest is
/// given.
pub struct KeyHints {
    client: Client,
    session: SessionId,
    hints: Option<BoxStream<'static, ensemble_client::Result<Hint>>>,
    next_try: Instant,
    /// When it says so although no hint has come.
    looks_at: Instant,
}

impl KeyHints {
    pub fn new(client: Client, session: SessionId) -> Self {
        let now = Instant::now();
        Self { client, session, hints: None, next_try: now, looks_at: now + LOOKS_AGAIN_AFTER }
    }

    /// Waits for the next one, for as long as something is lacked. The first comes at once: nothing tells of what came before. Cancel
    /// safe.
    pub async fn next(&mut self, is_waiting: bool) {
        if !is_waiting {
            self.hints = None;
            self.looks_at = Instant::now() + LOOKS_AGAIN_AFTER;
            return std::future::pending().await;
        }
        let _late = tokio::time::timeout_at(self.looks_at, self.hint()).await;
        self.looks_at = Instant::now() + LOOKS_AGAIN_AFTER;
    }

    async fn hint(&mut self) {
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
    use ensemble_protocol::AccountKey;
    use ensemble_protocol::seal::{self, ContentRing, KeyRing, Purpose};
    use ensemble_protocol::transcript::Envelope;
    use ensemble_protocol::transcript::body::{Content, KnownList, Message as Said, Plan, Prompt};
    use ensemble_protocol::transcript::view::{Keep, Note, Shown, View};
    use ensemble_protocol::transcript::words::When;
    use ensemble_types::devices::{ListedDevice, Role};
    use ensemble_types::ids::{MachineId, UserId};
    use ensemble_types::time::Timestamp;
    use serde_json::json;
    use std::sync::{Arc, Mutex};

    use super::super::owner::{Owner, tests::serve};
    use super::*;
    use crate::account::Account;
    use crate::devices::{self, List};
    use crate::fixtures::{first_list, listed};
    use crate::home::Home;
    use crate::sessions::Titled;
    use crate::sessions::tests::session;

    fn message(seq: i64, content: &str) -> Message {
        let (session, user) = (SessionId::generate(), UserId::generate());
        let document = json!({
            "id": session, "seq": seq, "localId": "l", "content": content, "senderId": user, "keyEpoch": 1,
            "createdAt": "2026-03-26T00:00:00.000Z",
        });
        serde_json::from_value(document).unwrap()
    }

    /// What comes after the newest one comes by the stream too, and would be printed twice.
    #[test]
    fn of_what_the_server_gives_only_what_waits_is_taken_once_and_in_order() {
        let taken = |given: &[i64]| -> Vec<i64> {
            let given = given.iter().map(|seq| message(*seq, "c")).collect();
            asked_for(given, 4, 6).into_iter().map(|message| message.seq).collect()
        };
        assert_eq!(taken(&[4, 5, 6]), [4, 5, 6]);
        assert_eq!(taken(&[6, 5, 4, 5]), [4, 5, 6]);
        assert_eq!(taken(&[4, 5, 6, 7, 8]), [4, 5, 6]);
        assert!(taken(&[1, 2, 3]).is_empty(), "it would be asked for ever");
    }

    fn machine(key: &AccountKey) -> ListedDevice {
        let id: MachineId = "laptop".parse().unwrap();
        ListedDevice { machine_id: Some(id), ..listed(key, Role::Machine) }
    }

    /// A session of this account on its machine.
    fn live(me: Account) -> Live {
        let mut session = session(&me, SessionId::generate(), "AAAA");
        (session.hosted, session.machine_id) = (true, Some("laptop".parse().unwrap()));
        let owner = Arc::new(Owner::new(me.client.clone(), me.id, me.own().list.clone()));
        let (view, ring, titled) = (View::new(Keep::default()), KeyRing::generate(), (Titled::default(), (1, 1)));
        let (signers, names, unreported) = (HashMap::new(), HashMap::new(), Changed::default());
        let (owner_keys, first, asked, waiting) = (None, None, 0, None);
        Live { me, session, view, ring, titled, owner, signers, names, owner_keys, first, asked, waiting, unreported }
    }

    /// What this key has signed. The machine's messages have a count.
    fn said(live: &Live, (key, n): (&AccountKey, Option<u64>), seq: i64, list: u32, content: Content) -> Message {
        let list = KnownList { version: list, digest: live.owner.list().digest_text() };
        let said = Said { local_id: "l".to_owned(), at: Timestamp::from_unix_seconds(0), list, n, content };
        let signed = Envelope::sign(live.session.id, live.me.id, said.write().unwrap(), key.signing_key()).unwrap();
        let purpose = Purpose::Message(live.session.id);
        message(seq, &seal::seal(&live.ring, purpose, &signed.write().unwrap()).unwrap())
    }

    #[tokio::test]
    async fn a_list_that_came_late_judges_the_message_that_named_it_and_tells_what_it_has_changed_before() {
        let [key, removed, host, other] = [(); 4].map(|()| AccountKey::generate());
        let (list, contents) = first_list(&key, [listed(&removed, Role::Linked), machine(&host)]);
        let without = |list: &List, gone: &AccountKey, more: Option<ListedDevice>| {
            let mut body = list.successor(Timestamp::from_unix_seconds(1));
            body.devices.retain(|device| device.key != gone.public_key());
            body.devices.extend(more);
            body.content_epoch += 1;
            body.content_public_key = ContentRing::generate().public().unwrap().to_text();
            list.next(&devices::signed(&body, &key).unwrap()).unwrap()
        };
        let second = without(&list, &removed, None);
        let third = without(&second, &host, Some(machine(&other)));
        let lists = Arc::new(Mutex::new(vec![list.signed().clone()]));
        let client = Client::builder(serve(lists.clone())).build().unwrap();
        let own = devices::Own { list, contents };
        let mut live =
            live(Account::new(&Home::of_test_in_memory(), client, key.clone(), UserId::generate(), own).unwrap());
        let plan = || Content::Plan(Plan { entries: Vec::new() });

        let text = "Go on".to_owned();
        let prompt = Prompt { text, attachments: Vec::new(), when: When::Next, directory: None };
        let prompt = said(&live, (&removed, None), 1, 1, Content::Prompt(prompt));
        let prompt = live.take(&prompt).await.unwrap().items[0];
        let named = said(&live, (&host, Some(2)), 2, 2, plan());
        assert_eq!(live.take(&named).await.unwrap().items, [prompt]);
        assert_eq!(live.view.item(prompt).unwrap().unconfirmed, Some(2), "the server keeps the list back");

        lists.lock().unwrap().push(second.signed().clone());
        let named = said(&live, (&host, Some(3)), 3, 3, plan());
        let changed = live.take(&named).await.unwrap();
        assert!(changed.plan && changed.items.contains(&prompt), "{changed:?}");
        assert!(matches!(live.view.item(prompt).unwrap().shown, Shown::Note(Note::Removed(..))));

        lists.lock().unwrap().push(third.signed().clone());
        let named = said(&live, (&host, Some(4)), 4, 4, plan());
        assert!(!live.take(&named).await.unwrap().plan, "the list has another key of the machine");
        let item = live.view.items().next_back().unwrap();
        assert!(matches!(item.shown, Shown::Note(Note::NotSigned(_))), "{item:?}");
    }
}
