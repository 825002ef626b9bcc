//! Live sessions on this computer: the host in the background, and what the screen shows.

pub(crate) mod host;
mod invited;
pub(crate) mod show;

use ensemble_account::Account;
use ensemble_account::live::Live;
pub(crate) use ensemble_screen::lines::text;
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::Session;

use crate::context::Context;
use crate::failure::Result;

/// Opens a session for the person, and starts its host where that is the task of this computer.
pub(crate) async fn open(context: &Context, me: &Account, id: SessionId) -> Result<Live> {
    let live = me.live(id).await?;
    wake(context, me, &live.session).await;
    Ok(live)
}

/// Notes that a session is used, and starts its host where that is the task of this computer.
pub(crate) async fn wake(context: &Context, me: &Account, session: &Session) {
    me.use_session(session);
    host::wake(context, me, session).await;
}
