//! `ensemble attach` and `ensemble log`: a live session on the screen, or as text.

use std::collections::{BTreeSet, HashSet};
use std::io::IsTerminal;
use std::pin::pin;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::live::{KeyHints, Live, Opened};
use ensemble_account::sessions::Named;
use ensemble_client::{SessionEvent, SessionFilter};
use ensemble_protocol::transcript::body::Content;
use ensemble_protocol::transcript::view::{Item, Shown};
use ensemble_protocol::transcript::words::Phase;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::sessions::Session;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use super::DONE;
use super::sessions::Sessions;
use crate::complete;
use crate::context::{Context, interrupts};
use crate::failure::{Failure, Result};
use crate::live::{self, text};
use crate::print;

/// Shows a live session of yours, or one that was shared with you.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The session's ref or id, or `last` [default: the only live session; of several one that you choose]
    #[arg(add = complete::sessions())]
    session: Option<Named>,
}

/// Prints the transcript of a live session.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// Keep printing what comes
    #[arg(long, short)]
    follow: bool,
    /// Only what was asked, and who allowed or refused it
    #[arg(long)]
    approvals: bool,
}

impl Attach {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let id = match self.session {
            Some(session) => session.with_agent(&me).await?,
            None => match only(&me).await? {
                Some(only) => only,
                None => chosen(context).await?.with_agent(&me).await?,
            },
        };
        show(context, live::open(context, &me, id).await?).await?;
        Ok(DONE)
    }
}

/// The live session of this person, if there is exactly one.
async fn only(me: &Account) -> Result<Option<SessionId>> {
    let filter = SessionFilter { active_only: true, shared: true };
    let live = me.client.sessions(filter).try_filter(|session| std::future::ready(session.hosted)).take(2);
    let live: Vec<Session> = live.try_collect().await?;
    Ok(match live.as_slice() {
        [only] => Some(only.id),
        _ => None,
    })
}

/// Shows the live sessions and asks which one is meant.
async fn chosen(context: &Context) -> Result<Named> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::message("Say which session: `ensemble sessions` shows them."));
    }
    Sessions::default().run(context).await?;
    print::ask("\nWhich session?")?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    line.trim().parse().map_err(|error| Failure::message(format!("The session {error}.")))
}

impl Log {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let id = self.session.with_agent(&me).await?;
        log(context, live::open(context, &me, id).await?, self.follow, self.approvals).await?;
        Ok(DONE)
    }
}

/// Prints the transcript, and with `follow` what comes until the person ends it.
async fn log(context: &Context, mut live: Live, follow: bool, approvals: bool) -> Result<()> {
    let (client, id) = (live.me.client.clone(), live.session.id);
    let mut interrupt = interrupts()?;
    let mut printed = Printed { json: context.json, follows: follow, approvals, ..Printed::default() };
    let mut after = 0;
    {
        let mut messages = pin!(client.messages_after(id, 0));
        while let Some(message) = messages.next().await {
            let message = message?;
            after = message.seq;
            printed.message(&mut live, &message).await?;
        }
    }
    if live.lacks_key() {
        print::note("What comes next is encrypted with a key that has not reached this device yet.");
    }
    if !follow {
        return printed.rest(&mut live).await;
    }
    let mut keys = KeyHints::new(client.clone(), id);
    let mut events = pin!(client.follow_session(id, Some(after)));
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = keys.next(live.is_waiting()) => {
                printed.key_may_have_come(&mut live).await?;
                continue;
            }
            _ = interrupt.recv() => return printed.end(&live),
        };
        match event {
            Some(Ok(SessionEvent::Changed(_))) => printed.key_may_have_come(&mut live).await?,
            Some(Ok(SessionEvent::Message(message))) => printed.message(&mut live, &message).await?,
            Some(Ok(_)) => {}
            Some(Err(error)) => return printed.end(&live).and(Err(error.into())),
            None => return printed.end(&live),
        }
    }
}

/// Prints these messages of a live session as a transcript.
pub(super) async fn print(context: &Context, me: &Account, id: SessionId, messages: &[Message]) -> Result<()> {
    let mut live = live::open(context, me, id).await?;
    for message in messages {
        live.take(message).await?;
    }
    Printed::default().rest(&mut live).await
}

/// What of the view is on the terminal.
#[derive(Default)]
struct Printed {
    json: bool,
    /// The id of the first item that is not printed.
    next: u64,
    follows: bool,
    /// Only requests and their answers.
    approvals: bool,
    /// Prompts that were sent while a turn works. Each is printed when it is taken, or rejected.
    waiting: BTreeSet<u64>,
    /// The `seq`s of the prompts that are printed: one that has waited is an item once more where its turn begins.
    prompts: HashSet<u64>,
}

/// The newest items of a log may still change, so they are printed at its end.
pub(super) const MAY_CHANGE: usize = 500;

impl Printed {
    async fn message(&mut self, live: &mut Live, message: &Message) -> Result<()> {
        if self.json {
            return live.arrived(message).await?.map_or(Ok(()), |opened| self.json_line(live, opened));
        }
        live.take(message).await?;
        live.learn_names().await;
        self.print(live, if self.follows { 0 } else { MAY_CHANGE })
    }

