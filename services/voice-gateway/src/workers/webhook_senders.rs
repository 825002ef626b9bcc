//! Sends webhooks to the operator's endpoints: one loop for each, so that an endpoint that is slow or dead holds up no other. Several
//! replicas may run it.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::VoiceGateway;
use crate::domain::endpoint::Endpoint;
use crate::store::webhook_deliveries::topic;

/// To one endpoint at once.
const AT_ONCE: usize = 4;
/// One that another replica had taken is looked for after this time, when nothing else is due.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

pub(crate) async fn run(service: Arc<VoiceGateway>, drain: Drain) {
    join_all(service.webhooks.endpoints.iter().map(|endpoint| send_to(&service, endpoint, &drain))).await;
}

async fn send_to(service: &Arc<VoiceGateway>, endpoint: &Arc<Endpoint>, drain: &Drain) {
    let mut given = service.db.notifier().subscribe(topic());
    // Tasks of their own: one that is not polled while this loop waits for the database could hold the connection that it waits for.
    let mut sending = JoinSet::new();
    // Until when nothing is sent, because the endpoint did not answer.
    let mut silent_until: Option<Instant> = None;
    // Whether it answered the last time. One that does not gets one at a time.
    let mut answers = true;
    while !drain.is_closing() {
        let free = if answers { AT_ONCE } else { 1 }.saturating_sub(sending.len());
        let rest = silent_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        let wait = if free == 0 {
            LONGEST_WAIT
        } else if !rest.is_zero() {
            rest
        } else {
            match service.take_webhook_deliveries(endpoint, free).await {
                Ok((taken, next)) => {
                    let is_full = taken.len() == free;
                    for delivery in taken {
                        let (service, endpoint) = (Arc::clone(service), Arc::clone(endpoint));
                        sending.spawn(async move { service.send_webhook(&endpoint, delivery).await });
                    }
                    if is_full { LONGEST_WAIT } else { next.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT) }
                }
                Err(error) => {
                    tracing::warn!(%error, "Webhooks cannot be read");
                    PAUSE_AFTER_ERROR
                }
            }
        };
        tokio::select! {
            Some(Ok(is_silent)) = sending.join_next() => {
                answers = !is_silent;
                silent_until = is_silent.then(|| Instant::now() + service.webhooks.first_wait);
            }
            () = given.changed() => {}
            () = sleep(wait) => {}
            () = drain.closing() => break,
        }
    }
    // Those that are being sent have the deadline of a try.
    while sending.join_next().await.is_some() {}
}
