//! Keeping the key ring up to date, and rotating the signing keys when it is time.

use ensemble_store_kit::{Conn, Db, StoreError};

use crate::domain::Published;
use crate::keys::{CannotOpen, KeyRing, RingError, Vault};
use crate::store::{devices, revocations, signing_keys};
use crate::store::{signing_keys::KeyRow, signing_keys::KeyTable};

/// Makes and deletes keys when it is time, and loads keys and revocations into the ring.
pub(crate) async fn refresh(db: &Db, ring: &KeyRing) -> Result<(), RingError> {
    let mut table = load(db).await?;
    let published: Vec<Published> = table.keys.iter().map(|row| row.published).collect();
    let plan = ring.plan(&published, table.now);
    if plan.make.is_some() || !plan.drop.is_empty() {
        let made = plan.make.map(|published| ring.make(published)).transpose()?;
        rotate(db, made, plan.drop).await?;
        table = load(db).await?;
    }
    ring.replace(table)
}

async fn load(db: &Db) -> Result<KeyTable, StoreError> {
    db.read("read the signing keys", |c: &mut Conn| {
        let (revoked, removed) = (revocations::unexpired(c)?, devices::removed_with_tokens(c)?);
        Ok(KeyTable { keys: signing_keys::load(c)?, revoked, removed, now: c.now()? })
    })
    .await
}

/// If another replica has added a key of this generation already, its key stays.
async fn rotate(db: &Db, made: Option<KeyRow>, dropped: Vec<i64>) -> Result<(), StoreError> {
    db.write("rotate the signing keys", move |tx| {
        if let Some(key) = &made {
            signing_keys::insert(tx, key)?;
        }
        signing_keys::delete(tx, &dropped)?;
        tx.notify(revocations::topic());
        Ok(())
    })
    .await
}

/// Seals with the current key-encryption key what the previous one has sealed, so that the previous one is not needed afterwards.
pub(crate) async fn reseal(db: &Db, vault: &Vault) -> Result<(), ResealError> {
    let resealed = |row: KeyRow| {
        let sealed = vault.seal(&row.key_id, &vault.open(&row.key_id, &row.sealed)?)?;
        Ok::<_, CannotOpen>((row.published.generation, sealed))
    };
    let rows = load(db).await?.keys.into_iter().map(resealed).collect::<Result<Vec<_>, _>>()?;
    db.write("seal the signing keys again", move |tx| {
        rows.iter().try_for_each(|(generation, sealed)| signing_keys::reseal(tx, *generation, sealed))
    })
    .await?;
    Ok(())
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ResealError {
    #[error(transparent)]
    Sealed(#[from] CannotOpen),
    #[error(transparent)]
    Store(#[from] StoreError),
}
