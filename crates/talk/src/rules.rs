//! What the voice may have this program do (docs/VOICE.md, "The person's tools"): whether a call is carried out, and what it means. The voice
//! reads text of others, so nothing here allows anything. It knows no network and no clock but the one that it is given.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use ensemble_protocol::transcript::body::PermissionOption;
use ensemble_protocol::transcript::view::{Asks, Card, View};
use ensemble_protocol::transcript::words::OptionKind;
use ensemble_screen::Level;
use ensemble_types::ids::SessionId;
use serde_json::{Map, Value};

/// The most bytes that an RPC carries each way.
pub(super) const MOST_BYTES: usize = 15_360;
const MOST_TEXT: usize = 8_000;
const MOST_MESSAGES: u64 = 20;
const FEW_MESSAGES: u64 = 5;
const MOST_ID: usize = 128;
/// The most calls that are taken in a minute.
const MOST_CALLS: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
const MOST_TITLE: usize = 300;

/// The caller, as the room says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) identity: &'a str,
    pub(super) is_agent: bool,
}

/// What a call means, once it is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Shown first, and sent unless it is taken back.
    Send(String),
    Read {
        last: usize,
    },
    Deny {
        request_id: String,
        digest: String,
        option_id: String,
        title: String,
    },
    Show {
        request_id: String,
        title: String,
    },
}

/// Why a call is not carried out: a code of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) message: String,
}

/// What is known of the session when a call comes.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    pub(super) view: &'a View,
    pub(super) level: Level,
}

/// The rules of one conversation.
pub(super) struct Rules {
    session: SessionId,
    agent: String,
    /// When calls came, within the last minute.
    times: VecDeque<Instant>,
    /// A message is shown, or on its way.
    is_sending: bool,
    /// Requests that were denied here and are open still, because the machine has not confirmed it.
    denied: HashSet<String>,
    is_over: bool,
}

impl Rules {
    /// For a conversation that the person has agreed to, with the agent that the start's answer names.
    pub(super) fn agreed(session: SessionId, agent: String) -> Self {
        Self { session, agent, times: VecDeque::new(), is_sending: false, denied: HashSet::new(), is_over: false }
    }

    /// The conversation is over: nothing more is taken.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// The message that was shown is sent, or taken back.
    pub(super) fn sent(&mut self) {
        self.is_sending = false;
    }

    /// A request could not be denied.
    pub(super) fn not_denied(&mut self, request_id: &str) {
        self.denied.remove(request_id);
    }

    /// What to do for this call.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        method: &str,
        caller: Caller<'_>,
        payload: &str,
        session: Session<'_>,
    ) -> Result<Act, Refusal> {
        if self.is_over {
            return refuse(403, "The conversation is over.");
        }
        if !caller.is_agent || caller.identity != self.agent {
            return refuse(403, "Only the agent of this conversation may call.");
        }
        self.limit(now)?;
        if payload.len() > MOST_BYTES {
            return refuse(413, "The request is too large.");
        }
        let body = self.body(payload, members(method)?)?;
        match method {
            "session.send" => self.send(&body, session),
            "session.read" => read(&body),
            "permission.deny" => self.deny(&body, session),
            _ => show(&body, session),
        }
    }

    fn limit(&mut self, now: Instant) -> Result<(), Refusal> {
        while self.times.front().is_some_and(|time| now.saturating_duration_since(*time) >= MINUTE) {
            self.times.pop_front();
        }
        // A call beyond the limit does not push the end of the minute away.
        if self.times.len() >= MOST_CALLS {
            return refuse(429, "More than 10 calls in a minute.");
        }
        self.times.push_back(now);
        Ok(())
    }

    /// The request's members without the session, which has to be the one that is open.
    fn body(&self, payload: &str, members: &[&str]) -> Result<Map<String, Value>, Refusal> {
        let body: Value = serde_json::from_str(payload).or_else(|_| refuse(400, "The request is not JSON."))?;
        let Value::Object(mut body) = body else { return refuse(400, "The request is no object.") };
        let Some(Value::String(session)) = body.remove("sessionId") else {
            return refuse(400, "`sessionId` is missing.");
        };
        if body.keys().any(|name| !members.contains(&name.as_str())) {
            return refuse(400, "The request has a member that is not known.");
        }
        if session.parse::<SessionId>().ok() != Some(self.session) {
            return refuse(409, "Another session is open.");
        }
        Ok(body)
    }

    fn send(&mut self, body: &Map<String, Value>, session: Session<'_>) -> Result<Act, Refusal> {
        let text = match body.get("text") {
            Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
            _ => return refuse(400, "`text` is missing."),
        };
        if text.chars().count() > MOST_TEXT {
            return refuse(413, "`text` is too long.");
        }
        if session.level < Level::Prompt {
            return refuse(403, "This person may not write in this session.");
        }
        if self.is_sending {
            return refuse(409, "Another message is being shown.");
        }
        self.is_sending = true;
        Ok(Act::Send(text))
    }

    fn deny(&mut self, body: &Map<String, Value>, session: Session<'_>) -> Result<Act, Refusal> {
        let card = card_of(&required(body)?, session.view)?;
        let Asks::Permission(permission) = &card.asks else { return refuse(404, NOT_OPEN) };
        if session.level < Level::Approve {
            return refuse(403, "This person may not answer requests.");
        }
        let Some(option) = refusing(&permission.options) else {
            return refuse(409, "This request cannot be denied.");
        };
        self.denied.retain(|id| session.view.open().any(|card| card.request_id == *id));
        if !self.denied.insert(card.request_id.clone()) {
            return refuse(404, "The request was already denied.");
        }
        Ok(Act::Deny {
            request_id: card.request_id.clone(),
            digest: card.digest.clone(),
            option_id: option.option_id.clone(),
            title: title(card),
        })
    }
}

