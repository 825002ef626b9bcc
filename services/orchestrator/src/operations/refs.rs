//! Ids in paths, where a ref may stand for an id. Whether the caller may see the run is for the next step to decide.

use ensemble_store_kit::Db;
use ensemble_types::ids::{RunId, TaskId, UserId};
use ensemble_types::refs::IdOrRef;

use crate::error::Error;
use crate::store::refs;

pub(crate) async fn run(db: &Db, owner: UserId, path: IdOrRef<RunId>) -> Result<RunId, Error> {
    let find = async |reference| {
        let found = db.read("find a run by its ref", move |c| refs::run(c, owner, reference)).await?;
        found.ok_or(Error::NotFound)
    };
    path.id(find).await
}

pub(crate) async fn task(db: &Db, owner: UserId, path: IdOrRef<TaskId>) -> Result<TaskId, Error> {
    let find = async |reference| {
        let found = db.read("find a task by its ref", move |c| refs::task(c, owner, reference)).await?;
        found.ok_or(Error::NotFound)
    };
    path.id(find).await
}
