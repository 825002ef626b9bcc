//! The table `content_rings`. What is sealed is never read here.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::devices::{DeviceContentRing, SealedContentRing};
use ensemble_types::ids::UserId;
use ensemble_types::text::Blob;

use super::schema::content_rings;

#[derive(Queryable, Selectable)]
#[diesel(table_name = content_rings)]
struct Row {
    version: i32,
    content_epoch: i32,
    sealed: String,
}

/// Replaces all rings of an account by those that came with a list.
pub(crate) fn replace(
    tx: &mut Conn,
    user: UserId,
    (version, content_epoch): (u32, u32),
    rings: &[([u8; 32], &SealedContentRing)],
) -> Result<(), StoreError> {
    let number = |n: u32| i32::try_from(n).map_err(|error| StoreError::bad_row("replace content rings", error));
    let (version, content_epoch) = (number(version)?, number(content_epoch)?);
    let old = content_rings::table.filter(content_rings::user_id.eq(user.db()));
    on!(tx, |c| diesel::delete(old).execute(c))?;
    for (key, sealed) in rings {
        let row = (
            content_rings::public_key.eq(key.as_slice()),
            content_rings::user_id.eq(user.db()),
            content_rings::version.eq(version),
            content_rings::content_epoch.eq(content_epoch),
            content_rings::sealed.eq(&***sealed),
        );
        on!(tx, |c| diesel::insert_into(content_rings::table).values(row).execute(c))?;
    }
    Ok(())
}

/// The ring for the device with this key.
pub(crate) fn find(c: &mut Conn, key: &[u8; 32]) -> Result<Option<DeviceContentRing>, StoreError> {
    let query = content_rings::table.find(key.as_slice());
    let row: Option<Row> = on!(c, |c| query.select(Row::as_select()).first(c).optional())?;
    row.map(|row| row.ring(c)).transpose()
}

impl Row {
    fn ring(self, c: &Conn) -> Result<DeviceContentRing, StoreError> {
        let number = |n: i32| u32::try_from(n).map_err(|error| StoreError::bad_row(c.operation(), error));
        Ok(DeviceContentRing {
            version: number(self.version)?,
            content_epoch: number(self.content_epoch)?,
            sealed: Blob::new(self.sealed).map_err(|error| StoreError::bad_row(c.operation(), error))?,
        })
    }
}
