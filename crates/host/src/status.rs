//! Tells the server that the session has a host, whether its agent works, and what it wants from people.

use std::sync::Arc;
use std::time::Duration;

use ensemble_client::Error;
use ensemble_protocol::seal::seal_agent_state;
use ensemble_protocol::transcript::bounds::beginning;
use ensemble_types::attention::{AttentionKind, SetAttention};
use ensemble_types::ids::SessionId;
use ensemble_types::problem::Code;
use ensemble_types::sessions::{AgentState, Session, SessionHeartbeat, UpdateSession};
use ensemble_types::text::Blob;
use rand::RngCore;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::core::Wants;
use super::keys::Keys;
use super::{Host, Pause};

/// A session counts as online for 60 s after a beat.
const BEAT: Duration = Duration::from_secs(20);

/// A beat does not wait longer for what its answer shows to be looked at.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(5);

/// Longer than a host runs. A session that has ended is reported once.
const NEVER: Duration = Duration::from_secs(365 * 86_400);

/// Commands that are named, and the bytes of each.
const MOST_NAMED: usize = 16;
const LONGEST_NAME: usize = 200;

/// What is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) wants: Wants,
    pub(crate) works: bool,
    /// Nothing is expected of the session any more.
    pub(crate) has_ended: bool,
    /// The commands that have outlived their turn.
    pub(crate) still_running: Arc<[String]>,
    /// The session's log can be written.
    pub(crate) has_written: bool,
}

