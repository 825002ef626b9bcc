//! Which tools the agent of each voice session has called.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;

use super::schema::voice_tool_calls::{self, dsl};

pub(crate) fn insert(
    tx: &mut Conn,
    id: GatewaySessionId,
    seq: i64,
    name: &str,
    subject: Option<&str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::insert_into(voice_tool_calls::table)
        .values((
            dsl::session.eq(id.db()),
            dsl::seq.eq(seq),
            dsl::name.eq(name),
            dsl::subject.eq(subject),
            dsl::called_at.eq(now.db()),
        ))
        .execute(c))
    .map(drop)
}
