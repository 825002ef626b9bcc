//! Notifications that do not arrive, although the connection is there: a pooler in transaction mode forgets LISTEN.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use ensemble_store_kit::{DatabaseConfig, Db, Migrations, TakeTurn};
use ensemble_testkit::postgres::{Cluster, Durability};
use ensemble_testkit::{eventually, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};

const POSTGRES: EmbeddedMigrations = embed_migrations!("tests/migrations/postgres");
const SQLITE: EmbeddedMigrations = embed_migrations!("tests/migrations/sqlite");
const MIGRATIONS: Migrations = Migrations { postgres: || POSTGRES, sqlite: || SQLITE };
const SOON: Duration = Duration::from_secs(120);
/// The type of a message of the server: NotificationResponse (section 55.7 of PostgreSQL's manual).
const NOTIFICATION: u8 = b'A';

/// Passes on what server and clients say, without the notifications while `is_deaf`.
async fn proxy(server: String, is_deaf: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&server).await else { continue };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let is_deaf = Arc::clone(&is_deaf);
            tokio::spawn(async move {
                while let Ok((kind, message)) = message(&mut from_server).await {
                    let is_kept = kind != NOTIFICATION || !is_deaf.load(Ordering::SeqCst);
                    if is_kept && to_client.write_all(&message).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// The next message of a server with its type, which is its first byte.
async fn message(from: &mut OwnedReadHalf) -> std::io::Result<(u8, Vec<u8>)> {
    let kind = from.read_u8().await?;
    // It counts itself.
    let length = from.read_u32().await?;
    let mut body = vec![0; length as usize - 4];
    from.read_exact(&mut body).await?;
    Ok((kind, [&[kind][..], &length.to_be_bytes(), &body].concat()))
}

#[test]
fn it_is_not_connected_while_its_own_notifications_do_not_come_back() {
    let cluster = Cluster::start(Durability::Full).unwrap();
    run(async move {
        let url = cluster.url("postgres");
        let (_, place) = url.split_once('@').unwrap();
        let (address, _) = place.split_once('/').unwrap();
        let is_deaf = Arc::new(AtomicBool::new(false));
        let port = proxy(address.to_owned(), Arc::clone(&is_deaf)).await;
        let through = format!("{}?sslmode=disable", url.replace(address, &format!("127.0.0.1:{port}")));
        let registry = prometheus::Registry::new();
        let turns = |_| -> TakeTurn { Arc::new(|| Box::pin(async { None })) };
        let config = DatabaseConfig::new(through.parse().unwrap());
        let db = Db::open_measured(&config, MIGRATIONS, &registry, turns).await.unwrap();
        let says = |line: &str| {
            let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            text.lines().any(|known| known == line)
        };
        eventually(SOON, async || says("wake_connected 1")).await;
        is_deaf.store(true, Ordering::SeqCst);
        eventually(SOON, async || says("wake_connected 0")).await;
        // What may have been missed is looked for once it receives again.
        let mut subscription = db.notifier().subscribe(ensemble_store_kit::Topic::new("test", "1"));
        is_deaf.store(false, Ordering::SeqCst);
        eventually(SOON, async || says("wake_connected 1")).await;
        tokio::time::timeout(SOON, subscription.changed()).await.unwrap();
    });
}