const NOT_OPEN: &str = "There is no such open request.";

pub(super) fn refuse<T>(code: u16, message: &str) -> Result<T, Refusal> {
    Err(Refusal { code, message: message.to_owned() })
}

/// What a method's request may have besides the session.
fn members(method: &str) -> Result<&'static [&'static str], Refusal> {
    match method {
        "session.send" => Ok(&["text"]),
        "session.read" => Ok(&["last"]),
        "permission.deny" | "permission.show" => Ok(&["requestId"]),
        _ => refuse(400, "There is no such method."),
    }
}

fn read(body: &Map<String, Value>) -> Result<Act, Refusal> {
    let last = body.get("last").map_or(Some(FEW_MESSAGES), Value::as_u64);
    match last.filter(|last| (1..=MOST_MESSAGES).contains(last)).and_then(|last| usize::try_from(last).ok()) {
        Some(last) => Ok(Act::Read { last }),
        None => refuse(400, "`last` is 1 to 20."),
    }
}

/// Without an id it is the oldest request.
fn show(body: &Map<String, Value>, session: Session<'_>) -> Result<Act, Refusal> {
    let card = match body.get("requestId") {
        Some(_) => card_of(&required(body)?, session.view)?,
        None => session.view.open().next().map_or_else(|| refuse(404, "Nothing is asked."), Ok)?,
    };
    Ok(Act::Show { request_id: card.request_id.clone(), title: title(card) })
}

fn required(body: &Map<String, Value>) -> Result<String, Refusal> {
    match body.get("requestId") {
        Some(Value::String(id)) if !id.is_empty() && id.chars().count() <= MOST_ID => Ok(id.clone()),
        _ => refuse(400, "`requestId` is missing."),
    }
}

fn card_of<'a>(request_id: &str, view: &'a View) -> Result<&'a Card, Refusal> {
    view.open().find(|card| card.request_id == request_id).map_or_else(|| refuse(404, NOT_OPEN), Ok)
}

/// The option that refuses this once, before one that refuses for longer.
fn refusing(options: &[PermissionOption]) -> Option<&PermissionOption> {
    let with = |kind: OptionKind| options.iter().find(|option| option.kind == kind);
    with(OptionKind::RejectOnce).or_else(|| with(OptionKind::RejectAlways))
}

pub(super) fn title(card: &Card) -> String {
    let title = match &card.asks {
        Asks::Permission(permission) => permission.title.as_str(),
        Asks::Question(question) => question.questions.first().map_or("A question", |first| first.text.as_str()),
    };
    title.chars().take(MOST_TITLE).collect()
}