/// Reports it until another process hosts the session, which ends the future. `early` asks for a beat before its time.
pub(crate) async fn run(
    host: Arc<Host>,
    keys: Keys,
    session: SessionId,
    mut status: watch::Receiver<Status>,
    early: Arc<Notify>,
) {
    let (mut pause, mut cannot_write) = (Pause::new(&host), keys.cannot_write());
    // What a host before this one has said stays until there is something else, but for requests: those are closed.
    let known = host.client.session(session).await;
    if let Ok(known) = &known {
        look_at(&keys, known).await;
    }
    // Commands that it has named have ended with it.
    let mut shown = matches!(&known, Ok(known) if known.agent_state.is_none()).then(Arc::default);
    // The version that is replaced, which is signed with the state. A person with a right to it may have written one.
    let mut version = known.as_ref().ok().map(|known| known.agent_state_version);
    let mut reported = match &known {
        Ok(known) if asks(known.attention.kind) => Wants { kind: known.attention.kind, open: 0, count: 0 },
        _ => Wants::default(),
    };
    loop {
        let now = status.borrow_and_update().clone();
        let attention = (!now.wants.is_as(&reported)).then(|| attention(now.wants)).flatten();
        // What the host has said of a log that it cannot write stays until it can.
        let is_shown = !now.has_written || shown.as_ref() == Some(&now.still_running);
        let agent_state = match (is_shown, version) {
            (false, Some(version)) => agent_state(&host, &keys, (session, version), &still_running(&now)).await,
            _ => None,
        };
        // Without a key now it is said with the next beat.
        let is_said = is_shown || agent_state.is_some();
        let expected = version.filter(|_| agent_state.is_some());
        let heartbeat =
            SessionHeartbeat { cannot_write: *cannot_write.borrow_and_update(), ..beat(&host, Some(now.works)) };
        let update = UpdateSession {
            heartbeat: Some(heartbeat),
            attention,
            agent_state,
            expected_agent_state_version: expected,
            ..UpdateSession::default()
        };
        let wait = match host.client.update_session(session, &update).await {
            Ok(changed) => {
                let was_unknown = version.replace(changed.agent_state_version).is_none();
                look_at(&keys, &changed).await;
                host.name.keep().await;
                reported = now.wants;
                if now.has_written && is_said {
                    shown = Some(now.still_running);
                }
                pause.reset();
                match was_unknown && !is_said {
                    true => Duration::ZERO,
                    false if now.has_ended => NEVER,
                    false => BEAT,
                }
            }
            Err(error) if error.is(Code::LeaseLost) => {
                tracing::error!(session.id = %session, "Another process hosts this session, so its agent is ended here. Was this machine copied?");
                return;
            }
            // It was deleted, and the reader of its messages ends it.
            Err(error) if error.is_not_found() => NEVER,
            // A person has written a state. The next beat says which version it has.
            Err(error) if error.is(Code::VersionMismatch) => {
                version = None;
                pause.next()
            }
            Err(error) => {
                pause.note(session, "The server does not know what the session does", &error);
                pause.next()
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = early.notified() => {}
            // These keys hold its sender, so the loop continues.
            _ = cannot_write.changed() => {}
            changed = status.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

async fn look_at(keys: &Keys, shown: &Session) {
    match tokio::time::timeout(LOOKED_AT_WITHIN, keys.look_at(shown)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(session.id = %shown.id, "Metadata is not looked at: {error}"),
        Err(_) => tracing::debug!(session.id = %shown.id, "Metadata is not looked at in time"),
    }
}

/// Says that this process hosts a session, so that no other one does from now on.
///
/// # Errors
/// [`Code::LeaseLost`]: another one does.
pub(crate) async fn claim(host: &Host, session: SessionId) -> Result<(), Error> {
    let claim = async |previous| {
        let heartbeat = SessionHeartbeat { previous_host_id: previous, ..beat(host, None) };
        let update = UpdateSession { heartbeat: Some(heartbeat), ..UpdateSession::default() };
        host.client.update_session(session, &update).await.map(drop)
    };
    let mut claimed = claim(host.name.previous).await;
    // A server whose data was restored knows an earlier process of this folder.
    for earlier in &host.name.earlier {
        match &claimed {
            Err(error) if error.is(Code::LeaseLost) => claimed = claim(Some(*earlier)).await,
            _ => break,
        }
    }
    claimed?;
    host.name.keep().await;
    Ok(())
}

fn beat(host: &Host, thinking: Option<bool>) -> SessionHeartbeat {
    SessionHeartbeat {
        thinking,
        host_id: Some(host.name.id),
        previous_host_id: host.name.previous,
        ..SessionHeartbeat::default()
    }
}

/// Shows the people of a session that its log cannot be written. Without it no agent works. `fails`: a turn ends by that. The next process
/// or session that can write it takes it back.
pub(crate) async fn unwritten(host: &Host, keys: &Keys, session: SessionId, (problem, fails): (&str, bool)) {
    tracing::error!(session.id = %session, "The log of a session cannot be written, so no agent works in it: {problem}");
    let state = json!({"stillRunning": [], "problem": format!("its disk cannot be written: {problem}")});
    let failed = Wants { kind: AttentionKind::Failed, ..Wants::default() };
    let said = async {
        let version = host.client.session(session).await?.agent_state_version;
        let agent_state = agent_state(host, keys, (session, version), &state).await;
        let update = UpdateSession {
            heartbeat: Some(beat(host, Some(false))),
            attention: fails.then(|| attention(failed)).flatten(),
            expected_agent_state_version: agent_state.as_ref().map(|_| version),
            agent_state,
            ..UpdateSession::default()
        };
        host.client.update_session(session, &update).await
    };
    match tokio::time::timeout(BEAT, said).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(session.id = %session, "Its people do not know of it: {error}"),
        Err(_) => tracing::warn!(session.id = %session, "Its people do not know of it: the server does not answer"),
    }
}

fn still_running(status: &Status) -> Value {
    let named = status.still_running.iter().take(MOST_NAMED).map(|command| beginning(command, LONGEST_NAME).0);
    json!({"stillRunning": named.collect::<Vec<_>>()})
}

/// What the owner's programs show of the session without reading its messages. `None`: it has no key to say it under.
async fn agent_state(
    host: &Host,
    keys: &Keys,
    (session, replaced): (SessionId, i64),
    state: &Value,
) -> Option<AgentState> {
    let (ring, version) = (keys.writing_ring().await.ok()?, replaced.checked_add(1)?);
    AgentState::new(seal_agent_state(&ring, (session, version), state.to_string(), &host.key).ok()?).ok()
}

fn attention(wants: Wants) -> Option<SetAttention> {
    let mut random = [0; 8];
    rand::rngs::OsRng.fill_bytes(&mut random);
    let id = match wants.kind {
        AttentionKind::None => None,
        _ => Some(Blob::new(ensemble_client::devices::encode(&random)).ok()?),
    };
    Some(SetAttention { kind: wants.kind, open: if asks(wants.kind) { wants.open } else { 0 }, id })
}

fn asks(kind: AttentionKind) -> bool {
    matches!(kind, AttentionKind::Permission | AttentionKind::Question)
}
