//! What a hosted session wants, as columns of its row.

use diesel::prelude::*;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::types::IntoDb;
use ensemble_types::attention::{Attention, AttentionKind};
use ensemble_types::time::Timestamp;

use super::schema::sessions;
use super::sessions::SessionColumns;

/// What the session wants.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sessions)]
pub(crate) struct AttentionRow {
    attention_kind: i16,
    attention_open: i16,
    attention_since: Option<Timestamp>,
    attention_id: Option<String>,
    pub(crate) attention_version: i64,
}

impl AttentionRow {
    pub(crate) fn attention(&self, operation: &'static str) -> Result<Attention, StoreError> {
        let bad = || StoreError::bad_row(operation, "what a session wants has an unknown kind or number");
        let kind = usize::try_from(self.attention_kind).ok().and_then(|at| AttentionKind::ALL.get(at)).copied();
        Ok(Attention {
            kind: kind.ok_or_else(bad)?,
            open: u8::try_from(self.attention_open).map_err(|_| bad())?,
            since: self.attention_since,
            id: self.attention_id.clone(),
        })
    }
}

impl SessionColumns {
    /// Sets what the session wants.
    pub(crate) fn want(&mut self, attention: &Attention, version: i64) {
        let kind = AttentionKind::ALL.into_iter().position(|kind| kind == attention.kind);
        self.attention_kind = kind.and_then(|at| i16::try_from(at).ok());
        self.attention_open = Some(i16::from(attention.open));
        self.attention_since = Some(attention.since.map(IntoDb::db));
        self.attention_id = Some(attention.id.clone());
        self.attention_version = Some(version);
    }
}
