//! A user's voice sessions, and what was said in one. Only the user reads them, with their own token.

use std::time::{Duration, Instant};

use ensemble_store_kit::{Conn, Subscription, cursor, rest_after};
use ensemble_types::ids::{GatewaySessionId, UserId};
use ensemble_types::time::Timestamp;
use ensemble_types::voice::VoiceStatus;
use ensemble_types::voice_history::{VoiceSessionPage, VoiceToolCall, VoiceTranscript, VoiceUtterance};

use super::sessions::status;
use crate::VoiceGateway;
use crate::domain::history::{LastError, MOST_UTTERANCES, Utterance};
use crate::domain::session::VoiceSession;
use crate::error::Error;
use crate::store::chores::{self, Chore};
use crate::store::{StoredSession, sessions, tool_calls, topic, utterances};

/// The name of the list in its cursors.
const LIST: &str = "voice sessions";
/// Tool calls of one answer.
const MOST_CALLS: i64 = 100;
/// Sessions whose transcripts are deleted in one transaction.
const BATCH: i64 = 10;

/// Rows of one read of a stream.
const PIECE: i64 = 50;

/// How far a reader of a stream has come, by the numbers of utterances and tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) utterance: i64,
    pub(crate) tool_call: i64,
}

/// What a reader does not know yet, and the present status.
pub(crate) struct News {
    pub(crate) status: VoiceStatus,
    pub(crate) is_over: bool,
    pub(crate) utterances: Vec<VoiceUtterance>,
    pub(crate) tool_calls: Vec<VoiceToolCall>,
    /// There is more to read.
    pub(crate) more: bool,
}

impl VoiceGateway {
    /// Tells each change of a session.
    pub(crate) fn changes_of(&self, id: GatewaySessionId) -> Subscription {
        self.db.notifier().subscribe(topic(id))
    }

    /// What has happened in a session of this user since a reader last read.
    pub(crate) async fn news(&self, user: UserId, id: GatewaySessionId, read: Read) -> Result<News, Error> {
        let keep = self.timing.keep_transcript;
        let (stored, now, said, calls) = self
            .db
            .read("read a voice session's news", move |c| {
                let (stored, now) = own(c, user, id)?;
                let is_gone = deleted_at(&stored.session, keep).is_some_and(|at| at <= now);
                let said = if is_gone { Vec::new() } else { utterances::after(c, id, read.utterance, PIECE)? };
                let calls = tool_calls::after(c, id, read.tool_call, PIECE)?;
                Ok::<_, Error>((stored, now, said, calls))
            })
            .await?;
        let live = stored.session.state.live().is_some() && self.is_fresh(&stored.session, now);
        let is_full = |rows: usize| i64::try_from(rows).is_ok_and(|rows| rows >= PIECE);
        Ok(News {
            status: status(&stored.session, u64::try_from(stored.queued).unwrap_or(0), now, live, true),
            is_over: stored.session.is_over(),
            more: is_full(said.len()) || is_full(calls.len()),
            utterances: said,
            tool_calls: calls,
        })
    }