    /// Prints the messages that have waited for their key, if it has come. A list that is kept back is asked for again.
    async fn key_may_have_come(&mut self, live: &mut Live) -> Result<()> {
        if !live.is_waiting() {
            return Ok(());
        }
        if !self.json {
            live.renew().await?;
            live.learn_names().await;
            return self.print(live, 0);
        }
        live.refresh().await?;
        live.ask_for_list().await?;
        loop {
            let opened = live.waited().await?;
            if opened.is_empty() {
                return Ok(());
            }
            opened.into_iter().try_for_each(|one| self.json_line(live, one))?;
        }
    }

    fn json_line(&self, live: &mut Live, opened: Opened) -> Result<()> {
        let (seq, mut author) = (opened.seq, author_json(&opened.author));
        let is_meant = opened.message.as_ref().is_ok_and(|message| is_approval(&message.content));
        let body: Option<Value> = opened.body.as_deref().and_then(|body| serde_json::from_str(body).ok());
        let changed = live.view.message(opened.incoming());
        let items = changed.items.iter().filter_map(|id| live.view.item(*id));
        let unconfirmed = items.filter(|item| item.seq == seq).find_map(|item| item.unconfirmed);
        if let (Some(list), Some(author)) = (unconfirmed, author.as_object_mut()) {
            author.insert("unconfirmed".to_owned(), list.into());
        }
        if self.approvals && !is_meant {
            return Ok(());
        }
        print::json(&json!({ "seq": seq, "author": author, "body": body }), true)
    }

    /// Prints all but the newest `held` items.
    fn print(&mut self, live: &Live, held: usize) -> Result<()> {
        if self.json {
            // Each message was printed when it came.
            return Ok(());
        }
        let new = live.view.items().len().saturating_sub(held);
        let first = self.next;
        let name = |user| live.known_name(user);
        let waits = |id: u64| live.view.waiting().any(|item| item.id == id);
        let works = live.view.state().is_some_and(|state| matches!(state.phase, Phase::Working | Phase::Waiting));
        let is_over = |id: &u64| !waits(*id) || !works;
        for item in self.waiting.extract_if(.., |id| is_over(id)).filter_map(|id| live.view.item(id)) {
            if is_new(&mut self.prompts, item) {
                print_item(item, !self.follows, name)?;
            }
        }
        for item in live.view.items().take(new).filter(|item| item.id >= first) {
            self.next = item.id + 1;
            if self.approvals && !matches!(&item.shown, Shown::Card(_)) {
                continue;
            }
            if self.follows && works && waits(item.id) {
                self.waiting.insert(item.id);
                continue;
            }
            if is_new(&mut self.prompts, item) {
                print_item(item, !self.follows, name)?;
            }
        }
        Ok(())
    }

    /// Prints what waits, because nothing more comes.
    fn end(&mut self, live: &Live) -> Result<()> {
        for item in std::mem::take(&mut self.waiting).into_iter().filter_map(|id| live.view.item(id)) {
            if is_new(&mut self.prompts, item) {
                print_item(item, !self.follows, |user| live.known_name(user))?;
            }
        }
        Ok(())
    }

    async fn rest(&mut self, live: &mut Live) -> Result<()> {
        live.learn_names().await;
        self.print(live, 0)
    }
}

/// Whether an item is to be printed. A prompt is printed once.
fn is_new(prompts: &mut HashSet<u64>, item: &Item) -> bool {
    !matches!(&item.shown, Shown::Prompt(..)) || prompts.insert(item.seq)
}

/// Prints an item: on a terminal what an agent says as its Markdown shows it, all else as plain text.
pub(super) fn print_item(item: &Item, is_last_word: bool, name: impl Fn(UserId) -> String) -> Result<()> {
    if let Shown::Text(part) = &item.shown
        && std::io::stdout().is_terminal()
    {
        return print::markdown(&part.text);
    }
    text::item(item, is_last_word, name).map_or(Ok(()), print::line)
}

/// A request, an answer, or its result.
fn is_approval(content: &Content) -> bool {
    matches!(content, Content::Permission(_) | Content::Question(_) | Content::Answer(_) | Content::Resolved(_))
}

pub(super) fn author_json(author: &ensemble_protocol::transcript::view::Author) -> Value {
    use ensemble_protocol::transcript::view::Author;
    match author {
        Author::Host => json!({ "host": true }),
        Author::Person { user, key, removed_in: None } => json!({ "user": user, "key": key }),
        Author::Person { user, key, removed_in } => json!({ "user": user, "key": key, "removedIn": removed_in }),
        Author::Unknown(why) => json!({ "unsigned": why }),
    }
}

/// Shows the session: on the screen, or where there is no terminal its newest messages and what comes.
pub(crate) async fn show(context: &Context, mut live: Live) -> Result<()> {
    if context.json {
        return log(context, live, true, false).await;
    }
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return live::show::show(context, live).await;
    }
    print::note(format!("There is no terminal for a screen: what session {} says is printed.", live.session.reference));
    let after = live.load().await?;
    let mut interrupt = interrupts()?;
    let mut printed = Printed { follows: true, ..Printed::default() };
    printed.rest(&mut live).await?;
    let mut keys = KeyHints::new(live.me.client.clone(), live.session.id);
    let mut events = pin!(live.me.client.follow_session(live.session.id, Some(after)));
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = keys.next(live.is_waiting()) => {
                live.renew().await?;
                printed.rest(&mut live).await?;
                continue;
            }
            _ = interrupt.recv() => return printed.end(&live),
        };
        match event {
            Some(event) => {
                live.event(event?).await?;
                printed.rest(&mut live).await?;
            }
            None => return printed.end(&live),
        }
    }
}
