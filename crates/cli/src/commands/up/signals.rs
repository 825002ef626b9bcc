//! What ends `ensemble up`.

use tokio::signal::unix::{Signal, SignalKind};

use crate::context::{first_of, hang_ups, listened};
use crate::failure::Result;

pub(super) struct Signals(Vec<Signal>);

impl Signals {
    pub(super) fn listen() -> Result<Self> {
        let mut signals = listened(&[SignalKind::interrupt(), SignalKind::terminate()])?;
        signals.extend(hang_ups()?);
        Ok(Self(signals))
    }

    pub(super) async fn next(&mut self) {
        first_of(&mut self.0).await;
    }
}
