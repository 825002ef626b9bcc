//! The stack: PostgreSQL, the services, and the links between them, all on this machine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use ensemble_client::Credential;
use ensemble_protocol::AccountKey;
use ensemble_testkit::postgres::{Cluster, Durability};
use secrecy::ExposeSecret;
use tokio::task::spawn_blocking;

use crate::clients::User;
use crate::process::Process;
use crate::proxy::{Link, LinkState};

/// The slowest reactions of the stack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slowest {
    /// From the start of a killed service to its readiness.
    pub(crate) start: Duration,
    /// From the end of a fault to a response for every kind of request.
    pub(crate) recovery: Duration,
    /// From a request to the refusal because the database is unavailable.
    pub(crate) refusal: Duration,
}

pub(crate) struct Stack {
    cluster: Arc<Mutex<Cluster>>,
    /// The edge is the last.
    pub(crate) services: Vec<Process>,
    pub(crate) links: Vec<Link>,
    pub(crate) http: reqwest::Client,
    pub(crate) slowest: Slowest,
    /// The token for checking whether clients are served.
    pub(crate) probe: String,
}

/// Each has a database of the same name. The edge has none.
const SERVICES: [&str; 4] = ["identity", "machine-registry", "session-store", "orchestrator"];

/// One path of each service.
pub(crate) const PROBES: [&str; 4] = ["/v1/account", "/v1/machines", "/v1/sessions", "/v1/orchestrator/runs"];

impl Stack {
    /// Starts everything. The logs go to `folder`.
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
        let to_store = format!("http://{}", store.internal);
        for requester in [&mut *identity, &mut *registry, &mut *orchestrator] {
            requester.set("SESSION_STORE_RPC_URL", &to_store);
        }
        // The edge reaches each service over a link. The services reach machine-registry over a link.
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
        for requester in [store, orchestrator] {
            requester.set("MACHINE_REGISTRY_RPC_URL", format!("http://{}", to_registry.addr));
        }
        links.push(to_registry);
        let identity_rpc = format!("http://{}", services.first().context("no identity")?.internal);
        services.push(edge);
        for service in &mut services {
            service.set("IDENTITY_RPC_URL", &identity_rpc);
        }
        let mut stack = Self {
            cluster: Arc::new(Mutex::new(cluster)),
            services,
            links,
            http: reqwest::Client::builder().no_proxy().build()?,
            slowest: Slowest::default(),
            probe: String::new(),
        };
        for service in &mut stack.services {
            service.spawn()?;
            service.ready(&stack.http, Duration::from_secs(60)).await?;
        }
        Ok(stack)
    }

    /// The address of the edge.
    pub(crate) fn edge(&self) -> Result<String> {
        Ok(self.services.last().context("no edge")?.url())
    }

    pub(crate) async fn sign_in(&self) -> Result<User> {
        let key = Credential::Account(AccountKey::generate());
        let token = ensemble_client::Client::builder(&self.edge()?).credential(key).build()?.sign_in().await?;
        Ok(User { token: token.token.expose_secret().to_owned(), id: token.user_id.to_string() })
    }

    /// Whether every service answers a client through the edge.
    pub(crate) async fn answers(&self) -> bool {
        let Ok(edge) = self.edge() else { return false };
        for path in PROBES {
            let sent = self.http.get(format!("{edge}{path}")).bearer_auth(&self.probe).timeout(Duration::from_secs(1));
            if !sent.send().await.is_ok_and(|answer| answer.status().is_success()) {
                return false;
            }
        }
        true
    }

    /// Sends many requests at once, so that pools of connections and threads reach their full size before the
    /// measurement.
    pub(crate) async fn fill_pools(&self) -> Result<()> {
        let edge = self.edge()?;
        let ask = async |path: &str| {
            let sent = self.http.get(format!("{edge}{path}")).bearer_auth(&self.probe).send().await;
            sent.map(|answer| answer.status())
        };
        for _ in 0..5 {
            futures_util::future::join_all((0..48).flat_map(|_| PROBES).map(ask)).await;
        }
        Ok(())
    }

    pub(crate) fn heal(&self) {
        for link in &self.links {
            link.set(LinkState::Open);
        }
    }

    pub(crate) async fn with_cluster(
        &self,
        fault: impl FnOnce(&mut Cluster) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let cluster = Arc::clone(&self.cluster);
        spawn_blocking(move || match cluster.lock() {
            Ok(mut cluster) => fault(&mut cluster),
            Err(_) => anyhow::bail!("a fault panicked"),
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
