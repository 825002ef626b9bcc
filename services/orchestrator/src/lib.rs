//! orchestrator: runs of tasks that depend on each other, done by coding agents on their owners' machines.
//!
//! It promises: a task is started at least once and completed at most once; a report of an attempt that was overtaken
//! changes nothing; a run that was accepted ends, whatever dies on the way; nobody asks again and again while nothing
//! happens. All state is in the database, so any replica schedules, answers and streams.

pub mod domain;

mod clients;
mod handlers;
mod routes;
mod rpc;
mod store;
mod workers;

mod config;
mod error;
mod metrics;

use std::sync::Arc;

use ensemble_chassis::{Clock, Drain, KeySource, Routes, RpcMount, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::identity::KeysClient;
use ensemble_rpc::machines::MachineDirectoryClient;
use ensemble_rpc::orchestrator::{MachineLeases, mount_machine_leases};
use ensemble_rpc::{Channel, RemoteKeys};
use ensemble_store_kit::{Db, Migrate, Migrations};
use ensemble_types::leases::{FinishStatus, Lease};
use ensemble_types::runs::TaskError;
use futures_util::future::BoxFuture;

use crate::clients::Machines;
use crate::config::Config;
use crate::error::Error;
use crate::metrics::RunMetrics;
use crate::rpc::Farewells;
use crate::store::{LeaseCall, Report, Store, Wanted};
use crate::workers::{Nudge, Roster, Timers};

/// The service, with all that its handlers need.
pub struct Orchestrator {
    store: Store,
    machines: Machines,
    keys: Arc<RemoteKeys>,
    clock: Clock,
    drain: Drain,
    nudge: Nudge,
    roster: Roster,
    metrics: RunMetrics,
}

/// The schema, for tests that make databases of it.
pub fn migrations() -> Migrations {
    ensemble_store_kit::migrations!()
}

impl Service for Orchestrator {
    const NAME: &'static str = "orchestrator";
    const DEFAULT_PORT: u16 = 8084;
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
        let store = Store::new(db, config.terms);
        let directory = MachineDirectoryClient::new(Channel::new(&context, &config.machines));
        let identity = Arc::new(KeysClient::new(Channel::new(&context, &config.identity)));
        let keys = RemoteKeys::start(identity, config.key_refresh).await;
        keys.register(&context.metrics)?;
        let metrics = RunMetrics::new(&context.metrics)?;
        let nudge = Nudge::default();
        let roster = Roster::new(store.clone());
        let timers = Timers {
            store: store.clone(),
            roster: roster.clone(),
            nudge: nudge.clone(),
            metrics: metrics.clone(),
            sweep: config.sweep,
            sweep_late: config.sweep_late,
            drain: context.drain.clone(),
        };
        let census = workers::census::count(store.clone(), metrics.clone(), context.drain.clone());
        let workers = vec![Worker::new("timers", timers.run()), Worker::new("census", census)];
        let service = Self {
            store,
            machines: Machines::new(Arc::new(directory), config.machine_cache),
            keys,
            clock: context.clock,
            drain: context.drain,
            nudge,
            roster,
            metrics,
        };
        Ok((service, workers))
    }

    async fn migrate(config: Config) -> Result<(), StartError> {
        let mut database = config.database;
        database.migrate = Migrate::Auto;
        Ok(Db::open(&database, migrations()).await.map(drop)?)
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }

    fn rpc(self: &Arc<Self>) -> Vec<RpcMount> {
        let (store, machines, roster) = (self.store.clone(), self.machines.clone(), self.roster.clone());
        let farewells = Farewells { store, machines, roster };
        mount_machine_leases(Arc::new(farewells) as Arc<dyn MachineLeases>)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.store.ready())
    }
}

impl Orchestrator {
    /// Leases for a runner. A task whose prompt would be too large with the outputs in it ends here.
    async fn grant(&self, wanted: &Wanted) -> Result<Vec<Lease>, Error> {
        loop {
            let granted = self.store.grant(wanted.clone()).await?;
            for (lease, fence) in &granted.too_large {
                let call =
                    LeaseCall { lease: *lease, owner: wanted.owner, machine: wanted.machine.clone(), fence: *fence };
                self.store.finish(call, Report::of(prompt_too_large())).await?;
            }
            if !granted.leases.is_empty() {
                self.nudge.within(self.store.terms().first_beat);
            }
            if !granted.leases.is_empty() || granted.too_large.is_empty() {
                return Ok(granted.leases);
            }
        }
    }
}

impl Report {
    /// An attempt that never began.
    fn of(error: TaskError) -> Self {
        Self {
            status: FinishStatus::Failed,
            error: Some(error),
            exit_code: None,
            output_summary: None,
            provider_session_id: None,
            usage: None,
        }
    }
}

fn prompt_too_large() -> TaskError {
    TaskError {
        code: "PROMPT_TOO_LARGE".to_owned(),
        message: "With the outputs of other tasks in it the prompt would be larger than 1 MiB.".to_owned(),
    }
}
