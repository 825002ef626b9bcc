//! Public links: create, remove, view. The session's lock orders links and their removal; a viewing is counted by one
//! conditional UPDATE.

use ensemble_store_kit::Conn;
use ensemble_types::ids::SessionId;
use ensemble_types::links::{CreateLink, LinkState, PublicMessage, PublicView};
use ensemble_types::messages::Message;
use ensemble_types::time::Timestamp;

use super::{lock_session, messages, publish_change, read_session};
use crate::SessionStore;
use crate::domain::access::Actor;
use crate::domain::history::{PageBounds, Window};
use crate::domain::public_link::{LinkTerms, LinkToken, PublicLink, TokenHash, VIEWING};
use crate::error::Error;
use crate::store;

/// A new link. Its token is known only here.
pub(crate) struct CreatedLink {
    pub(crate) token: LinkToken,
    pub(crate) terms: LinkTerms,
    pub(crate) created_at: Timestamp,
    /// The session had no link before.
    pub(crate) is_new: bool,
}

/// What a reader with a link sent.
#[derive(Clone)]
pub(crate) struct PublicReader {
    pub(crate) link: TokenHash,
    /// The view token of an earlier response.
    pub(crate) view_token: Option<String>,
    /// The `Idempotency-Key`: a repeated request with it is the same viewing.
    pub(crate) key: Option<String>,
}

/// Creates the session's link. An existing link is replaced, and its token and view tokens stop working.
pub(crate) async fn create(
    service: &SessionStore,
    id: SessionId,
    caller: Actor,
    request: CreateLink,
) -> Result<CreatedLink, Error> {
    service
        .db
        .write("create a link", move |tx| {
            let (session, access) = lock_session(tx, id, &caller)?;
            let can_own = access.own()?;
            let created_at = tx.now()?;
            let terms = LinkTerms::new(request.clone(), created_at)?;
            let is_new = !store::public_links::remove(can_own, tx, id)?;
            let token = LinkToken::generate();
            store::public_links::insert(can_own, tx, id, token.hash(), &terms, created_at, session.key_epoch)?;
            publish_change(tx, id)?;
            Ok(CreatedLink { token, terms, created_at, is_new })
        })
        .await
}

/// How the session's link stands.
pub(crate) async fn state(service: &SessionStore, id: SessionId, caller: Actor) -> Result<LinkState, Error> {
    service
        .db
        .read("read a link", move |c| {
            let (_, access) = read_session(c, id, &caller)?;
            store::public_links::state(access.administer()?, c, id)?.ok_or(Error::NoLink)
        })
        .await
}

pub(crate) async fn remove(service: &SessionStore, id: SessionId, caller: Actor) -> Result<(), Error> {
    service
        .db
        .write("remove a link", move |tx| {
            let (_, access) = lock_session(tx, id, &caller)?;
            if store::public_links::remove(access.own()?, tx, id)? {
                publish_change(tx, id)?;
            }
            Ok(())
        })
        .await
}

/// A page for a reader with a link. It costs one use, unless the view token or the idempotency key belongs to a viewing that
/// has begun before.
pub(crate) async fn view(service: &SessionStore, reader: PublicReader, window: Window) -> Result<PublicView, Error> {
    let request = reader.clone();
    // A read is enough to continue a viewing, and to refuse most readers of a link that is used up.
    let continued = service.db.read("continue a viewing", move |c| continue_viewing(c, &request, window)).await?;
    match continued {
        Some(view) => Ok(view),
        None => service.db.write("begin a viewing", move |tx| begin_viewing(tx, &reader, window)).await,
    }
}

/// Whether a reader could view the link now. Counts nothing.
pub(crate) async fn check(service: &SessionStore, reader: PublicReader) -> Result<(), Error> {
    service
        .db
        .read("check a link", move |c| {
            let (link, now) = find(c, reader.link)?;
            let is_viewing = reader.view_token.as_ref().is_some_and(|token| link.viewing_end(token, now).is_some());
            if is_viewing || !link.is_used_up() { Ok(()) } else { Err(Error::LinkNotFound) }
        })
        .await
}

/// The session behind a link, and until when the view token allows to read it.
pub(crate) async fn find_viewing(
    service: &SessionStore,
    link: TokenHash,
    view_token: String,
) -> Result<(SessionId, Timestamp), Error> {
    service.db.read("find a viewing", move |c| check_viewing(c, link, &view_token)).await
}

