//! What streams bring, read by calls: for an address that holds streams back, whichever way they are opened. Live text does not come.

use std::time::Duration;

use ensemble_types::ids::SessionId;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::call::Call;
use crate::error::Result;
use crate::follow::Event;
use crate::transport::Client;

/// How often is read what no stream brings.
#[derive(Clone, Copy, Debug)]
pub struct Polls {
    /// While a person looks on.
    pub seen: Duration,
    /// What no person looks at, and what is new in the account.
    pub unseen: Duration,
}

impl Default for Polls {
    fn default() -> Self {
        Self { seen: Duration::from_secs(2), unseen: Duration::from_secs(30) }
    }
}

/// After this the stream is opened again: the address may hold nothing back any more.
const STREAMS_AGAIN_AFTER: Duration = Duration::from_secs(300);
const PAGE: u32 = 200;

/// What is read in place of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Look {
    Session(SessionId),
    Account,
}

/// Reads it now and then.
pub(crate) struct Poll {
    look: Look,
    /// The session as it was last given, without its messages and heartbeats.
    shown: Option<Value>,
    /// The newest message at the first look, for one who wants newer ones only.
    base: Option<i64>,
    next: Instant,
    ends: Instant,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    messages: Vec<Value>,
    has_more: bool,
}

impl Poll {
    pub(crate) fn new(look: Look) -> Self {
        let now = Instant::now();
        Self { look, shown: None, base: None, next: now, ends: now + STREAMS_AGAIN_AFTER }
    }

    /// Waits until it is due, and reads what has come after the event with this id. `None`: the stream is to be tried again. Cancel safe.
    pub(crate) async fn next(&mut self, client: &Client, after: Option<&str>) -> Result<Option<Vec<Event>>> {
        sleep_until(self.next).await;
        if Instant::now() >= self.ends {
            return Ok(None);
        }
        let after = after.and_then(|id| id.parse().ok());
        let (events, is_more) = match &self.look {
            Look::Session(id) => self.session(client, *id, after).await?,
            Look::Account => {
                // Whether the server is there, and still knows the caller. What has changed is read by those who need it.
                client.session_page(Default::default(), Some(1), None).await?;
                let hint = self.base.replace(0).map(|_| event("hint", None, &json!({ "kind": "all" })));
                (hint.into_iter().collect(), false)
            }
        };
        let polls = client.0.polls;
        let pause = if matches!(self.look, Look::Account) { polls.unseen } else { polls.seen };
        self.next = Instant::now() + if is_more { Duration::ZERO } else { pause };
        Ok(Some(events))
    }

    /// The session says whether there are newer messages.
    async fn session(&mut self, client: &Client, id: SessionId, after: Option<i64>) -> Result<(Vec<Event>, bool)> {
        let session: Value = client.get(&["v1", "sessions", &id.to_string()]).send().await?;
        let last = last_seq(&session);
        let from = after.unwrap_or_else(|| *self.base.get_or_insert(last));
        let page = match last > from {
            true => of(client.get(&["v3", "sessions", &id.to_string(), "messages"]), Some(from)).send().await?,
            false => Page::default(),
        };
        Ok(self.together(session, page, from))
    }

    fn together(&mut self, session: Value, page: Page, from: i64) -> (Vec<Event>, bool) {
        self.base.get_or_insert(from);
        let mut lasting = session.clone();
        if let Some(fields) = lasting.as_object_mut() {
            fields.retain(|name, _| !matches!(name.as_str(), "lastSeq" | "lastActiveAt" | "updatedAt"));
        }
        let mut events = Vec::new();
        if self.shown.as_ref() != Some(&lasting) {
            events.push(event("session", None, &session));
        }
        self.shown = Some(lasting);
        let seq = |message: &Value| message.get("seq").and_then(Value::as_i64);
        let mut newer: Vec<_> = page.messages.iter().filter_map(|one| Some((seq(one)?, one))).collect();
        newer.retain(|(seq, _)| *seq > from);
        newer.sort_by_key(|(seq, _)| *seq);
        events.extend(newer.iter().map(|(seq, message)| event("message", Some(seq.to_string()), message)));
        (events, page.has_more && !newer.is_empty())
    }
}

/// The messages after `from`; without it one message, with how things are now.
fn of(call: Call<'_>, from: Option<i64>) -> Call<'_> {
    call.query("after", from).query("limit", Some(from.map_or(1, |_| PAGE)))
}

fn last_seq(session: &Value) -> i64 {
    session.get("lastSeq").and_then(Value::as_i64).unwrap_or_default()
}

fn event(name: &str, id: Option<String>, data: &Value) -> Event {
    Event { name: name.to_owned(), id, data: data.to_string() }
}
