//! Sessions: who works on what, with a sealed history of messages, shared with whom.
//!
//! This service promises: an acknowledged message is there, once, under a number that has no gap before it; whoever lost
//! access gets nothing that was decided later; a link lets in exactly as many as it says; what is sealed is never read.

mod routes;

mod handlers;
mod workers;

mod domain;
mod store;

mod clients;
mod config;
mod error;
mod metrics;

use std::sync::Arc;

use ensemble_chassis::{Clock, Drain, KeySource, Routes, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::identity::{AccountsClient, KeysClient};
use ensemble_rpc::machines::MachineDirectoryClient;
use ensemble_rpc::{Channel, RemoteKeys};
use ensemble_store_kit::{DatabaseConfig, Db, Migrate, Migrations};
use futures_util::future::BoxFuture;

use crate::clients::Peers;
use crate::config::Config;
use crate::metrics::AppendMetrics;
use crate::store::{Appender, Store};

/// The service, with all that its handlers need.
pub struct SessionStore {
    store: Store,
    appender: Appender,
    peers: Peers,
    keys: Arc<RemoteKeys>,
    clock: Clock,
    drain: Drain,
    share_base_url: String,
}

/// The schema, for tests that make databases of it.
pub fn migrations() -> Migrations {
    ensemble_store_kit::migrations!()
}

impl Service for SessionStore {
    const NAME: &'static str = "session-store";
    const DEFAULT_PORT: u16 = 8083;
    type Config = Config;

    fn configure(vars: &mut Vars) -> Config {
        Config::read(vars)
    }

    fn routes() -> Routes {
        routes::table()
    }

    async fn build(config: Config, context: ServiceContext) -> Result<(Self, Vec<Worker>), StartError> {
        let db = Db::open(&config.database, migrations()).await?;
        db.register(context.metrics.registry())?;
        let identity = Channel::new(&context, &config.identity);
        let registry = Channel::new(&context, &config.machine_registry);
        let keys = RemoteKeys::start(Arc::new(KeysClient::new(identity.clone())), config.key_refresh).await;
        keys.register(&context.metrics)?;
        let peers = Peers::new(
            Arc::new(AccountsClient::new(identity)),
            Arc::new(MachineDirectoryClient::new(registry)),
            config.machine_cache,
        );
        let (store, drain) = (Store::new(db.clone(), config.online_for), &context.drain);
        let workers = vec![
            Worker::new("sweep", workers::sweep(store.clone(), config.sweep_every, drain.clone())),
            Worker::new("purge", workers::purge(store.clone(), config.purge_every, drain.clone())),
        ];
        let service = Self {
            appender: Appender::start(db, config.append, AppendMetrics::new(&context.metrics)?)?,
            store,
            peers,
            keys,
            clock: context.clock,
            drain: context.drain,
            share_base_url: config.share_base_url,
        };
        Ok((service, workers))
    }

    async fn migrate(config: Config) -> Result<(), StartError> {
        let database = DatabaseConfig { migrate: Migrate::Auto, ..config.database };
        Ok(Db::open(&database, migrations()).await.map(drop)?)
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.store.ready())
    }
}
