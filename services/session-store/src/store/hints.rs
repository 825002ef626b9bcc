//! What hints about sessions say, and whom they are for.

use std::collections::{BTreeSet, HashMap};

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::ShareLevel;

use super::schema::sessions;
use super::shares::levels_of_sessions;
use crate::domain::access::Ownership;

/// A session that has changed.
pub(crate) struct Changed {
    pub(crate) id: SessionId,
    pub(crate) owner: UserId,
    host: Option<String>,
    /// Rises with every change.
    pub(crate) revision: i64,
    pub(crate) levels: HashMap<UserId, ShareLevel>,
}

impl Changed {
    pub(crate) fn ownership(&self) -> Ownership<'_> {
        Ownership { owner: self.owner, host: self.host.as_deref() }
    }
}

/// Those of these sessions that were not deleted. The recipients of a hint of a deletion are known when it happens.
pub(crate) fn changed(c: &mut Conn, of: &BTreeSet<SessionId>) -> Result<Vec<Changed>, StoreError> {
    type Columns = (SessionId, UserId, bool, String, i64);
    let ids: Vec<DbId> = of.iter().map(|session| session.db()).collect();
    let columns = (
        sessions::id,
        sessions::owner_id,
        sessions::hosted,
        sessions::machine_id,
        sessions::revision + sessions::last_seq,
    );
    let found = sessions::table.filter(sessions::id.eq_any(&ids).and(sessions::deleted_at.is_null())).select(columns);
    let rows: Vec<Columns> = on!(c, |c| found.load(c))?;
    let mut levels = levels_of_sessions(c, of)?;
    let changed = rows.into_iter().map(|(id, owner, hosted, machine, revision)| Changed {
        id,
        owner,
        host: hosted.then_some(machine),
        revision,
        levels: levels.remove(&id).unwrap_or_default(),
    });
    Ok(changed.collect())
}
