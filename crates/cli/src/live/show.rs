//! A live session on the screen, until the person leaves.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use ensemble_account::drafts::Draft;
use ensemble_account::live::{KeyHints, Live, SILENT, Sender, Watch, Watched};
use ensemble_client::SessionEvent;
use ensemble_protocol::transcript::words::Phase;
use ensemble_screen::{About, Action, Connection, EventStream, Level, Look, Me, Screen, Terminal};
use ensemble_types::attention::{AttentionKind, SetAttention};
use ensemble_types::sessions::{AccessLevel, SessionStatus, UpdateSession};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::invited::news;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::{print, says};

/// A command on its way, and what it was.
type Sending = Pin<Box<dyn Future<Output = (Action, Result<()>)>>>;

/// Shows the session until the person leaves. The session continues.
pub(crate) async fn show(context: &Context, mut live: Live) -> Result<()> {
    if until_left(context, &mut live).await? == Left::Ended {
        return Ok(());
    }
    let reference = &live.session.reference;
    print::note(match live.view.state().map(|state| &state.phase) {
        Some(Phase::Ended) => format!("Session {reference} has ended. `ensemble log {reference}` prints it."),
        _ => format!(
            "Session {reference} continues. `ensemble attach {reference}` shows it again, `ensemble stop {reference}` ends it."
        ),
    });
    Ok(())
}

/// Why the session is not shown any more.
#[derive(PartialEq, Eq)]
pub(crate) enum Left {
    ByPerson,
    /// The program is to end.
    Ended,
}

