//! The town: PostgreSQL, the services and the links between them, all on this machine and all breakable.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use ensemble_client::{AccountKey, Credential};
use ensemble_testkit::postgres::{Cluster, Durability};
use secrecy::ExposeSecret;
use tokio::task::spawn_blocking;

use crate::people::Person;
use crate::proxy::{Link, Weather};
use crate::stage::Process;

/// The longest that the town needed to be itself again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slowest {
    /// From the start of a killed service to its readiness.
    pub(crate) start: Duration,
    /// From the end of a fault to an answer for every kind of request.
    pub(crate) recovery: Duration,
    /// From a question to the answer that the database is away.
    pub(crate) told: Duration,
}

pub(crate) struct Town {
    cluster: Arc<Mutex<Cluster>>,
    /// The edge is the last.
    pub(crate) services: Vec<Process>,
    pub(crate) links: Vec<Link>,
    pub(crate) http: reqwest::Client,
    pub(crate) slowest: Slowest,
    /// With whose token it is tried whether clients are answered.
    pub(crate) probe: String,
}

/// Each has a database of the same name; the edge has none.
const SERVICES: [&str; 4] = ["identity", "machine-registry", "session-store", "orchestrator"];

/// Something that each of them answers.
pub(crate) const PROBES: [&str; 4] = ["/v1/account", "/v1/machines", "/v1/sessions", "/v1/orchestrator/runs"];

impl Town {
    /// `folder` gets the logs.
    pub(crate) async fn build(folder: &std::path::Path) -> Result<Self> {
        let cluster = spawn_blocking(|| Cluster::start(Durability::Full)).await??;
        let key = folder.join("key");
        std::fs::write(&key, [7; 32])?;
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o400))?;
        let mut links = Vec::new();
        let mut services = Vec::new();
        for name in SERVICES {
            let database = name.replace('-', "_");
            admin(&cluster, &format!("CREATE DATABASE {database}")).await?;
            let link = Link::to(([127, 0, 0, 1], cluster.port()).into()).await?;
            let url = format!("postgres://postgres:canary-password@{}/{database}", link.addr);
            links.push(link);
            let mut service = Process::new(name, folder, &common(&key))?;
            service.set("DATABASE_URL", url);
            service.set("DATABASE_POOL_SIZE", "8");
            services.push(service);
        }
        let mut edge = Process::new("edge-proxy", folder, &common(&key))?;
        let public = edge.url();
        edge.set("PUBLIC_BASE_URL", &public);
        for limit in ["ACCOUNT", "ADDRESS", "SIGN_IN", "PUBLIC_LINK", "NEW_ACCOUNTS"] {
            edge.set(&format!("LIMIT_{limit}"), "0");
        }
        edge.set("VOICE_GATEWAY_URL", "http://127.0.0.1:9");
        let [identity, registry, store, orchestrator] = services.as_mut_slice() else { anyhow::bail!("four services") };
        identity.set("PUBLIC_ORIGINS", &public);
        registry.set("ORCHESTRATOR_RPC_URL", format!("http://{}", orchestrator.internal));
        // The edge reaches each service over a link, and so does the store its peer.
        for (service, name) in [
            (&*identity, "IDENTITY_URL"),
            (&*registry, "MACHINE_REGISTRY_URL"),
            (&*store, "SESSION_STORE_URL"),
            (&*orchestrator, "ORCHESTRATOR_URL"),
        ] {
            let link = Link::to(service.public).await?;
            edge.set(name, format!("http://{}", link.addr));
            links.push(link);
        }
        let to_registry = Link::to(registry.internal).await?;
        for asker in [store, orchestrator] {
            asker.set("MACHINE_REGISTRY_RPC_URL", format!("http://{}", to_registry.addr));
        }
        links.push(to_registry);
        let identity_rpc = format!("http://{}", services.first().context("no identity")?.internal);
        services.push(edge);
        for service in &mut services {
            service.set("IDENTITY_RPC_URL", &identity_rpc);
        }
        let mut town = Self {
            cluster: Arc::new(Mutex::new(cluster)),
            services,
            links,
            http: reqwest::Client::builder().no_proxy().build()?,
            slowest: Slowest::default(),
            probe: String::new(),
        };
        for service in &mut town.services {
            service.spawn()?;
            service.ready(&town.http, Duration::from_secs(60)).await?;
        }
        Ok(town)
    }

    /// Where people reach it.
    pub(crate) fn edge(&self) -> Result<String> {
        Ok(self.services.last().context("no edge")?.url())
    }

    pub(crate) async fn sign_in(&self) -> Result<Person> {
        let key = Credential::Account(AccountKey::generate());
        let token = ensemble_client::Client::builder(&self.edge()?).credential(key).build()?.sign_in().await?;
        Ok(Person { token: token.token.expose_secret().to_owned(), id: token.user_id.to_string() })
    }

    /// Whether a client gets an answer from every service, by way of the edge.
    pub(crate) async fn answers(&self) -> bool {
        let Ok(edge) = self.edge() else { return false };
        for path in PROBES {
            let asked = self.http.get(format!("{edge}{path}")).bearer_auth(&self.probe).timeout(Duration::from_secs(1));
            if !asked.send().await.is_ok_and(|answer| answer.status().is_success()) {
                return false;
            }
        }
        true
    }

    /// Asks for so much at once that pools of connections and threads are as large as they may become: how large that is
    /// belongs to peace, and only what comes on top of it in bad times was not let go of.
    pub(crate) async fn crowd(&self) -> Result<()> {
        let edge = self.edge()?;
        let ask = async |path: &str| {
            let asked = self.http.get(format!("{edge}{path}")).bearer_auth(&self.probe).send().await;
            asked.map(|answer| answer.status())
        };
        for _ in 0..5 {
            futures_util::future::join_all((0..48).flat_map(|_| PROBES).map(ask)).await;
        }
        Ok(())
    }

    pub(crate) fn heal(&self) {
        for link in &self.links {
            link.set(Weather::Fair);
        }
    }

    pub(crate) async fn with_cluster(
        &self,
        act: impl FnOnce(&mut Cluster) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let cluster = Arc::clone(&self.cluster);
        spawn_blocking(move || match cluster.lock() {
            Ok(mut cluster) => act(&mut cluster),
            Err(_) => anyhow::bail!("an act panicked"),
        })
        .await?
    }
}

fn common(key: &std::path::Path) -> [(&'static str, String); 3] {
    [
        ("INTERNAL_TOKEN", "canary-internal-token".to_owned()),
        ("KEY_ENCRYPTION_KEY_FILE", key.display().to_string()),
        ("RUST_LOG", "info".to_owned()),
    ]
}

async fn admin(cluster: &Cluster, sql: &str) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(&cluster.url("postgres"), tokio_postgres::NoTls).await?;
    let driver = tokio::spawn(connection);
    client.batch_execute(sql).await?;
    drop(client);
    Ok(driver.await??)
}
