//! What anybody who is signed in may know of others: enough to seal a key to them.

use ensemble_chassis::{Caller, HandlerResult, Json, Path, State};
use ensemble_types::accounts::PublicUser;
use ensemble_types::ids::UserId;

use crate::Identity;

pub(crate) async fn read(
    identity: State<Identity>,
    _: Caller,
    Path(id): Path<UserId>,
) -> HandlerResult<Json<PublicUser>> {
    Ok(Json(identity.store.account(id).await?.into()))
}
