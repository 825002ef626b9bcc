//! One seed's story: a town of services is built, lives under load while acts befall it, comes to rest, and is looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_client::{AccountKey, Credential};
use ensemble_testkit::postgres::{Cluster, Durability};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::acts::Act;
use crate::history::{History, Told};
use crate::load::Client;
use crate::proxy::{Link, Weather};
use crate::stage::Process;

const WRITERS: usize = 8;
const SESSIONS: usize = 3;
const MAX_USES: u64 = 10;
/// Ready again this soon after it was started again; recovered this soon after the database is back.
const RECOVERY: Duration = Duration::from_secs(2);
/// What a machine with two busy cores may add to it before it counts as a fault.
const NOISE: Duration = Duration::from_secs(3);

struct Town {
    cluster: Arc<Mutex<Cluster>>,
    services: Vec<Process>,
    /// edge → store, store → database.
    links: Vec<Link>,
    http: reqwest::Client,
    folder: tempfile::TempDir,
    slowest: Duration,
}

struct Person {
    token: String,
    id: String,
}

pub(crate) async fn live_through(seed: u64, time: Duration) -> Result<Vec<String>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut town = Town::build().await?;
    let edge = format!("http://{}", town.services.last().context("no edge")?.public);
    let (owner, guest) = (sign_in(&edge).await?, sign_in(&edge).await?);
    let (stop, stopping) = watch::channel(false);
    let history = Arc::new(Mutex::new(History { max_uses: MAX_USES, ..History::default() }));
    let client = Client { http: town.http.clone(), edge, history: Arc::clone(&history), stop: stopping };

    let made = client
        .call(&owner.token, "POST", "/v1/machines", Some(json!({ "id": "m", "metadata": "x", "encryptionKey": "x" })))
        .await;
    ensure!(matches!(made, Some((201, _))), "the machine was not registered: {made:?}");
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let body = json!({ "machineId": "m", "metadata": "m0", "encryptionKey": "x" });
        let made = client.call(&owner.token, "POST", "/v1/sessions", Some(body)).await;
        let id = made.as_ref().and_then(|(_, body)| body.get("id")?.as_str()).context("no session was created")?;
        sessions.push(id.to_owned());
    }
    let first = sessions.first().context("no sessions")?.clone();
    let link = client
        .call(&owner.token, "POST", &format!("/v1/sessions/{first}/public-share"), Some(json!({ "maxUses": MAX_USES })))
        .await;
    let link = link.as_ref().and_then(|(_, body)| body.get("token")?.as_str()).context("no link was made")?.to_owned();

    let calm: f64 = town.services.iter().map(Process::memory).fold(0.0, f64::max);
    let mut people = Vec::new();
    for name in 0..WRITERS {
        people.push(tokio::spawn(client.clone().write(owner.token.clone(), sessions.clone(), name, random.r#gen())));
    }
    for session in &sessions {
        people.push(tokio::spawn(client.clone().read(owner.token.clone(), session.clone())));
    }
    for name in 0..3 {
        people.push(tokio::spawn(client.clone().race(owner.token.clone(), first.clone(), name)));
    }
    people.push(tokio::spawn(client.clone().visit(link.clone())));
    let last = sessions.last().context("no sessions")?.clone();
    people.push(tokio::spawn(client.clone().revoke(owner.token.clone(), guest.token.clone(), guest.id.clone(), last)));

    let mut faults = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        sleep(Duration::from_millis(random.gen_range(500..2_500))).await;
        let act = Act::draw(&mut random, town.services.len(), town.links.len());
        faults.extend(town.suffer(act).await.err().map(|error| format!("after {act:?}: {error:#}")));
    }

    for link in &town.links {
        link.set(Weather::Fair);
    }
    stop.send_replace(true);
    for person in people {
        person.await?;
    }
    let stored = read_all(&client, &owner.token, &sessions).await?;
    faults.extend(check_pages(&client, &owner.token, &first, stored.get(&first).map_or(0, Vec::len)).await);
    let closed = client.call(&owner.token, "DELETE", &format!("/v1/sessions/{first}/public-share"), None).await;
    ensure!(matches!(closed, Some((200, _))), "the link was not deleted: {closed:?}");
    if let Some((200, _)) = client.call("", "GET", &format!("/v1/public-sessions/{link}"), None).await {
        faults.push("P2: the link opened after its deletion was answered".to_owned());
    }
    let secrets = [owner.token, guest.token, link, "canary-content".to_owned()];
    for process in &town.services {
        faults.extend(process.bad_lines(&secrets));
        let memory = process.memory();
        if memory > calm * 1.5 + 40.0 {
            faults.push(format!("X2: {} has {memory:.0} MiB, the largest had {calm:.0} MiB before", process.name));
        }
    }
    let history = history.lock().map_err(|_| anyhow::anyhow!("a client panicked"))?;
    faults.extend(history.faults(&stored));
    ensure!(!history.acknowledged.is_empty(), "nothing was acknowledged: the load did not load");
    println!(
        "seed {seed}: {} requests, {} refused, {} appends acknowledged, {} link uses, slowest recovery {:?}, {} faults",
        history.requests,
        history.refused,
        history.acknowledged.len(),
        history.uses,
        town.slowest,
        faults.len()
    );
    if !faults.is_empty() {
        println!("  logs: {}", town.folder.keep().display());
    }
    Ok(faults)
}

impl Town {
    async fn build() -> Result<Self> {
        let cluster = tokio::task::spawn_blocking(|| Cluster::start(Durability::Full)).await??;
        for name in ["identity", "machines", "sessions"] {
            admin(&cluster, &format!("CREATE DATABASE {name}")).await?;
        }
        let folder = tempfile::tempdir()?;
        let key = folder.path().join("key");
        std::fs::write(&key, [7; 32])?;
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o400))?;
        let database = Link::to(([127, 0, 0, 1], cluster.port()).into()).await?;
        let base = |database: &str| {
            [
                ("DATABASE_URL", cluster.url(database)),
                ("INTERNAL_TOKEN", "canary-internal-token".to_owned()),
                ("KEY_ENCRYPTION_KEY_FILE", key.display().to_string()),
                ("DATABASE_POOL_SIZE", "8".to_owned()),
                ("RUST_LOG", "info".to_owned()),
            ]
        };
        let mut identity = Process::new("identity", folder.path(), &base("identity"))?;
        let mut registry = Process::new("machine-registry", folder.path(), &base("machines"))?;
        registry.set("IDENTITY_RPC_URL", format!("http://{}", identity.internal));
        registry.set("ORCHESTRATOR_RPC_URL", "http://127.0.0.1:9".to_owned());
        let mut store = Process::new("session-store", folder.path(), &base("sessions"))?;
        store.set(
            "DATABASE_URL",
            cluster.url("sessions").replace(&cluster.port().to_string(), &database.addr.port().to_string()),
        );
        store.set("IDENTITY_RPC_URL", format!("http://{}", identity.internal));
        store.set("MACHINE_REGISTRY_RPC_URL", format!("http://{}", registry.internal));
        let to_store = Link::to(store.public).await?;
        let mut edge = Process::new("edge-proxy", folder.path(), &base("unused"))?;
        let public = format!("http://{}", edge.public);
        identity.set("PUBLIC_ORIGINS", public.clone());
        edge.set("PUBLIC_BASE_URL", public);
        for limit in ["ACCOUNT", "ADDRESS", "SIGN_IN", "PUBLIC_LINK", "NEW_ACCOUNTS"] {
            edge.set(&format!("LIMIT_{limit}"), "0".to_owned());
        }
        edge.set("IDENTITY_URL", format!("http://{}", identity.public));
        edge.set("IDENTITY_RPC_URL", format!("http://{}", identity.internal));
        edge.set("MACHINE_REGISTRY_URL", format!("http://{}", registry.public));
        edge.set("SESSION_STORE_URL", format!("http://{}", to_store.addr));
        edge.set("ORCHESTRATOR_URL", "http://127.0.0.1:9".to_owned());
        edge.set("VOICE_GATEWAY_URL", "http://127.0.0.1:9".to_owned());
        let mut town = Self {
            cluster: Arc::new(Mutex::new(cluster)),
            services: vec![identity, registry, store, edge],
            links: vec![to_store, database],
            http: reqwest::Client::builder().no_proxy().build()?,
            folder,
            slowest: Duration::ZERO,
        };
        for service in &mut town.services {
            service.spawn()?;
            service.ready(&town.http, Duration::from_secs(30)).await?;
        }
        Ok(town)
    }

    async fn suffer(&mut self, act: Act) -> Result<()> {
        match act {
            Act::KillService(at) => {
                let service = self.services.get_mut(at).context("no such service")?;
                service.kill();
                service.spawn()?;
                let took = service.ready(&self.http, RECOVERY + NOISE).await?;
                self.slowest = self.slowest.max(took);
            }
            Act::KillDatabase(pause) => {
                self.with_cluster(Cluster::kill).await?;
                sleep(pause).await;
                self.with_cluster(Cluster::up).await?;
                self.all_recover().await?;
            }
            Act::RestartDatabase => {
                self.with_cluster(|cluster| {
                    cluster.stop();
                    cluster.up()
                })
                .await?;
                self.all_recover().await?;
            }
            Act::Slow(at, time) => self.weather(at, Weather::Slow(Duration::from_millis(50)), time).await,
            Act::Cut(at, time) => self.weather(at, Weather::Cut, time).await,
            Act::Swallow(at, time) => self.weather(at, Weather::Swallow, time).await,
        }
        Ok(())
    }

    async fn weather(&self, at: usize, weather: Weather, time: Duration) {
        if let Some(link) = self.links.get(at) {
            link.set(weather);
            sleep(time).await;
            link.set(Weather::Fair);
        }
    }

    async fn all_recover(&mut self) -> Result<()> {
        let since = Instant::now();
        for service in &mut self.services {
            service.ready(&self.http, RECOVERY + NOISE).await?;
        }
        self.slowest = self.slowest.max(since.elapsed());
        Ok(())
    }

    async fn with_cluster(&self, act: impl FnOnce(&mut Cluster) -> Result<()> + Send + 'static) -> Result<()> {
        let cluster = Arc::clone(&self.cluster);
        tokio::task::spawn_blocking(move || match cluster.lock() {
            Ok(mut cluster) => act(&mut cluster),
            Err(_) => anyhow::bail!("an act panicked"),
        })
        .await?
    }
}

