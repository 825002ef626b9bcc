//! Gives events to identity, which notifies the devices of an account of them.

use std::sync::Arc;

use ensemble_chassis::ServiceContext;

use crate::identity::{GivePushesRequest, PushEvent, Pushes, PushesClient};
use crate::{Channel, Peer, RpcError};

/// The most events of one call.
pub const MOST_EVENTS: usize = 100;

/// Cheap to clone.
#[derive(Clone)]
pub struct PushGiver(Arc<dyn Pushes>);

impl PushGiver {
    pub fn new(context: &ServiceContext, identity: &Peer) -> Self {
        Self(Arc::new(PushesClient::new(Channel::new(context, identity))))
    }

    /// Gives at most [`MOST_EVENTS`]. They are stored when this returns, and each is sent once, however often it is given.
    ///
    /// # Errors
    /// identity could not be reached, or refused them. Give them again later.
    pub async fn give(&self, events: Vec<PushEvent>) -> Result<(), RpcError> {
        self.0.give(GivePushesRequest { events }).await.map(drop)
    }
}
