//! Sends webhooks to the operator's endpoints: one loop for each, so that an endpoint that is slow or dead holds up no other.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::deliveries::{Deliveries, Due, send_all};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::VoiceGateway;
use crate::domain::endpoint::Endpoint;
use crate::store::webhook_deliveries::{Delivery, topic};

/// To one endpoint at once.
const AT_ONCE: usize = 4;

pub(crate) async fn run(service: Arc<VoiceGateway>, drain: Drain) {
    join_all(service.webhooks.endpoints.iter().map(|endpoint| {
        let to = ToEndpoint { service: Arc::clone(&service), endpoint: Arc::clone(endpoint), silent_until: None };
        send_all(to, service.db.notifier().subscribe(topic()), drain.closing())
    }))
    .await;
}

struct ToEndpoint {
    service: Arc<VoiceGateway>,
    endpoint: Arc<Endpoint>,
    /// It did not answer the last time, and nothing is sent until then.
    silent_until: Option<Instant>,
}

impl Deliveries for ToEndpoint {
    type Delivery = Delivery;
    /// Whether it was silent.
    type Tried = bool;

    /// An endpoint that does not answer gets one at a time.
    fn most(&self) -> usize {
        if self.silent_until.is_some() { 1 } else { AT_ONCE }
    }

    async fn take(&mut self, free: usize) -> Result<Due<Delivery>, StoreError> {
        let rest = self.silent_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        if !rest.is_zero() {
            return Ok(Due { taken: Vec::new(), next: Some(rest) });
        }
        self.service.take_webhook_deliveries(&self.endpoint, free).await
    }

    fn send(&self, delivery: Delivery) -> impl Future<Output = bool> + Send + 'static {
        let (service, endpoint) = (Arc::clone(&self.service), Arc::clone(&self.endpoint));
        async move { service.send_webhook(&endpoint, delivery).await }
    }

    fn note(&mut self, is_silent: bool) {
        self.silent_until = is_silent.then(|| Instant::now() + self.service.webhooks.first_wait);
    }
}
