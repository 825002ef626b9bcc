//! Public links: made and removed under the session's lock; viewings counted by one conditional UPDATE.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::links::{CreateLink, PublicSession};
use ensemble_types::sessions::SessionStatus;
use ensemble_types::time::Timestamp;

use super::history::{self, Audience, Head};
use super::schema::{links, session_contents, sessions, viewings};
use super::{Store, lock};
use crate::domain::access::Refusal;
use crate::domain::history::Window;
use crate::domain::link::{LinkTerms, LinkToken, TokenHash, VIEWING, ViewKey};
use crate::error::Error;

/// A link that was made; the only time that its token is known here.
pub(crate) struct LinkMade {
    pub(crate) token: LinkToken,
    pub(crate) terms: LinkTerms,
    pub(crate) created_at: Timestamp,
    /// There was none before.
    pub(crate) is_new: bool,
}

/// Who reads through a link.
#[derive(Clone)]
pub(crate) struct PublicReader {
    pub(crate) link: TokenHash,
    /// What an earlier answer gave.
    pub(crate) view_token: Option<String>,
    /// Names a viewing, so that a repeated request is the same one.
    pub(crate) key: Option<String>,
}

/// What a viewer gets.
pub(crate) struct PublicViewing {
    pub(crate) json: Vec<u8>,
}

/// A link that is alive.
#[derive(Clone, Queryable, Selectable)]
#[diesel(table_name = links)]
struct Row {
    session_id: SessionId,
    view_key: Vec<u8>,
    expires_at: Option<Timestamp>,
    max_uses: Option<i64>,
    uses: i64,
    encrypted_key: Option<String>,
}

impl Store {
    /// Makes the session's link, or makes it anew: the old token and its view tokens are dead then.
    pub(crate) async fn make_link(
        &self,
        session: SessionId,
        caller: UserId,
        asked: CreateLink,
    ) -> Result<LinkMade, Error> {
        self.db
            .write("make a link", move |tx| {
                lock::session(tx, session, caller)?.1.own()?;
                let created_at = tx.now()?;
                let terms = LinkTerms::new(asked.clone(), created_at)?;
                let removed = remove(tx, session)?;
                let token = LinkToken::generate();
                let row = (
                    links::session_id.eq(session.db()),
                    links::token_hash.eq(token.hash().0.to_vec()),
                    links::view_key.eq(ViewKey::generate().0.to_vec()),
                    links::expires_at.eq(terms.expires_at.db()),
                    links::max_uses.eq(terms.max_uses),
                    links::uses.eq(0),
                    links::encrypted_key.eq(terms.encrypted_key.as_deref()),
                    links::created_at.eq(created_at.db()),
                );
                on!(tx, |c| diesel::insert_into(links::table).values(row).execute(c))?;
                lock::touch(tx, session, false)?;
                Ok(LinkMade { token, terms, created_at, is_new: removed == 0 })
            })
            .await
    }

    pub(crate) async fn remove_link(&self, session: SessionId, caller: UserId) -> Result<(), Error> {
        self.db
            .write("remove a link", move |tx| {
                lock::session(tx, session, caller)?.1.own()?;
                if remove(tx, session)? > 0 {
                    lock::touch(tx, session, false)?;
                }
                Ok(())
            })
            .await
    }

    /// A page for a viewer: one use, unless a view token or the key of a recent viewing says that it is the same viewing.
    pub(crate) async fn view_link(&self, reader: PublicReader, window: Window) -> Result<PublicViewing, Error> {
        let (again, first) = (reader.clone(), reader);
        // Going on needs no write; and most of those who come too late are turned away without one.
        let going_on = self.db.read("go on viewing a link", move |c| go_on(c, &again, window)).await?;
        match going_on {
            Some(viewing) => Ok(viewing),
            None => self.db.write("view a link", move |tx| begin(tx, &first, window)).await,
        }
    }

    /// Whether a viewing could begin, or go on; counts nothing.
    pub(crate) async fn probe_link(&self, reader: PublicReader) -> Result<(), Error> {
        self.db
            .read("look whether a link works", move |c| {
                let (row, at) = alive(c, reader.link)?;
                let knows = row.knows(reader.view_token.as_deref(), at);
                if knows || !row.used_up() { Ok(()) } else { Err(Error::LinkNotFound) }
            })
            .await
    }

