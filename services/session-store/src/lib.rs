//! Sessions, their end-to-end encrypted messages, and their shares and public links.
//!
//! The service promises: an acknowledged message is stored once, with a `seq` that has no gap before it; a user who lost
//! access to a session sees nothing that was stored afterwards; a public link allows exactly as many uses as it says;
//! encrypted values are stored as they came and never read.

mod routes;

mod handlers;
mod operations;
mod workers;

mod domain;
mod store;

mod clients;
mod config;
mod error;
mod metrics;
mod rpc;

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::http::turns_of_callers;
use ensemble_chassis::live::LongEvents;
use ensemble_chassis::{Clock, Drain, KeySource, Routes, RpcMount, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::identity::AccountsClient;
use ensemble_rpc::machines::MachineDirectoryClient;
use ensemble_rpc::sessions::{mount_account_hints, mount_session_reader};
use ensemble_rpc::{Channel, PushGiver, RemoteKeys};
use ensemble_store_kit::{DatabaseUrl, Db, Migrations, Retention};
use futures_util::future::BoxFuture;

use crate::clients::Peers;
use crate::config::Config;
use crate::domain::push::PushRules;
use crate::domain::stream::LongEvent;
use crate::metrics::AppendMetrics;
use crate::operations::LatestPageCaches;
use crate::operations::append::Appender;
use crate::operations::hints::HintReaders;
use crate::operations::live::LiveFeeds;
use crate::operations::looks::Looks;
use crate::operations::quotas::Quotas;

/// The service, with what its operations need.
pub struct SessionStore {
    db: Db,
    appender: Appender,
    quotas: Quotas,
    latest_pages: LatestPageCaches,
    hint_readers: HintReaders,
    live_feeds: LiveFeeds,
    looks: Looks,
    long_events: LongEvents<LongEvent>,
    peers: Peers,
    keys: Arc<RemoteKeys>,
    clock: Clock,
    drain: Drain,
    share_base_url: String,
    online_for: Duration,
    push_rules: PushRules,
}

/// The schema, for tests that create databases with it.
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

    async fn build(config: Config, context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        let db =
            Db::open_measured(&config.database, migrations(), context.metrics.registry(), turns_of_callers).await?;
        let identity = Channel::new(&context, &config.identity);
        let registry = Channel::new(&context, &config.machine_registry);
        let keys = RemoteKeys::start(&context, &config.identity, config.key_refresh).await?;
        let peers = Peers::new(
            Arc::new(AccountsClient::new(identity)),
            Arc::new(MachineDirectoryClient::new(registry)),
            config.machine_cache,
        );
        let push_giver = PushGiver::new(&context, &config.identity);
        let drain = context.drain.clone();
        let has_peers = matches!(config.database.url, DatabaseUrl::Postgres(_));
        let live_feeds = LiveFeeds::new(has_peers);
        let looks = Looks::new(has_peers.then(|| db.clone()), config.look_wait);
        let hint_readers = HintReaders::default();
        let quotas = Quotas::new(config.quotas);
        let keeping = (config.keep_sessions, quotas.clone());
        let retention = Retention::new(context.metrics.registry())?;
        let purge = workers::purge::run(db.clone(), keeping, retention.clone(), config.purge_every, drain.clone());
        let closing = {
            let drain = drain.clone();
            async move { drain.closing().await }
        };
        let stored = retention.measure(db.clone(), closing, store::sessions::bytes_of_accounts);
        let workers = vec![
            Worker::new("hints", workers::hints::run(db.clone(), hint_readers.clone(), drain.clone())),
            Worker::new("live", workers::live::run(db.clone(), live_feeds.clone(), drain.clone())),
            Worker::new("looks", workers::looks::run(db.clone(), looks.clone(), hint_readers.clone(), drain.clone())),
            Worker::new("pushes", workers::pushes::give(db.clone(), push_giver, drain.clone())),
            Worker::new("absences", workers::pushes::note_absent(db.clone(), config.online_for, drain.clone())),
            Worker::new("sweep", workers::sweep::run(db.clone(), config.sweep_every, drain)),
            Worker::new("purge", purge),
            Worker::new("stored", stored),
        ];
        let metrics = AppendMetrics::new(&context.metrics)?;
        let service = Self {
            appender: Appender::start(&db, config.append, quotas.message_bytes.clone(), metrics)?,
            quotas,
            db,
            latest_pages: LatestPageCaches::new(),
            hint_readers,
            live_feeds,
            looks,
            long_events: LongEvents::default(),
            peers,
            keys,
            clock: context.clock,
            drain: context.drain,
            share_base_url: config.share_base_url,
            online_for: config.online_for,
            push_rules: config.push_rules,
        };
        Ok((Arc::new(service), workers))
    }

    async fn migrate(config: Config) -> Result<(), StartError> {
        Ok(Db::migrate(&config.database, migrations()).await?)
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }

    fn rpc(self: &Arc<Self>) -> Vec<RpcMount> {
        let mut mounts = mount_account_hints(Arc::new(rpc::Hints(self.db.clone())));
        mounts.extend(mount_session_reader(Arc::new(rpc::Briefs(Arc::clone(self)))));
        mounts
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.db.ready())
    }
}
