//! What the voice may do, without a room: every refusal of docs/VOICE.md, what is carried out, and what the voice gets.

mod calls;
mod news;

use std::time::{Duration, Instant};

use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::view::{Author, Incoming, View};
use ensemble_protocol::transcript::words::*;
use ensemble_screen::Level;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::time::Timestamp;
use serde_json::Value;

use super::rules::{Act, Caller, Refusal, Rules, Session};

const AGENT: &str = "agent-of-the-start";

/// A session that a test writes, and the rules of a conversation about it.
struct Talked {
    id: SessionId,
    view: View,
    level: Level,
    rules: Rules,
    now: Instant,
    seq: u64,
    n: u64,
}

impl Talked {
    fn new() -> Self {
        let id = SessionId::generate();
        let rules = Rules::agreed(id, AGENT.to_owned());
        Self { id, view: View::default(), level: Level::Owner, rules, now: Instant::now(), seq: 0, n: 0 }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn take(&mut self, author: Author, n: Option<u64>, content: Content) {
        self.seq += 1;
        let (local_id, at) = (format!("m{}", self.seq), Timestamp::from_unix_seconds(0));
        let list = KnownList { version: 1, digest: String::new() };
        let message = Ok(Message { local_id, at, list, n, content });
        self.view.message(Incoming { seq: self.seq, author, digest: format!("digest-{}", self.seq), message });
    }

    fn host(&mut self, content: Content) {
        self.n += 1;
        let n = Some(self.n);
        self.take(Author::Host, n, content);
    }

    fn person(&mut self, text: &str) {
        let prompt = Prompt { text: text.to_owned(), attachments: Vec::new(), when: When::Next, directory: None };
        let author = Author::Person { user: UserId::generate(), key: "mine".to_owned(), removed_in: None };
        self.take(author, None, Content::Prompt(prompt));
    }

    fn says(&mut self, text: &str) {
        let part = u32::try_from(self.n).unwrap();
        let (turn_id, text) = ("t".to_owned(), text.to_owned());
        self.host(Content::Text(TextPart {
            turn_id,
            part,
            of: None,
            text,
            interrupted: false,
            parent_tool_call_id: None,
        }));
    }

    fn asks(&mut self, request_id: &str, kinds: &[OptionKind]) {
        let options = kinds.iter().map(|kind| PermissionOption {
            option_id: format!("id-{}", kind.as_str()),
            name: "An option".to_owned(),
            kind: kind.clone(),
        });
        self.host(Content::Permission(Box::new(Permission {
            request_id: request_id.to_owned(),
            tool_call_id: None,
            title: format!("Run {request_id}"),
            detail: "touch it".to_owned(),
            cut: None,
            content: Vec::new(),
            options: options.collect(),
        })));
    }

    fn questions(&mut self, request_id: &str, text: &str) {
        let item =
            QuestionItem { id: "q".to_owned(), header: None, text: text.to_owned(), options: None, multiple: false };
        let (request_id, questions) = (request_id.to_owned(), vec![item]);
        self.host(Content::Question(Question { request_id, tool_call_id: None, questions }));
    }

    fn call_by(&mut self, caller: Caller<'_>, method: &str, payload: &str) -> Result<Act, Refusal> {
        let session = Session { view: &self.view, level: self.level };
        self.rules.judge(self.now, method, caller, payload, session)
    }

    /// A call of the agent.
    fn calls(&mut self, method: &str, payload: &str) -> Result<Act, Refusal> {
        self.call_by(Caller { identity: AGENT, is_agent: true }, method, payload)
    }

    /// A call of the agent about this session.
    fn wants(&mut self, method: &str, mut body: Value) -> Result<Act, Refusal> {
        body["sessionId"] = self.id.to_string().into();
        self.calls(method, &body.to_string())
    }
}

/// The code of a refusal. `0`: it is carried out.
fn code(answer: &Result<Act, Refusal>) -> u16 {
    answer.as_ref().err().map_or(0, |refusal| refusal.code)
}
