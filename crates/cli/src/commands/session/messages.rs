//! `ensemble session send`, `read` and `follow`: writes and reads encrypted messages.

use std::collections::HashMap;
use std::pin::pin;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::sessions::{Messages, Named};
use ensemble_client::{SessionEvent, Window, idempotency_key};
use ensemble_screen::lines::cut_middle;
use ensemble_types::ids::UserId;
use ensemble_types::messages::Message;
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::text::Text;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;

use crate::commands::attach;
use crate::complete;
use crate::context::{Context, interrupts};
use crate::failure::{Failure, Result};
use crate::print;
use crate::when;

/// A sealed message has at most 1 MiB, and so its text has less.
const MESSAGE_BYTES: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// The text (`-`: standard input; put `--` before a text that begins with a hyphen)
    #[arg(required = true, num_args = 1..)]
    text: Vec<String>,
    /// Send only once: a message with the same id is not sent again
    #[arg(long, value_name = "ID")]
    local_id: Option<String>,
    /// Send even if no earlier message opens with the session's key
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// The number of messages, from the newest
    #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Only messages before this number
    #[arg(long, value_name = "SEQ", conflicts_with = "all")]
    before: Option<i64>,
    /// Only messages after this number, oldest first
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// All messages
    #[arg(long, short)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Follow {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// Start after this number instead of now (0: from the beginning)
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
}

impl Send {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result<()> {
        let id = self.session.find(me).await?;
        let text = match self.text.as_slice() {
            [dash] if dash == "-" => crate::piped::text(MESSAGE_BYTES)?,
            words => words.join(" "),
        };
        if text.trim().is_empty() {
            return Err(Failure::message("The message is empty, so it was not sent."));
        }
        let messages = me.writable_messages(id).await?;
        if !self.force {
            messages.check().await?;
        }
        let local_id = Text::new(self.local_id.unwrap_or_else(idempotency_key))
            .map_err(|error| Failure::message(format!("The local id {error}.")))?;
        let (message, sent) = messages.send(text, local_id).await?;
        let session = &messages.session;
        me.use_session(session);
        if context.json {
            return print::json(&json!({ "message": message, "body": messages.open(&message).ok() }), false);
        }
        let what = if sent { "Sent" } else { "Already sent" };
        if session.access_level == AccessLevel::Owner {
            return print::line(format!("{what} as message {}.", message.seq));
        }
        // The owner, so that people notice when they write to another session than they think.
        let owner = me.described(session.owner_id).await;
        print::line(format!("{what} as message {} in a session of {owner}.", message.seq))
    }
}

impl Read {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result<()> {
        let id = self.session.find(me).await?;
        let session = me.session(id).await?;
        me.use_session(&session);
        // What a machine and its people have signed is a transcript.
        let is_transcript = session.hosted && !context.json;
        if is_transcript && self.all {
            let messages = me.client.messages_after(id, self.after.unwrap_or_default());
            return attach::print(context, me, id, &messages.try_collect::<Vec<_>>().await?).await;
        }
        let mut reader = Reader::new(context, me, session).await?;
        if self.all {
            let mut messages = pin!(me.client.messages_after(id, self.after.unwrap_or_default()));
            while let Some(message) = messages.next().await {
                reader.print(me, &message?).await?;
            }
            return Ok(());
        }
        let window = Window { before: self.before, after: self.after, limit: Some(self.limit) };
        let mut page = me.client.message_page(id, window).await?;
        // The last part of a history arrives newest first. People read it oldest first.
        page.messages.sort_by_key(|message| message.seq);
        if is_transcript {
            return attach::print(context, me, id, &page.messages).await;
        }
        for message in &page.messages {
            reader.print(me, message).await?;
        }
        if !context.json && page.messages.is_empty() {
            print::note("No messages.");
        }
        Ok(())
    }
}

impl Follow {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result<()> {
        let id = self.session.find(me).await?;
        let mut interrupt = interrupts()?;
        let session = me.session(id).await?;
        me.use_session(&session);
        if session.hosted && !context.json {
            return Err(Failure::message(format!(
                "An agent works in session {0}. `ensemble log --follow {0}` prints its transcript and follows it.",
                session.reference
            )));
        }
        let after = self.after.unwrap_or(session.last_seq);
        let mut reader = Reader::new(context, me, session).await?;
        let mut events = pin!(me.client.follow_session(id, Some(after)));
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = interrupt.recv() => return Ok(()),
            };
            match event {
                Some(Ok(SessionEvent::Message(message))) => reader.print_live(me, &message).await?,
                Some(Ok(SessionEvent::Changed(change))) if context.json => {
                    print::json(&json!({ "changed": change }), true)?;
                }
                Some(Ok(SessionEvent::Changed(_) | SessionEvent::Live(_))) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            }
        }
    }
}

/// Decrypts messages and prints each as one line of JSON or as a paragraph.
struct Reader {
    json: bool,
    me: UserId,
    messages: Messages,
    /// How the senders are called.
    names: HashMap<UserId, String>,
}

impl Reader {
    async fn new(context: &Context, me: &Account, session: Session) -> Result<Self> {
        let messages = me.messages(session).await?;
        Ok(Self { json: context.json, me: me.id, messages, names: HashMap::new() })
    }

    /// A sender's name with the id, because people choose their names themselves.
    async fn who(&mut self, me: &Account, sender: UserId) -> String {
        if sender == self.me {
            return "you".to_owned();
        }
        if let Some(known) = self.names.get(&sender) {
            return known.clone();
        }
        let Ok(user) = me.client.user(sender).await else { return sender.to_string() };
        let who = match user.display_name.filter(|name| !name.trim().is_empty()) {
            Some(name) => format!("{} ({})", print::inline(&name), cut_middle(&sender.to_string(), 13)),
            None => sender.to_string(),
        };
        self.names.insert(sender, who.clone());
        who
    }

    /// As [`Self::print`], and fetches the keys again if they were changed in the meantime.
    async fn print_live(&mut self, me: &Account, message: &Message) -> Result<()> {
        self.messages.renew_for(message).await?;
        self.print(me, message).await
    }

    async fn print(&mut self, me: &Account, message: &Message) -> Result<()> {
        let body = self.messages.open(message);
        if self.json {
            let body = body.as_ref().ok();
            return print::json(&json!({ "message": message, "body": body }), true);
        }
        let who = self.who(me, message.sender_id).await;
        print::line(format!("#{} {}  {who}", message.seq, when::local(message.created_at)))?;
        match body {
            Ok(body) => {
                if body.from.is_some_and(|from| from != message.sender_id) {
                    print::note(format!(
                        "(the encrypted message names another sender: {}. Do not trust this message.)",
                        body.from.map(|id| id.to_string()).unwrap_or_default()
                    ));
                }
                print::line(format!("{}\n", body.text.trim_end()))
            }
            Err(error) => print::line(format!("({error})\n")),
        }
    }
}
