//! What anybody who is signed in may know of others: enough to seal a key to them.

use ensemble_chassis::{Answer, Caller, Path, Reply, State};
use ensemble_types::accounts::PublicUser;
use ensemble_types::ids::UserId;

use crate::Identity;

pub(crate) async fn read(identity: State<Identity>, _: Caller, Path(id): Path<UserId>) -> Answer<Reply<PublicUser>> {
    Ok(Reply(identity.store.account(id).await?.into()))
}
