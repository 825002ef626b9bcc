//! What the operator may set.

use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_rpc::{KeyRefresh, Peer};
use ensemble_store_kit::{DatabaseConfig, database_config};

use crate::store::Terms;

pub struct Config {
    /// `DATABASE_URL` and what goes with it.
    pub(crate) database: DatabaseConfig,
    /// `IDENTITY_RPC_URL`: token keys come from there.
    pub(crate) identity: Peer,
    /// `MACHINE_REGISTRY_RPC_URL`: whose a machine is that a task is pinned to.
    pub(crate) machines: Peer,
    /// `KEYS_REFRESH_MS`, `KEYS_TRUSTED_MS`
    pub(crate) key_refresh: KeyRefresh,
    /// `ORCHESTRATOR_LEASE_MS` and the other terms of leases.
    pub(crate) terms: Terms,
    /// `ORCHESTRATOR_SWEEP_MS`: how often the database is looked at while nothing happens.
    pub(crate) sweep: Duration,
    /// `ORCHESTRATOR_SWEEP_LATE_MS`: a sweep that comes so much later than it should was away, and so were the runners.
    pub(crate) sweep_late: Duration,
    /// `ORCHESTRATOR_MACHINE_CACHE_MS`: how long it is remembered whose a machine is.
    pub(crate) machine_cache: Duration,
}

impl Config {
    pub(crate) fn read(vars: &mut Vars) -> Self {
        let terms = Terms {
            lease: vars.millis("ORCHESTRATOR_LEASE_MS", "how long a lease lives after a heartbeat", 30_000),
            first_beat: vars.millis(
                "ORCHESTRATOR_FIRST_BEAT_MS",
                "a lease whose first heartbeat takes longer goes back to the queue",
                10_000,
            ),
            timeout_grace: vars.millis(
                "ORCHESTRATOR_TIMEOUT_GRACE_MS",
                "how long after a task's timeout the service ends an attempt that its runner did not",
                30_000,
            ),
            runner_seen: vars.millis(
                "ORCHESTRATOR_RUNNER_SEEN_MS",
                "how long a runner counts as there after it asked for leases",
                60_000,
            ),
            max_losses: vars.parse("ORCHESTRATOR_MAX_MACHINE_LOSSES", "a task fails after so many lost machines", 3),
            max_unfinished: vars.parse("ORCHESTRATOR_MAX_UNFINISHED_TASKS", "unfinished tasks of an account", 20_000),
            output_cap: vars.parse("ORCHESTRATOR_OUTPUT_CAP_BYTES", "bytes of output kept of an attempt", 8 << 20),
        };
        Self {
            database: database_config!(vars, "orchestrator"),
            identity: Peer::identity(vars),
            machines: Peer::machine_registry(vars),
            key_refresh: KeyRefresh::configure(vars),
            terms,
            sweep: vars.millis("ORCHESTRATOR_SWEEP_MS", "how often lost wake-ups and timers are looked for", 5_000),
            sweep_late: vars.millis(
                "ORCHESTRATOR_SWEEP_LATE_MS",
                "a sweep that comes so much too late gives every lease a fresh life",
                10_000,
            ),
            machine_cache: vars.millis("ORCHESTRATOR_MACHINE_CACHE_MS", "how long a known machine is believed", 30_000),
        }
    }
}
