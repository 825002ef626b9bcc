//! The outbox: the texts of each session, in order, with how each was delivered.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use ensemble_types::voice::VoiceDelivery;

use super::schema::voice_texts::{self, dsl};
use crate::domain::outbox::{Item, Speech};

pub(crate) fn insert(
    tx: &mut Conn,
    id: GatewaySessionId,
    seq: i64,
    message_id: &str,
    (text, speech): (&str, Speech),
    now: Timestamp,
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::insert_into(voice_texts::table)
        .values((
            dsl::session.eq(id.db()),
            dsl::seq.eq(seq),
            dsl::message_id.eq(message_id),
            dsl::body.eq(text),
            dsl::say.eq(match speech {
                Speech::Turn => None,
                Speech::Say { interrupt } => Some(interrupt),
            }),
            dsl::created_at.eq(now.db()),
        ))
        .execute(c))
    .map(drop)
}

/// The text with this message id: its `seq` and how it was delivered.
pub(crate) fn by_message_id(
    c: &mut Conn,
    id: GatewaySessionId,
    message_id: &str,
) -> Result<Option<(i64, VoiceDelivery)>, StoreError> {
    let found: Option<(i64, Option<String>)> = on!(c, |c| voice_texts::table
        .filter(dsl::session.eq(id.db()).and(dsl::message_id.eq(message_id)))
        .select((dsl::seq, dsl::delivery))
        .first(c)
        .optional())?;
    Ok(found.map(|(seq, delivery)| (seq, from_column(delivery.as_deref()))))
}

pub(crate) fn delivery(c: &mut Conn, id: GatewaySessionId, seq: i64) -> Result<VoiceDelivery, StoreError> {
    let delivery: Option<Option<String>> =
        on!(c, |c| voice_texts::table.find((id.db(), seq)).select(dsl::delivery).first(c).optional())?;
    Ok(from_column(delivery.flatten().as_deref()))
}

/// The message id and the body of a text; none when the body has been deleted.
pub(crate) fn body(c: &mut Conn, id: GatewaySessionId, seq: i64) -> Result<Option<(String, String)>, StoreError> {
    let found: Option<(String, String)> =
        on!(c, |c| voice_texts::table.find((id.db(), seq)).select((dsl::message_id, dsl::body)).first(c).optional())?;
    Ok(found.filter(|(_, body)| !body.is_empty()))
}

/// The first text that waits.
pub(super) fn next_queued(c: &mut Conn, id: GatewaySessionId) -> Result<Option<Item>, StoreError> {
    let text: Option<(i64, String, String, Timestamp, Option<bool>)> = on!(c, |c| voice_texts::table
        .filter(dsl::session.eq(id.db()).and(dsl::delivery.is_null()))
        .order(dsl::seq)
        .select((dsl::seq, dsl::message_id, dsl::body, dsl::created_at, dsl::say))
        .first(c)
        .optional())?;
    Ok(text.map(|(seq, message_id, text, created_at, say)| {
        let speech = say.map_or(Speech::Turn, |interrupt| Speech::Say { interrupt });
        Item::Text { seq, message_id, text, created_at, speech }
    }))
}

/// Marks a text that waits as delivered or sent. False: it was marked before.
pub(crate) fn mark(tx: &mut Conn, id: GatewaySessionId, seq: i64, acknowledged: bool) -> Result<bool, StoreError> {
    let delivery = if acknowledged { "delivered" } else { "sent" };
    let waiting = voice_texts::table.find((id.db(), seq)).filter(dsl::delivery.is_null());
    let marked = on!(tx, |c| diesel::update(waiting).set(dsl::delivery.eq(delivery)).execute(c))?;
    Ok(marked == 1)
}

/// Deletes what was said; how each text was delivered stays.
pub(super) fn empty_bodies(tx: &mut Conn, id: GatewaySessionId) -> Result<(), StoreError> {
    let texts = voice_texts::table.filter(dsl::session.eq(id.db()));
    on!(tx, |c| cached(diesel::update(texts).set(dsl::body.eq(""))).execute(c)).map(drop)
}

fn from_column(column: Option<&str>) -> VoiceDelivery {
    match column {
        Some("delivered") => VoiceDelivery::Delivered,
        Some(_) => VoiceDelivery::Sent,
        None => VoiceDelivery::Queued,
    }
}