    /// A page of the user's sessions, newest first.
    pub(crate) async fn list_sessions(
        &self,
        user: UserId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<VoiceSessionPage, Error> {
        let after: Option<(i64, GatewaySessionId)> = after.map(|text| cursor::decode(LIST, text)).transpose()?;
        let after = after.map(|(at, id)| (Timestamp::from_micros(at), id));
        let (found, now) = self
            .db
            .read("list voice sessions", move |c| {
                let found = sessions::of_user(c, &user.to_string(), after, i64::from(limit) + 1)?;
                Ok::<_, Error>((found, c.now()?))
            })
            .await?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let last = found.get(limit.saturating_sub(1)).filter(|_| found.len() > limit);
        let next_cursor =
            last.map(|stored| cursor::encode(LIST, &(stored.session.created_at.micros(), stored.session.id)));
        let entry = |stored: &StoredSession| {
            let live = stored.session.state.live().is_some() && self.is_fresh(&stored.session, now);
            status(&stored.session, u64::try_from(stored.queued).unwrap_or(0), now, live, true)
        };
        Ok(VoiceSessionPage { sessions: found.iter().take(limit).map(entry).collect(), next_cursor })
    }

    /// What was said after the utterance `after`.
    pub(crate) async fn transcript(
        &self,
        user: UserId,
        id: GatewaySessionId,
        after: i64,
        limit: u32,
    ) -> Result<VoiceTranscript, Error> {
        let keep = self.timing.keep_transcript;
        self.db
            .read("read a transcript", move |c| {
                let (stored, now) = own(c, user, id)?;
                let deleted_at = deleted_at(&stored.session, keep);
                if deleted_at.is_some_and(|at| at <= now) {
                    return Err(Error::TranscriptGone);
                }
                let limit_rows = i64::from(limit) + 1;
                let mut said = utterances::after(c, id, after, limit_rows)?;
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let more = said.len() > limit;
                said.truncate(limit);
                let tool_calls = tool_calls::newest(c, id, MOST_CALLS)?;
                Ok(VoiceTranscript { utterances: said, more, tool_calls, deleted_at })
            })
            .await
    }

    /// Keeps an utterance that the agent reports, unless the session is over or it was reported before.
    pub(super) async fn record_utterance(&self, id: GatewaySessionId, said: Utterance) -> Result<(), Error> {
        self.change("record an utterance", id, move |tx, stored, now| {
            let known = said.id.as_deref().map(|agent_id| utterances::is_known(tx, id, agent_id)).transpose()?;
            if stored.session.is_over() || known == Some(true) {
                return Ok(());
            }
            stored.session.utterances += 1;
            let seq = stored.session.utterances;
            utterances::insert(tx, id, seq, &said, now)?;
            if seq > MOST_UTTERANCES {
                utterances::delete_until(tx, id, seq - MOST_UTTERANCES)?;
            }
            Ok(())
        })
        .await
        .map(drop)
    }

    pub(super) async fn record_agent_error(
        &self,
        id: GatewaySessionId,
        code: String,
        message: Option<String>,
    ) -> Result<(), Error> {
        self.change("record an agent's error", id, move |_, stored, now| {
            if !stored.session.is_over() {
                stored.session.last_error = Some(LastError::new(code.clone(), message.clone(), now));
            }
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Deletes the transcripts whose time is over, if no other replica has lately.
    pub(super) async fn delete_transcripts(&self) -> Result<(), Error> {
        let keep = self.timing.keep_transcript;
        let every = keep.min(Duration::from_secs(60));
        let claimed: Result<bool, Error> = self
            .db
            .write("claim the deletion of transcripts", move |tx| Ok(chores::claim(tx, Chore::Transcripts, every)?))
            .await;
        if claimed? {
            let delete = move || {
                self.db.write("delete transcripts", move |tx| {
                    let before = tx.now()?.minus(keep);
                    Ok::<_, Error>(utterances::purge(tx, before, BATCH)?)
                })
            };
            loop {
                let begun = Instant::now();
                let deleted = delete().await?;
                if deleted == 0 {
                    break;
                }
                self.retention.count_removed("utterances", deleted);
                tokio::time::sleep(rest_after(begun.elapsed())).await;
            }
        }
        Ok(())
    }
}

/// A session of this user, and the database's time.
fn own(c: &mut Conn, user: UserId, id: GatewaySessionId) -> Result<(StoredSession, Timestamp), Error> {
    let found = sessions::read(c, id)?.filter(|(stored, _)| stored.session.user_id == user.to_string());
    found.ok_or(Error::Unknown("found"))
}

/// When the transcript of a session is deleted.
fn deleted_at(session: &VoiceSession, keep: Duration) -> Option<Timestamp> {
    session.ended_at().map(|at| at.plus(keep))
}
