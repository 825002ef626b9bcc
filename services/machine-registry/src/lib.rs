//! Machines: the computers on which a user's agents run.
//!
//! This service promises: a machine belongs to one account for ever; what its owner sealed is stored as it came and never
//! read; presence is decided by the database's clock; a deleted machine's tokens and leases end, even when the services
//! that hold them cannot be reached at the time.

mod routes;

mod handlers;
mod rpc;
mod workers;

mod operations;

mod clients;
mod domain;
mod store;

mod config;
mod error;

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::http::turns_of_callers;
use ensemble_chassis::{KeySource, Routes, RpcMount, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::identity::AccountsClient;
use ensemble_rpc::machines::{MachineDirectory, mount_machine_directory};
use ensemble_rpc::orchestrator::MachineLeasesClient;
use ensemble_rpc::{Channel, HintSender, RemoteKeys};
use ensemble_store_kit::{Db, Migrations, hints};
use futures_util::future::BoxFuture;

use crate::clients::DeletionPeers;
use crate::config::Config;
use crate::operations::presence::Presences;
use crate::rpc::Directory;
use crate::store::machines::OnlineFor;
use crate::workers::{Absences, DeletionNotifier};

/// The service: what its handlers and workers share.
pub struct MachineRegistry {
    db: Db,
    online_for: OnlineFor,
    /// Of an account; 0 is no limit.
    max_machines: i64,
    presences: Presences,
    keys: Arc<RemoteKeys>,
    peers: DeletionPeers,
    /// How long a request that deletes a machine has to notify the peers, before the worker does it.
    notify_within: Duration,
}

/// The schema, for tests that make databases of it.
pub fn migrations() -> Migrations {
    ensemble_store_kit::migrations!()
}

impl Service for MachineRegistry {
    const NAME: &'static str = "machine-registry";
    const DEFAULT_PORT: u16 = 8082;
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
        let keys = RemoteKeys::start(&context, &config.identity, config.key_refresh).await?;
        let peers = DeletionPeers {
            accounts: Arc::new(AccountsClient::new(Channel::new(&context, &config.identity))),
            leases: Arc::new(MachineLeasesClient::new(Channel::new(&context, &config.orchestrator))),
        };
        let notify_within = config.departure_retry + config.identity.deadline.max(config.orchestrator.deadline);
        let deletion_notifier = DeletionNotifier {
            db: db.clone(),
            peers: peers.clone(),
            retry_after: config.departure_retry,
            drain: context.drain.clone(),
        };
        let presences = Presences::default();
        let absences = Absences {
            db: db.clone(),
            presences: presences.clone(),
            online_for: config.online_for,
            clock: context.clock.clone(),
            drain: context.drain.clone(),
        };
        let (sender, drain) = (HintSender::new(&context, &config.session_store), context.drain);
        let closing = async move { drain.closing().await };
        let hints = hints::forward(db.notifier().tap(), closing, move |given| sender.send(given));
        let workers = vec![
            Worker::new("deletion notifier", deletion_notifier.run()),
            Worker::new("absences", absences.run()),
            Worker::new("hints", hints),
        ];
        let (online_for, max_machines) = (config.online_for, config.max_machines);
        Ok((Arc::new(Self { db, online_for, max_machines, presences, keys, peers, notify_within }), workers))
    }

    async fn migrate(config: Config) -> Result<(), StartError> {
        Ok(Db::migrate(&config.database, migrations()).await?)
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }

    fn rpc(self: &Arc<Self>) -> Vec<RpcMount> {
        mount_machine_directory(Arc::new(Directory(Arc::clone(self))) as Arc<dyn MachineDirectory>)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.db.ready())
    }
}