/// Shows the session until the person leaves, and gives the terminal back.
pub(crate) async fn until_left(context: &Context, live: &mut Live) -> Result<Left> {
    let unusable = |error: std::io::Error| Failure::message(format!("The terminal cannot be used: {error}."));
    let (mut terminate, mut hang_up) =
        (signal(SignalKind::terminate()).map_err(unusable)?, signal(SignalKind::hangup()).map_err(unusable)?);
    let after = live.load().await?;
    live.learn_names().await;
    live.name(live.session.owner_id).await;
    let mut screen = Screen::new(Look::of(|name| std::env::var_os(name)?.into_string().ok()));
    let mut draft = Draft::open(&context.home, live.session.id);
    screen.write(draft.text());
    let home = print::home();
    let mut terminal = Terminal::open().map_err(unusable)?;
    let rings = !context.home.settings()?.is_quiet;
    let mut keys = EventStream::new();
    let client = live.me.client.clone();
    let invites = Arc::<Notify>::default();
    let _devices = live.follow_devices(Arc::clone(&invites));
    let mut key_hints = KeyHints::new(client.clone(), live.session.id);
    let mut watch = Watch::new(client, live.session.id, after);
    let (mut is_connected, mut seen) = (true, Instant::now());
    let sender = live.sender();
    let mut sending: FuturesUnordered<Sending> = FuturesUnordered::new();
    let mut cannot_write = None;
    let me = Me { user: live.me.id, key: live.me.key.public_key() };
    let account = live.me.clone();
    let mut invited = pin!(news(context, &account, &invites));
    let left = loop {
        let level = Level::of(me.user, &live.session, &live.view);
        let connection =
            Connection::of(&live.session, is_connected, live.problem().is_some(), live.me.client.is_held_back());
        if std::mem::replace(&mut cannot_write, live.session.cannot_write.clone()) != live.session.cannot_write
            && let Some(why) = says::cannot_write(&live.session)
        {
            screen.notice(&why);
        }
        // The first prompt gives it one.
        let title = live.title();
        let name = |user| live.known_name(user);
        let (owner, now) = (live.session.owner_id, Instant::now());
        let about = About { title: &title, connection, level, me: &me, owner, name: &name, home: &home, now };
        draft.follow(screen.written(), !sending.is_empty());
        let keep = draft.due();
        terminal.draw(|frame| screen.draw(frame, &live.view, &about)).map_err(unusable)?;
        terminal.call(&screen.call(&live.view, &about), rings).map_err(unusable)?;
        let (due, stale) = (screen.due_at(), screen.stale_at());
        tokio::select! {
            // A key that waits is there before a digit counts: the two may be a text.
            biased;
            key = keys.next() => {
                let Some(event) = key else { break Left::ByPerson };
                let about = About { now: Instant::now(), ..about };
                match screen.event(event.map_err(unusable)?, &live.view, &about) {
                    Some(Action::Leave) => break Left::ByPerson,
                    Some(action) => sending.push(Box::pin(carry_out(sender.clone(), action, live.directory()))),
                    None => {}
                }
                if screen.wants_older() && let Err(error) = live.load_older().await {
                    screen.notice(&Failure::from(error).to_string());
                }
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {
                let about = About { now: Instant::now(), ..about };
                if let Some(action) = screen.due(&live.view, &about) {
                    sending.push(Box::pin(carry_out(sender.clone(), action, live.directory())));
                }
            }
            () = tokio::time::sleep_until(stale.unwrap_or_else(Instant::now).into()), if stale.is_some() => {}
            () = tokio::time::sleep_until(keep.unwrap_or_else(Instant::now).into()), if keep.is_some() => draft.keep(),
            watched = watch.next() => match watched? {
                Watched::Connected => match live.renew().await {
                    Err(ensemble_account::Error::Client(error)) if error.is_passing() => watch.lost(),
                    refreshed => {
                        refreshed?;
                        (is_connected, seen) = (true, Instant::now());
                        has_seen(live).await;
                    }
                },
                Watched::Away => is_connected = false,
                Watched::Event(event) => {
                    // What the machine says shows that it is there.
                    let (seq, is_of_machine) = match &event {
                        SessionEvent::Message(message) => (Some(message.seq), message.sender_machine_id.is_some()),
                        SessionEvent::Live(_) => (None, true),
                        SessionEvent::Changed(_) => (None, false),
                    };
                    match live.event(event).await {
                        // Its signer could not be found. It comes again.
                        Err(ensemble_account::Error::Client(error)) if error.is_passing() => {
                            is_connected = false;
                            watch.lost();
                            continue;
                        }
                        taken => drop(taken?),
                    }
                    if let Some(seq) = seq {
                        watch.taken(seq);
                    }
                    if is_of_machine {
                        live.session.online = true;
                        seen = Instant::now();
                    }
                    live.learn_names().await;
                    follow_phase(live).await;
                    has_seen(live).await;
                }
            },
            () = key_hints.next(live.is_waiting()) => {
                if let Err(error) = live.renew().await {
                    screen.notice(&format!("What waits for its key could not be read: {}", says::error(&error)));
                }
                live.learn_names().await;
            }
            // A machine that was silent for a minute is offline for the server, which sends no event for it.
            () = tokio::time::sleep_until((seen + SILENT).into()), if is_connected && live.session.online => {
                if let Err(error) = live.refresh().await {
                    screen.notice(&format!("Whether the machine is there is not known: {}", says::error(&error)));
                }
                seen = Instant::now();
            }
            Some(text) = invited.next() => screen.notice(&text),
            Some((action, sent)) = sending.next() => {
                if let Err(failure) = sent {
                    screen.not_sent(action, &failure.to_string());
                }
            }
            _ = terminate.recv() => break Left::Ended,
            _ = hang_up.recv() => break Left::Ended,
        }
    };
    draft.follow(screen.written(), !sending.is_empty());
    draft.keep();
    Ok(left)
}

/// Lists show a session as the machine says it is: only its owner can write that down.
async fn follow_phase(live: &mut Live) {
    let has_ended = live.view.state().map(|state| state.phase == Phase::Ended);
    let wanted = match (has_ended, live.session.status) {
        (Some(true), SessionStatus::Active) => SessionStatus::Ended,
        (Some(false), SessionStatus::Ended) => SessionStatus::Active,
        _ => return,
    };
    if live.session.access_level != AccessLevel::Owner {
        return;
    }
    let update = UpdateSession { status: Some(wanted), ..UpdateSession::default() };
    if let Ok(session) = live.me.client.update_session(live.session.id, &update).await {
        live.session.status = session.status;
    }
}

/// The owner looks at it, so its end or failure needs no more attention.
async fn has_seen(live: &mut Live) {
    let is_over = matches!(live.session.attention.kind, AttentionKind::Finished | AttentionKind::Failed);
    if live.session.access_level != AccessLevel::Owner || !is_over {
        return;
    }
    let attention = Some(SetAttention { kind: AttentionKind::None, open: 0, id: None });
    let expected_version = Some(live.session.attention_version);
    let update = UpdateSession { attention, expected_version, ..UpdateSession::default() };
    // Something newer may want attention by now: then it stays.
    if let Ok(session) = live.me.client.update_session(live.session.id, &update).await {
        (live.session.attention, live.session.attention_version) = (session.attention, session.attention_version);
    }
}

/// Signs and sends what the person wants. `directory`: where the agent works, as the person sees it.
async fn carry_out(sender: Sender, action: Action, directory: Option<String>) -> (Action, Result<()>) {
    let sent = match action.clone().content(directory) {
        Some(content) => sender.send(content).await.map(drop).map_err(Failure::from),
        None => Ok(()),
    };
    (action, sent)
}
