//! The device list of a session's owner. Messages name the newest one that their signer knows, and a program may be open for days.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_client::{Client, Known};
use ensemble_protocol::transcript::body::KnownList;
use ensemble_types::hints::HintKind;
use ensemble_types::ids::UserId;
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::devices::List;

/// A list that is older than this is read again before it is named.
const GOOD_FOR: Duration = Duration::from_secs(3_600);

/// After the stream of hints has failed.
const FOLLOWS_AGAIN_AFTER: Duration = Duration::from_secs(60);

pub(super) struct Owner {
    client: Client,
    user: UserId,
    known: Mutex<Newest>,
}

struct Newest {
    list: List,
    /// When it was read; `None`: there may be a newer one.
    read: Option<Instant>,
    /// The newest version that the machine has named and the server was asked for.
    asked: u32,
}

impl Owner {
    /// `list` was read just now.
    pub(super) fn new(client: Client, user: UserId, list: List) -> Self {
        Self { client, user, known: Mutex::new(Newest { list, read: Some(Instant::now()), asked: 0 }) }
    }

    pub(super) fn user(&self) -> UserId {
        self.user
    }

    pub(super) fn is(&self, user: UserId) -> bool {
        self.user == user
    }

    /// The newest list that is known.
    pub(super) fn list(&self) -> List {
        self.lock().list.clone()
    }

    /// The connection was lost, or the session has changed: devices may have come and gone.
    pub(super) fn may_have_changed(&self) {
        self.lock().read = None;
    }

    /// Reads the account's hints until the returned set is dropped: the next message names a list that has changed. The hints are
    /// those of the caller, so this is for the owner's own programs.
    pub(super) fn follow(self: &Arc<Self>, invites: Arc<Notify>) -> JoinSet<()> {
        let owner = self.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let mut hints = std::pin::pin!(owner.client.follow_hints());
                while let Some(Ok(hint)) = hints.next().await {
                    if matches!(hint.kind, HintKind::Device | HintKind::All) {
                        owner.may_have_changed();
                    }
                    if matches!(hint.kind, HintKind::Invite | HintKind::All) {
                        invites.notify_one();
                    }
                }
                sleep(FOLLOWS_AGAIN_AFTER).await;
            }
        });
        task
    }

    /// The newest list, which is read again when it may have changed, or is an hour old. While the server does not show a good one
    /// it is the one that is known.
    pub(super) async fn named(&self) -> KnownList {
        let is_new = |newest: &Newest| newest.read.is_some_and(|read| read.elapsed() < GOOD_FOR);
        let known = Some(self.lock()).filter(|newest| !is_new(newest)).map(|newest| newest.list.clone());
        if let Some(known) = known {
            // A server that cannot be reached, or shows an old list, is asked again with the next message.
            let _ = self.read_after(&known).await;
        }
        let newest = self.lock();
        KnownList { version: newest.list.version(), digest: newest.list.digest_text() }
    }

    /// The machine has named this version, so the signers of later messages are judged by it. A server that does not show it is asked only
    /// once.
    ///
    /// # Errors
    /// The server cannot answer now.
    pub(super) async fn learn(&self, version: u32) -> ensemble_client::Result<()> {
        let is_new = |newest: &Newest| version > newest.asked.max(newest.list.version());
        let known = Some(self.lock()).filter(|newest| is_new(newest)).map(|newest| newest.list.clone());
        let Some(known) = known else { return Ok(()) };
        self.ask(&known).await?;
        self.lock().asked = version;
        Ok(())
    }

    /// Asks for the list once more that the machine has named and the server has kept back.
    ///
    /// # Errors
    /// The server cannot answer now.
    pub(super) async fn ask_again(&self) -> ensemble_client::Result<()> {
        self.ask(&self.list()).await
    }

    async fn ask(&self, known: &List) -> ensemble_client::Result<()> {
        match self.read_after(known).await {
            Err(error) if error.is_passing() => Err(error),
            // A server that was restored from a backup may have no newer list than the known one.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn read_after(&self, known: &List) -> ensemble_client::Result<()> {
        let found = self.client.newest_list(self.user, Known::List(known)).await?;
        let mut newest = self.lock();
        newest.read = Some(Instant::now());
        if let Some(found) = found.filter(|found| found.version() > newest.list.version()) {
            newest.list = found;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Newest> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ensemble_protocol::AccountKey;
    use ensemble_types::devices::SignedList;
    use ensemble_types::time::Timestamp;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::devices;
    use crate::fixtures::first_list;

    /// A server that has these lists and answers requests one after the other. Returns its address.
    pub(in crate::live) fn serve(lists: Arc<Mutex<Vec<SignedList>>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let after = head[0].split("after=").nth(1).and_then(|rest| rest.split(['&', ' ']).next()).unwrap();
                let after: usize = after.parse().unwrap();
                let lists = lists.lock().unwrap();
                let page = serde_json::json!({ "lists": lists.get(after..).unwrap_or_default(), "nextCursor": null });
                let body = page.to_string();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn a_message_names_a_newer_list_after_an_hour_and_after_a_reconnect() {
        let key = AccountKey::generate();
        let old = first_list(&key, []).0;
        let next = |list: &List, seconds| {
            let body = list.successor(Timestamp::from_unix_seconds(seconds));
            list.next(&devices::signed(&body, &key).unwrap()).unwrap()
        };
        let newer = next(&old, 1);
        let newest = next(&newer, 2);
        let lists = Arc::new(Mutex::new(vec![old.signed().clone(), newer.signed().clone()]));
        let client = Client::builder(serve(lists.clone())).build().unwrap();
        let owner = Owner::new(client, UserId::generate(), old);
        assert_eq!(owner.named().await.version, 1, "it was read just now");
        owner.may_have_changed();
        assert_eq!(owner.named().await, KnownList { version: 2, digest: newer.digest_text() });
        lists.lock().unwrap().push(newest.signed().clone());
        owner.learn(2).await.unwrap();
        assert_eq!(owner.named().await.version, 2, "the machine names what is known");
        owner.lock().read = Instant::now().checked_sub(GOOD_FOR);
        assert_eq!(owner.named().await.version, 3);
        // A server that has forgotten the newest one changes nothing.
        lists.lock().unwrap().pop();
        owner.may_have_changed();
        assert_eq!(owner.named().await, KnownList { version: 3, digest: newest.digest_text() });
        assert_eq!(owner.list().version(), 3);
    }

    #[tokio::test]
    async fn a_list_that_the_machine_names_is_read_and_asked_for_once() {
        let key = AccountKey::generate();
        let old = first_list(&key, []).0;
        let lists = Arc::new(Mutex::new(vec![old.signed().clone()]));
        let client = Client::builder(serve(lists.clone())).build().unwrap();
        let owner = Owner::new(client, UserId::generate(), old.clone());
        owner.learn(2).await.unwrap();
        assert_eq!(owner.list().version(), 1, "the server keeps it back");
        let body = old.successor(Timestamp::from_unix_seconds(1));
        let newer = old.next(&devices::signed(&body, &key).unwrap()).unwrap();
        lists.lock().unwrap().push(newer.signed().clone());
        owner.learn(2).await.unwrap();
        assert_eq!(owner.list().version(), 1, "it was asked");
        lists.lock().unwrap().pop();
        owner.ask_again().await.unwrap();
        assert_eq!(owner.list().version(), 1, "it keeps it back once more");
        lists.lock().unwrap().push(newer.signed().clone());
        owner.learn(3).await.unwrap();
        assert_eq!(owner.list().version(), 2);
    }
}