    /// The session behind a link, for a viewer with a view token, and until when that is good.
    pub(crate) async fn viewed_session(
        &self,
        link: TokenHash,
        view_token: String,
    ) -> Result<(SessionId, Timestamp), Error> {
        self.db.read("open a public stream", move |c| still_viewing(c, link, &view_token)).await
    }
}

impl Row {
    fn key(&self) -> Option<ViewKey> {
        self.view_key.as_slice().try_into().ok().map(ViewKey)
    }

    fn knows(&self, view_token: Option<&str>, at: Timestamp) -> bool {
        self.key().zip(view_token).is_some_and(|(key, token)| key.verify(token, at).is_some())
    }

    fn used_up(&self) -> bool {
        self.max_uses.is_some_and(|most| self.uses >= most)
    }
}

/// The link, if its time has not come.
fn alive(c: &mut Conn, link: TokenHash) -> Result<(Row, Timestamp), Error> {
    let found: Option<(Row, Timestamp)> = on!(c, |c| links::table
        .inner_join(sessions::table.on(sessions::id.eq(links::session_id)))
        .filter(links::token_hash.eq(link.0.as_slice()).and(sessions::deleted_at.is_null()))
        .select((Row::as_select(), now()))
        .first(c)
        .optional())?;
    let (row, at) = found.ok_or(Error::LinkNotFound)?;
    if row.expires_at.is_some_and(|end| end <= at) { Err(Error::LinkNotFound) } else { Ok((row, at)) }
}

/// The session behind a link, if this view token is good for it now; and when it ends.
pub(super) fn still_viewing(c: &mut Conn, link: TokenHash, view_token: &str) -> Result<(SessionId, Timestamp), Error> {
    let (row, at) = alive(c, link)?;
    let until = row.key().and_then(|key| key.verify(view_token, at)).ok_or(Error::LinkNotFound)?;
    Ok((row.session_id, row.expires_at.map_or(until, |end| end.min(until))))
}

/// A viewing that has begun before; nothing when it is for [`begin`] to decide.
fn go_on(c: &mut Conn, reader: &PublicReader, window: Window) -> Result<Option<PublicViewing>, Error> {
    let (row, at) = alive(c, reader.link)?;
    let token = reader.view_token.as_deref().filter(|token| row.knows(Some(token), at));
    let Some(token) = token else {
        let may_begin = !row.used_up() || is_named(c, row.session_id, reader)?;
        return if may_begin { Ok(None) } else { Err(Error::LinkNotFound) };
    };
    let mut json = String::new();
    let head = page(c, &mut json, row.session_id, window)?;
    // Read after the page: what was appended when the link was dead already is not given out.
    let (row, at) = alive(c, reader.link)?;
    if !row.knows(Some(token), at) {
        return Err(Error::LinkNotFound);
    }
    Ok(Some(finish(c, json, &row, window, &head, token)?))
}

/// A new viewing, or one that this key began.
fn begin(tx: &mut Conn, reader: &PublicReader, window: Window) -> Result<PublicViewing, Error> {
    let (row, at) = alive(tx, reader.link)?;
    let began = match &reader.key {
        Some(key) => named(tx, row.session_id, reader.link, key, at)?,
        None => None,
    };
    let row = match began {
        // The viewing that this repeats may have been counted, or the link removed, while this waited for it.
        Some(_) => alive(tx, reader.link)?.0,
        None => count_use(tx, reader.link, row)?,
    };
    let key = row.key().ok_or_else(|| StoreError::bad_row(tx.operation(), "a view key of the wrong length"))?;
    let token = key.sign(began.unwrap_or(at));
    let mut json = String::new();
    let head = page(tx, &mut json, row.session_id, window)?;
    finish(tx, json, &row, window, &head, &token)
}

/// Whether this reader's key has begun a viewing, recent or not.
fn is_named(c: &mut Conn, session: SessionId, reader: &PublicReader) -> Result<bool, StoreError> {
    let Some(key) = &reader.key else { return Ok(false) };
    let there = viewings::table.find((session.db(), reader.link.0.to_vec(), key));
    let began: Option<Timestamp> = on!(c, |c| there.clone().select(viewings::viewed_at).first(c).optional())?;
    Ok(began.is_some())
}

