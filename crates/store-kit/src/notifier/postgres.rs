//! Sends topics between replicas by LISTEN and NOTIFY, on a connection of its own that is opened again when it is lost.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{Either, FutureExt, select};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{AsyncMessage, Client, Connection, Statement};
use uuid::Uuid;

use super::{Outbox, Pending, Registry, Topic, tls};
use crate::reach::Reach;

/// Each service has a database of its own, and channels belong to a database.
const CHANNEL: &str = "ensemble_wakes";
/// PostgreSQL takes less than 8,000 bytes in one NOTIFY (async.c, NOTIFY_PAYLOAD_MAX_LENGTH).
const MAX_PAYLOAD: usize = 7_500;
/// Stands for every topic.
const ALL: &str = "*";
/// The interval at which this replica sends a message to itself. When the message does not come back, the network was cut without a
/// notice, or something between here and the server has dropped LISTEN, as a pooler in transaction mode does.
const PROBE_EVERY: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(3);
/// Between two messages, so that commits that follow each other closely share one. A message costs the database about as
/// much as a small commit, and no caller waits for it.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs until the registry is dropped.
pub(super) async fn relay(url: String, registry: Weak<Registry>, outbox: Arc<Outbox>, reach: Arc<Reach>) {
    // Separates our own messages, which were delivered already, from those of other replicas.
    let sender = random_name();
    let mut wait = Duration::from_millis(50);
    while registry.strong_count() > 0 {
        let ended = session(&url, &sender, &registry, &outbox, &reach, &mut wait).await;
        if let Some(registry) = registry.upgrade() {
            registry.connected.store(false, Ordering::Relaxed);
        }
        match ended {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(
                    error = chain(&*error),
                    "The connection for notifications is lost; the sweeps find what it misses"
                )
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(2));
    }
}

/// One connection, from its opening to its loss.
async fn session(
    url: &str,
    sender: &str,
    registry: &Weak<Registry>,
    outbox: &Outbox,
    reach: &Reach,
    wait: &mut Duration,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (mut config, tls) = tls::parse(url)?;
    config.connect_timeout(TIMEOUT).keepalives_idle(Duration::from_secs(5)).application_name("ensemble-wakes");
    let (client, connection) = config.connect(tls).await?;
    let own = Notify::new();
    let listening = pin!(listen(connection, sender, registry, &own));
    let sending = pin!(async {
        // A notification need not survive a crash, so its commit must not flush the log and delay the commits that must.
        let begin = format!("SET synchronous_commit = off; LISTEN {CHANNEL}");
        timeout(TIMEOUT, client.batch_execute(&begin)).await??;
        reach.answered();
        let notify = timeout(TIMEOUT, client.prepare("SELECT pg_notify($1, $2)")).await??;
        probe(&client, &notify, sender, &own).await?;
        *wait = Duration::from_millis(50);
        // What was sent while this replica did not listen is not known, so every subscriber here looks once.
        if let Some(registry) = registry.upgrade() {
            registry.connected.store(true, Ordering::Relaxed);
            registry.connects.notify_waiters();
            registry.deliver_all();
        }
        send((&client, &notify), (sender, &own), registry, outbox).await
    });
    match select(listening, sending).await {
        Either::Left((ended, _)) => ended,
        Either::Right((ended, _)) => ended,
    }
}

async fn listen<S: AsyncRead + AsyncWrite + Unpin, T: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<S, T>,
    sender: &str,
    registry: &Weak<Registry>,
    own: &Notify,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        let Some(registry) = registry.upgrade() else { return Ok(()) };
        if let AsyncMessage::Notification(notification) = message? {
            receive(&registry, sender, notification.payload(), own);
        }
    }
    Err("the server closed it".into())
}

/// A payload is the sender's name and then topics, one a line. One of our own shows that notifications arrive.
fn receive(registry: &Registry, sender: &str, payload: &str, own: &Notify) {
    let mut lines = payload.lines();
    if lines.next() == Some(sender) {
        own.notify_one();
        return;
    }
    let topics: Vec<Topic> = lines.map(|line| Topic(line.into())).collect();
    if topics.iter().any(|topic| &*topic.0 == ALL) {
        registry.deliver_all();
    } else {
        registry.deliver(&topics);
    }
}

/// Sends a single topic at once. Topics that come while a message is on its way, or shortly after it, share the next
/// message, so that load makes messages longer and not more numerous.
async fn send(
    (client, notify): (&Client, &Statement),
    (sender, own): (&str, &Notify),
    registry: &Weak<Registry>,
    outbox: &Outbox,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut due = Instant::now() + PROBE_EVERY;
    while registry.strong_count() > 0 {
        if Instant::now() >= due {
            probe(client, notify, sender, own).await?;
            due = Instant::now() + PROBE_EVERY;
        }
        let Ok(pending) = timeout_at(due, outbox.take()).await else { continue };
        let sent = timeout(TIMEOUT, notify_all(client, notify, sender, &pending)).await;
        if !matches!(sent, Ok(Ok(()))) {
            outbox.put_back(pending);
            sent??;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Sends a message to this replica, and waits until it, or another one of its own, comes back.
async fn probe(
    client: &Client,
    notify: &Statement,
    sender: &str,
    own: &Notify,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // One that is remembered is older.
    let _ = own.notified().now_or_never();
    timeout(TIMEOUT, notify_all(client, notify, sender, &Pending::default())).await??;
    let back = timeout(TIMEOUT, own.notified()).await;
    back.map_err(|_| {
        "what was sent to this replica itself did not come back; is there a pooler in transaction mode?".into()
    })
}

async fn notify_all(
    client: &Client,
    notify: &Statement,
    sender: &str,
    pending: &Pending,
) -> Result<(), tokio_postgres::Error> {
    let mut payload = sender.to_owned();
    if pending.all {
        payload.push_str(&format!("\n{ALL}"));
    }
    for topic in pending.topics.iter().filter(|_| !pending.all) {
        if payload.len() + 1 + topic.0.len() > MAX_PAYLOAD {
            client.execute(notify, &[&CHANNEL, &payload]).await?;
            payload.truncate(sender.len());
        }
        payload.push('\n');
        payload.push_str(&topic.0);
    }
    client.execute(notify, &[&CHANNEL, &payload]).await?;
    Ok(())
}

/// The error with its causes: that of a handshake says nothing itself.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn random_name() -> String {
    let id: Uuid = ensemble_types::ids::TokenId::generate().uuid();
    id.simple().to_string()
}
