//! orchestrator: runs of tasks with dependencies, which coding agents execute on the machines of their owners.
//!
//! Its promises:
//! - A task is started at least once and completed at most once. At most one attempt of it runs at a time.
//! - A report about an attempt that was superseded changes nothing.
//! - A run that was accepted ends, even when runners or replicas fail.
//! - Nothing polls while nothing happens.
//!
//! All state is in the database, so any replica can grant leases, answer requests and stream events.

mod config;
mod error;
mod metrics;
mod routes;

mod clients;
mod domain;
mod handlers;
mod operations;
mod rpc;
mod store;
mod workers;

use std::sync::Arc;

use ensemble_chassis::http::turns_of_callers;
use ensemble_chassis::live::LongEvents;
use ensemble_chassis::{Clock, Drain, KeySource, Routes, RpcMount, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::machines::MachineDirectoryClient;
use ensemble_rpc::orchestrator::{MachineLeases, mount_machine_leases, mount_run_reader};
use ensemble_rpc::{Channel, HintSender, PushGiver, RemoteKeys};
use ensemble_store_kit::{Db, Migrations, Quota, Retention, hints};
use futures_util::future::BoxFuture;

use crate::clients::Machines;
use crate::config::{Config, Limits};
use crate::metrics::RunMetrics;
use crate::operations::{LeaseReports, PerAccountLock};
use crate::rpc::{Briefs, MachineDeletions};
use crate::workers::{ActiveRunners, Alarm, Timers, gauges, purge, pushes, unsettled};

/// The fuzz tests parse ranges too.
pub use crate::domain::byte_range;

/// The service, with everything that its handlers need.
pub struct Orchestrator {
    db: Db,
    limits: Limits,
    /// What the runs of an account take.
    run_bytes: Quota,
    lease_reports: LeaseReports,
    per_account_lock: PerAccountLock,
    machines: Machines,
    keys: Arc<RemoteKeys>,
    clock: Clock,
    drain: Drain,
    alarm: Alarm,
    active_runners: ActiveRunners,
    metrics: RunMetrics,
    long_events: LongEvents<handlers::events::RunEvent>,
}

/// The schema, for tests that create databases with it.
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

    async fn build(config: Config, context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        let db =
            Db::open_measured(&config.database, migrations(), context.metrics.registry(), turns_of_callers).await?;
        let directory = MachineDirectoryClient::new(Channel::new(&context, &config.machines));
        let keys = RemoteKeys::start(&context, &config.identity, config.key_refresh).await?;
        let metrics = RunMetrics::new(&context.metrics)?;
        let (alarm, drain) = (Alarm::default(), context.drain.clone());
        let active_runners = ActiveRunners::new(db.clone(), config.limits.runner_active);
        let timers = Timers {
            db: db.clone(),
            limits: config.limits,
            active_runners: active_runners.clone(),
            alarm: alarm.clone(),
            metrics: metrics.clone(),
            sweep: config.sweep,
            sweep_late: config.sweep_late,
            drain: drain.clone(),
        };
        let gauges = gauges::run(db.clone(), metrics.clone(), drain.clone());
        let run_bytes = Quota::new("runBytes", config.limits.max_run_bytes);
        let retention = Retention::new(context.metrics.registry())?;
        let purge = purge::run(db.clone(), (config.keep_runs, run_bytes.clone()), retention.clone(), drain.clone());
        let unsettled = unsettled::run(db.clone(), drain.clone());
        let until = {
            let drain = drain.clone();
            async move { drain.closing().await }
        };
        let stored = retention.measure(db.clone(), until, store::runs::bytes_of_accounts);
        let pushes = pushes::run(db.clone(), PushGiver::new(&context, &config.identity), drain.clone());
        let sender = HintSender::new(&context, &config.session_store);
        let closing = async move { drain.closing().await };
        let hints = hints::forward(db.notifier().tap(), closing, move |given| sender.send(given));
        let workers = vec![
            Worker::new("timers", timers.run()),
            Worker::new("unsettled", unsettled),
            Worker::new("purge", purge),
            Worker::new("stored", stored),
            Worker::new("gauges", gauges),
            Worker::new("hints", hints),
            Worker::new("pushes", pushes),
        ];
        let service = Self {
            lease_reports: LeaseReports::start(&db, config.limits, run_bytes.clone(), config.database.timeout)?,
            per_account_lock: PerAccountLock::default(),
            machines: Machines::new(Arc::new(directory), config.machine_cache),
            keys,
            clock: context.clock,
            drain: context.drain,
            alarm,
            active_runners,
            metrics,
            long_events: LongEvents::default(),
            run_bytes,
            limits: config.limits,
            db,
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
        let deletions = MachineDeletions {
            db: self.db.clone(),
            max_losses: self.limits.max_losses,
            machines: self.machines.clone(),
            active_runners: self.active_runners.clone(),
        };
        let mut mounts = mount_machine_leases(Arc::new(deletions) as Arc<dyn MachineLeases>);
        mounts.extend(mount_run_reader(Arc::new(Briefs(self.db.clone()))));
        mounts
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.db.ready())
    }
}
