//! What signed-in users may know of each other: enough to seal a key to an account.

use ensemble_chassis::{Caller, HandlerResult, Json, Path, State};
use ensemble_types::accounts::PublicUser;
use ensemble_types::ids::UserId;

use crate::Identity;
use crate::operations::accounts;

pub(crate) async fn read(
    service: State<Identity>,
    _: Caller,
    Path(id): Path<UserId>,
) -> HandlerResult<Json<PublicUser>> {
    Ok(Json(accounts::read(&service.db, id).await?.into()))
}
