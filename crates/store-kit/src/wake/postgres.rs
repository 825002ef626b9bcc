//! Carries wake-ups between replicas by LISTEN and NOTIFY, on one connection of its own that comes back when it is lost.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Connection, Statement};
use uuid::Uuid;

use super::{Hub, Outbox, Pending, Topic, tls};

/// Each service has a database of its own, and channels belong to a database.
const CHANNEL: &str = "ensemble_wakes";
/// PostgreSQL takes less than 8,000 bytes in one NOTIFY (async.c, NOTIFY_PAYLOAD_MAX_LENGTH).
const MAX_PAYLOAD: usize = 7_500;
/// Stands for every topic.
const ALL: &str = "*";
/// A quiet connection is tried this often: a link that was cut without a word is noticed.
const PROBE_EVERY: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(3);
/// Between two messages, so that commits that follow each other closely are told together: a message costs the database
/// about as much as a small commit, and nobody here waits for it.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs until the hub is gone.
pub(super) async fn relay(url: String, hub: Weak<Hub>, outbox: Arc<Outbox>) {
    // Tells our own messages, which were delivered already, from those of others.
    let me = random_name();
    let mut wait = Duration::from_millis(50);
    while hub.strong_count() > 0 {
        let ended = session(&url, &me, &hub, &outbox, &mut wait).await;
        if let Some(hub) = hub.upgrade() {
            hub.connected.store(false, Ordering::Relaxed);
        }
        match ended {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "The connection for wake-ups is away; the sweep covers for it"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(2));
    }
}

/// One connection, from its opening to its loss.
async fn session(
    url: &str,
    me: &str,
    hub: &Weak<Hub>,
    outbox: &Outbox,
    wait: &mut Duration,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (mut config, tls) = tls::parse(url)?;
    config.connect_timeout(TIMEOUT).keepalives_idle(Duration::from_secs(5)).application_name("ensemble-wakes");
    let (client, connection) = config.connect(tls).await?;
    let listening = pin!(listen(connection, me, hub));
    let sending = pin!(async {
        // A message is kept nowhere, yet its commit would flush the log, and hold up the commits that have to.
        let begin = format!("SET synchronous_commit = off; LISTEN {CHANNEL}");
        timeout(TIMEOUT, client.batch_execute(&begin)).await??;
        *wait = Duration::from_millis(50);
        // What was told while nobody listened is not known, so everybody here looks once.
        if let Some(hub) = hub.upgrade() {
            hub.connected.store(true, Ordering::Relaxed);
            hub.deliver_all();
        }
        send(&client, me, hub, outbox).await
    });
    match select(listening, sending).await {
        Either::Left((ended, _)) => ended,
        Either::Right((ended, _)) => ended,
    }
}

async fn listen<S: AsyncRead + AsyncWrite + Unpin, T: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<S, T>,
    me: &str,
    hub: &Weak<Hub>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        let Some(hub) = hub.upgrade() else { return Ok(()) };
        if let AsyncMessage::Notification(notification) = message? {
            receive(&hub, me, notification.payload());
        }
    }
    Err("the server closed it".into())
}

/// A payload is the sender's name and then topics, one a line.
fn receive(hub: &Hub, me: &str, payload: &str) {
    let mut lines = payload.lines();
    if lines.next() == Some(me) {
        return;
    }
    let topics: Vec<Topic> = lines.map(|line| Topic(line.into())).collect();
    if topics.iter().any(|topic| &*topic.0 == ALL) {
        hub.deliver_all();
    } else {
        hub.deliver(&topics);
    }
}

/// Sends at once what comes alone, and as one message what comes while the last one is on its way or shortly after it, so
/// that load makes messages longer, not more.
async fn send(
    client: &Client,
    me: &str,
    hub: &Weak<Hub>,
    outbox: &Outbox,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let notify = client.prepare("SELECT pg_notify($1, $2)").await?;
    while hub.strong_count() > 0 {
        match timeout(PROBE_EVERY, outbox.take()).await {
            Err(_) => drop(timeout(TIMEOUT, client.simple_query("SELECT 1")).await??),
            Ok(pending) => {
                let sent = timeout(TIMEOUT, tell(client, &notify, me, &pending)).await;
                if !matches!(sent, Ok(Ok(()))) {
                    outbox.put_back(pending);
                    sent??;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Ok(())
}

async fn tell(client: &Client, notify: &Statement, me: &str, pending: &Pending) -> Result<(), tokio_postgres::Error> {
    let mut payload = me.to_owned();
    if pending.all {
        payload.push_str(&format!("\n{ALL}"));
    }
    for topic in pending.topics.iter().filter(|_| !pending.all) {
        if payload.len() + 1 + topic.0.len() > MAX_PAYLOAD {
            client.execute(notify, &[&CHANNEL, &payload]).await?;
            payload.truncate(me.len());
        }
        payload.push('\n');
        payload.push_str(&topic.0);
    }
    client.execute(notify, &[&CHANNEL, &payload]).await?;
    Ok(())
}

fn random_name() -> String {
    let id: Uuid = ensemble_types::ids::TokenId::generate().uuid();
    id.simple().to_string()
}
