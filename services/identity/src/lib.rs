//! Accounts and credentials: who is who, and what proves it.
//!
//! This service promises: an account is a key pair, and nobody acts for it without the key or a token that the key
//! asked for; a sign-in cannot be repeated, nor passed on by another server; a revoked token stops working everywhere
//! within seconds; signing keys change without anybody noticing.

mod routes;

mod handlers;
mod rpc;
mod workers;

mod domain;
mod keys;
mod store;

mod config;
mod error;
mod metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ensemble_chassis::{KeySource, Routes, RpcMount, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::identity::{mount_accounts, mount_keys};
use ensemble_store_kit::{DatabaseConfig, Db, Migrate, Migrations};
use futures_util::future::BoxFuture;

use crate::config::{Config, Rules};
use crate::keys::{KeyRing, Vault};
use crate::metrics::IdentityMetrics;
use crate::store::Store;

/// The service, with all that its handlers need.
pub struct Identity {
    store: Store,
    ring: Arc<KeyRing>,
    rules: Rules,
    challenges: Arc<OpenChallenges>,
    metrics: IdentityMetrics,
}

/// How many challenges are out, about: counted by a worker, so that giving one does not count them all.
#[derive(Debug, Default)]
struct OpenChallenges(AtomicI64);

/// The schema, for tests that make databases of it.
pub fn migrations() -> Migrations {
    ensemble_store_kit::migrations!()
}

impl Service for Identity {
    const NAME: &'static str = "identity";
    const DEFAULT_PORT: u16 = 8081;
    type Config = Config;

    fn configure(vars: &mut Vars) -> Config {
        Config::read(vars)
    }

    fn routes() -> Routes {
        routes::table()
    }

    async fn build(config: Config, context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        let previous = config.previous_key_file.as_deref();
        let vault = Vault::read(&config.key_file, previous)
            .map_err(|error| anyhow::anyhow!("KEY_ENCRYPTION_KEY_FILE {}: {error}", config.key_file.display()))?;
        let db = Db::open(&config.database, migrations()).await?;
        db.register(context.metrics.registry())?;
        let store = Store::new(db);
        let ring = Arc::new(KeyRing::open(store.clone(), vault, config.schedule, config.keys_trusted_for).await?);
        let challenges = Arc::<OpenChallenges>::default();
        let metrics = IdentityMetrics::new(&context.metrics, &ring, &challenges)?;
        let loops = workers::Loops {
            store: store.clone(),
            ring: Arc::clone(&ring),
            challenges: Arc::clone(&challenges),
            ring_refresh: config.ring_refresh,
            sweep_every: config.sweep_every,
            drain: context.drain,
        };
        let workers = vec![Worker::new("key ring", loops.clone().turn_keys()), Worker::new("sweep", loops.sweep())];
        Ok((Arc::new(Self { store, ring, rules: config.rules, challenges, metrics }), workers))
    }

    async fn migrate(config: Config) -> Result<(), StartError> {
        let database = DatabaseConfig { migrate: Migrate::Auto, ..config.database };
        Ok(Db::open(&database, migrations()).await.map(drop)?)
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.ring) as Arc<dyn KeySource>
    }

    fn rpc(self: &Arc<Self>) -> Vec<RpcMount> {
        let door = Arc::new(rpc::Door { store: self.store.clone(), ring: Arc::clone(&self.ring) });
        let mut mounts = mount_keys(Arc::clone(&door) as Arc<dyn ensemble_rpc::identity::Keys>);
        mounts.extend(mount_accounts(door));
        mounts
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.store.ready())
    }
}

impl OpenChallenges {
    fn count(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn counted(&self, open: i64) {
        self.0.store(open, Ordering::Relaxed);
    }
}
