//! The settings that an operator can change.

use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_rpc::{KeyRefresh, Peer};
use ensemble_store_kit::{DatabaseConfig, database_config};

pub struct Config {
    /// `DATABASE_URL` and the variables that belong to it.
    pub(crate) database: DatabaseConfig,
    /// `IDENTITY_RPC_URL`: the source of token keys.
    pub(crate) identity: Peer,
    /// `MACHINE_REGISTRY_RPC_URL`: knows the owner of a machine that a task is pinned to.
    pub(crate) machines: Peer,
    /// `SESSION_STORE_RPC_URL`: hints of changed runs go there.
    pub(crate) session_store: Peer,
    /// `KEYS_REFRESH_MS`, `KEYS_TRUSTED_MS`
    pub(crate) key_refresh: KeyRefresh,
    /// `ORCHESTRATOR_LEASE_MS` and the other limits of leases, runs and outputs.
    pub(crate) limits: Limits,
    /// `ORCHESTRATOR_SWEEP_MS`: how often the service looks for missed notifications.
    pub(crate) sweep: Duration,
    /// `ORCHESTRATOR_SWEEP_LATE_MS`: a sweep that is late by more than this means that the service was stopped, so no
    /// heartbeat could arrive.
    pub(crate) sweep_late: Duration,
    /// `RUN_RETENTION_DAYS`: how long a run is kept after its end. `None`: until it is deleted.
    pub(crate) keep_runs: Option<Duration>,
    /// `ORCHESTRATOR_MACHINE_CACHE_MS`: how long the owner of a machine is cached.
    pub(crate) machine_cache: Duration,
}

/// How long things last, and how large they become.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// A lease expires this long after a heartbeat.
    pub(crate) lease: Duration,
    /// The first heartbeat must arrive within this time.
    pub(crate) first_heartbeat: Duration,
    /// A runner has this long after a task's timeout to end the attempt. Then the service ends it.
    pub(crate) timeout_grace: Duration,
    /// A runner counts as active for this long after it requested leases.
    pub(crate) runner_active: Duration,
    pub(crate) max_losses: i32,
    /// Unfinished tasks of an account.
    pub(crate) max_unfinished: i64,
    /// Stored output of an attempt.
    pub(crate) max_output_bytes: i64,
    /// `QUOTA_RUN_BYTES`: what the runs of an account take; 0 is no limit.
    pub(crate) max_run_bytes: i64,
}

impl Config {
    pub(crate) fn read(vars: &mut Vars) -> Self {
        Self {
            database: database_config!(vars, "orchestrator"),
            identity: Peer::identity(vars),
            machines: Peer::machine_registry(vars),
            session_store: Peer::session_store(vars),
            key_refresh: KeyRefresh::configure(vars),
            limits: Limits::read(vars),
            sweep: vars.millis("ORCHESTRATOR_SWEEP_MS", "how often missed notifications are looked for", 5_000),
            sweep_late: vars.millis(
                "ORCHESTRATOR_SWEEP_LATE_MS",
                "a sweep that is late by more than this extends every lease",
                10_000,
            ),
            keep_runs: days(vars.parse(
                "RUN_RETENTION_DAYS",
                "days after which a run that has ended is deleted with its output; 0 keeps it",
                0,
            )),
            machine_cache: vars.millis("ORCHESTRATOR_MACHINE_CACHE_MS", "how long a machine's owner is cached", 30_000),
        }
    }
}

fn days(count: u32) -> Option<Duration> {
    (count > 0).then(|| Duration::from_secs(u64::from(count) * 24 * 60 * 60))
}

impl Limits {
    fn read(vars: &mut Vars) -> Self {
        Self {
            lease: vars.millis("ORCHESTRATOR_LEASE_MS", "a lease expires this long after a heartbeat", 30_000),
            first_heartbeat: vars.millis(
                "ORCHESTRATOR_FIRST_BEAT_MS",
                "a lease without a first heartbeat within this time goes back to the queue",
                10_000,
            ),
            timeout_grace: vars.millis(
                "ORCHESTRATOR_TIMEOUT_GRACE_MS",
                "how long after a task's timeout the service ends an attempt that its runner has not ended",
                30_000,
            ),
            runner_active: vars.millis(
                "ORCHESTRATOR_RUNNER_SEEN_MS",
                "a runner counts as active for this long after it requested leases",
                60_000,
            ),
            max_losses: vars.parse("ORCHESTRATOR_MAX_MACHINE_LOSSES", "a task fails after this many lost machines", 3),
            max_unfinished: vars.parse("ORCHESTRATOR_MAX_UNFINISHED_TASKS", "unfinished tasks of an account", 20_000),
            max_output_bytes: vars.parse(
                "ORCHESTRATOR_OUTPUT_CAP_BYTES",
                "stored bytes of an attempt's output",
                8 << 20,
            ),
            max_run_bytes: vars.parse(
                "QUOTA_RUN_BYTES",
                "bytes of the runs of an account: texts, stored output, 512 for each task and attempt; 0 is no limit",
                10 << 30,
            ),
        }
    }
}