/// Fails unless the view token is valid now.
pub(super) fn check_viewing(c: &mut Conn, link: TokenHash, view_token: &str) -> Result<(SessionId, Timestamp), Error> {
    let (link, now) = find(c, link)?;
    let end = link.viewing_end(view_token, now).ok_or(Error::LinkNotFound)?;
    Ok((link.session, end))
}

/// A message as readers of a link see it.
pub(super) fn public_message(message: Message) -> PublicMessage {
    let Message { id, seq, content, key_epoch, created_at, local_id: _, sender_id: _, sender_machine_id: _ } = message;
    PublicMessage { id, seq, content, key_epoch, created_at }
}

fn find(c: &mut Conn, link: TokenHash) -> Result<(PublicLink, Timestamp), Error> {
    store::public_links::find(c, link)?.ok_or(Error::LinkNotFound)
}

/// A page of a viewing that has begun before. `None` when only [`begin_viewing`] can decide.
fn continue_viewing(c: &mut Conn, reader: &PublicReader, window: Window) -> Result<Option<PublicView>, Error> {
    let (link, now) = find(c, reader.link)?;
    let valid = |token: &&String| link.viewing_end(token, now).is_some();
    let Some(token) = reader.view_token.as_ref().filter(valid) else {
        let may_begin = !link.is_used_up() || has_viewed(c, &link, reader)?;
        return if may_begin { Ok(None) } else { Err(Error::LinkNotFound) };
    };
    let messages = store::messages::page(c, link.session, window)?;
    // Checked again after the messages: one that was stored after the link was removed is not sent.
    let (link, now) = find(c, reader.link)?;
    link.viewing_end(token, now).ok_or(Error::LinkNotFound)?;
    Ok(Some(public_view(c, link, token.clone(), window, messages)?))
}

/// A page of a new viewing, or of the one that this idempotency key has begun.
fn begin_viewing(tx: &mut Conn, reader: &PublicReader, window: Window) -> Result<PublicView, Error> {
    let (link, now) = find(tx, reader.link)?;
    let began_at = match &reader.key {
        Some(key) => begin_or_find(tx, &link, reader.link, key, now)?,
        None => None,
    };
    let link = match began_at {
        // This may have waited for the request that began the viewing. Read again what that one counted.
        Some(_) => find(tx, reader.link)?.0,
        None => {
            let uses = store::public_links::count_use(tx, reader.link)?.ok_or(Error::LinkNotFound)?;
            PublicLink { uses, ..link }
        }
    };
    let view_token = link.view_key.sign(began_at.unwrap_or(now));
    let messages = store::messages::page(tx, link.session, window)?;
    public_view(tx, link, view_token, window, messages)
}

/// When the recent viewing with this key began. Without one, a new viewing begins now.
fn begin_or_find(
    tx: &mut Conn,
    link: &PublicLink,
    token: TokenHash,
    key: &str,
    now: Timestamp,
) -> Result<Option<Timestamp>, Error> {
    if store::public_links::insert_viewing(tx, link.session, token, key, now)? {
        return Ok(None);
    }
    let began_at = store::public_links::viewing(tx, link.session, token, key)?.filter(|at| now.since(*at) < VIEWING);
    if began_at.is_none() {
        store::public_links::restart_viewing(tx, link.session, token, key, now)?;
    }
    Ok(began_at)
}

/// Whether this reader's key has begun a viewing, recent or not.
fn has_viewed(c: &mut Conn, link: &PublicLink, reader: &PublicReader) -> Result<bool, Error> {
    let Some(key) = &reader.key else { return Ok(false) };
    Ok(store::public_links::viewing(c, link.session, reader.link, key)?.is_some())
}

fn public_view(
    c: &mut Conn,
    link: PublicLink,
    view_token: String,
    window: Window,
    messages: Vec<Message>,
) -> Result<PublicView, Error> {
    let session = store::public_sessions::load(c, link.session)?.ok_or(Error::LinkNotFound)?;
    let PageBounds { has_more, next_before, next_after } = messages::bounds(window, &messages, session.last_seq);
    Ok(PublicView {
        session,
        access_level: "view".to_owned(),
        remaining_uses: link.remaining_uses(),
        encrypted_key: link.encrypted_key,
        messages: messages.into_iter().map(public_message).collect(),
        has_more,
        next_before,
        next_after,
        expires_at: link.expires_at,
        view_token,
    })
}