async fn admin(cluster: &Cluster, sql: &str) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(&cluster.url("postgres"), tokio_postgres::NoTls).await?;
    let driver = tokio::spawn(connection);
    client.batch_execute(sql).await?;
    drop(client);
    Ok(driver.await??)
}

async fn sign_in(edge: &str) -> Result<Person> {
    let key = Credential::Account(AccountKey::generate());
    let token = ensemble_client::Client::builder(edge).credential(key).build()?.sign_in().await?;
    Ok(Person { token: token.token.expose_secret().to_owned(), id: token.user_id.to_string() })
}

/// The whole log of each session, from the beginning.
async fn read_all(client: &Client, token: &str, sessions: &[String]) -> Result<HashMap<String, Vec<Told>>> {
    let mut stored = HashMap::new();
    for session in sessions {
        let mut log: Vec<Told> = Vec::new();
        loop {
            let after = log.last().map_or(0, |last| last.seq);
            let page = page(client, token, session, &format!("after={after}&limit=500")).await?;
            if page.is_empty() {
                break;
            }
            log.extend(page);
        }
        stored.insert(session.clone(), log);
    }
    Ok(stored)
}

/// M5: pages from the end to the beginning tile the log.
async fn check_pages(client: &Client, token: &str, session: &str, length: usize) -> Option<String> {
    let mut expected = length as u64;
    let mut query = "limit=37".to_owned();
    while expected > 0 {
        let page = match page(client, token, session, &query).await {
            Ok(page) => page,
            Err(error) => return Some(format!("M5: {error:#}")),
        };
        for message in &page {
            if message.seq != expected {
                return Some(format!("M5: {} where {expected} should be", message.seq));
            }
            expected -= 1;
        }
        if page.is_empty() {
            return Some(format!("M5: the pages end at {expected}"));
        }
        query = format!("before={}&limit=37", expected + 1);
    }
    None
}

async fn page(client: &Client, token: &str, session: &str, query: &str) -> Result<Vec<Told>> {
    let path = format!("/v3/sessions/{session}/messages?{query}");
    // The town has just come to rest; its last connections may still have to notice.
    for _ in 0..50 {
        if let Some((200, page)) = client.call(token, "GET", &path, None).await {
            let messages = page.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
            return Ok(messages.iter().filter_map(|message| Told::from_json(session, message)).collect());
        }
        sleep(Duration::from_millis(200)).await;
    }
    anyhow::bail!("{path} was not answered although the town is at rest")
}