/// When the viewing of this name began, if it is a recent one; else it begins now.
fn named(
    tx: &mut Conn,
    session: SessionId,
    link: TokenHash,
    key: &str,
    at: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let row = (
        viewings::session_id.eq(session.db()),
        viewings::token_hash.eq(link.0.to_vec()),
        viewings::key.eq(key),
        viewings::viewed_at.eq(at.db()),
    );
    // Of two that come at once with one key, the second waits here for the first.
    let inserted = on!(tx, |c| diesel::insert_into(viewings::table).values(row).on_conflict_do_nothing().execute(c))?;
    if inserted == 1 {
        return Ok(None);
    }
    let there = viewings::table.find((session.db(), link.0.to_vec(), key));
    let began: Timestamp = on!(tx, |c| there.clone().select(viewings::viewed_at).first(c))?;
    if at.since(began) < VIEWING {
        return Ok(Some(began));
    }
    on!(tx, |c| cached(diesel::update(there.clone()).set(viewings::viewed_at.eq(at.db()))).execute(c))?;
    Ok(None)
}

/// One use, if one is left. The row is locked until the commit, so the count is exact and a removal waits.
fn count_use(tx: &mut Conn, link: TokenHash, before: Row) -> Result<Row, Error> {
    let counted: Option<i64> = on!(tx, |c| cached(
        diesel::update(links::table)
            .filter(links::token_hash.eq(link.0.as_slice()))
            .filter(links::expires_at.is_null().or(links::expires_at.gt(now().nullable())))
            .filter(links::max_uses.is_null().or(links::max_uses.gt(links::uses.nullable())))
            .set(links::uses.eq(links::uses + 1))
            .returning(links::uses)
    )
    .get_result(c)
    .optional())?;
    Ok(Row { uses: counted.ok_or(Error::LinkNotFound)?, ..before })
}

/// Begins the answer with the messages. A session that is gone is a link that is gone.
fn page(c: &mut Conn, json: &mut String, session: SessionId, window: Window) -> Result<Head, Error> {
    match history::write_messages(c, json, session, None, window, Audience::Public) {
        Err(Error::Refused(Refusal::NotFound)) => Err(Error::LinkNotFound),
        head => head,
    }
}

fn finish(
    c: &mut Conn,
    mut json: String,
    row: &Row,
    window: Window,
    head: &Head,
    view_token: &str,
) -> Result<PublicViewing, Error> {
    let session = public_session(c, row.session_id)?;
    history::write_ends(&mut json, window, head);
    let rest = serde_json::json!({
        "session": session,
        "accessLevel": "view",
        "encryptedKey": row.encrypted_key,
        "expiresAt": row.expires_at,
        "remainingUses": row.max_uses.map(|most| (most - row.uses).max(0)),
        "viewToken": view_token,
    });
    json.push(',');
    json.push_str(rest.to_string().trim_start_matches('{'));
    Ok(PublicViewing { json: json.into_bytes() })
}

/// A session as the public may see it.
pub(super) fn public_session(c: &mut Conn, id: SessionId) -> Result<PublicSession, Error> {
    type Found = (String, i64, Option<Timestamp>, i64, Timestamp, Timestamp);
    let found: Option<Found> = on!(c, |c| sessions::table
        .inner_join(session_contents::table.on(session_contents::session_id.eq(sessions::id)))
        .filter(sessions::id.eq(id.db()).and(sessions::deleted_at.is_null()))
        .select((
            session_contents::metadata,
            sessions::metadata_version,
            sessions::ended_at,
            sessions::last_seq,
            sessions::created_at,
            sessions::updated_at
        ))
        .first(c)
        .optional())?;
    let (metadata, metadata_version, ended_at, last_seq, created_at, updated_at) = found.ok_or(Error::LinkNotFound)?;
    let status = if ended_at.is_some() { SessionStatus::Ended } else { SessionStatus::Active };
    Ok(PublicSession { id, metadata, metadata_version, status, last_seq, created_at, updated_at })
}

fn remove(tx: &mut Conn, session: SessionId) -> Result<usize, StoreError> {
    on!(tx, |c| diesel::delete(viewings::table.filter(viewings::session_id.eq(session.db()))).execute(c))?;
    on!(tx, |c| diesel::delete(links::table.find(session.db())).execute(c))
}
