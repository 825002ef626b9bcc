//! The settings of the operator.

use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_rpc::{KeyRefresh, Peer};
use ensemble_store_kit::{DatabaseConfig, database_config};

pub struct Config {
    /// `DATABASE_URL` and what goes with it.
    pub database: DatabaseConfig,
    /// `IDENTITY_RPC_URL`: token keys come from there, and revocations of a deleted machine's tokens go there.
    pub identity: Peer,
    /// `ORCHESTRATOR_RPC_URL`: the ends of a deleted machine's leases go there.
    pub orchestrator: Peer,
    /// `SESSION_STORE_RPC_URL`: hints of changed machines go there.
    pub session_store: Peer,
    /// `KEYS_REFRESH_MS`, `KEYS_TRUSTED_MS`
    pub key_refresh: KeyRefresh,
    /// `MACHINE_ONLINE_MS`: how long a machine counts as online after a heartbeat.
    pub online_for: Duration,
    /// `QUOTA_MACHINES`: machines of an account; 0 is no limit.
    pub max_machines: i64,
    /// `DEPARTURE_RETRY_MS`: when a peer that could not be notified of a deletion is notified again.
    pub departure_retry: Duration,
}

impl Config {
    pub fn read(vars: &mut Vars) -> Self {
        Self {
            database: database_config!(vars, "machine-registry"),
            identity: Peer::identity(vars),
            orchestrator: Peer::orchestrator(vars),
            session_store: Peer::session_store(vars),
            key_refresh: KeyRefresh::configure(vars),
            online_for: vars.millis(
                "MACHINE_ONLINE_MS",
                "how long a machine counts as online after a heartbeat",
                60_000,
            ),
            max_machines: vars.parse("QUOTA_MACHINES", "machines of an account; 0 is no limit", 1_000),
            departure_retry: vars.millis(
                "DEPARTURE_RETRY_MS",
                "when a peer that could not be notified of a deleted machine is notified again",
                5_000,
            ),
        }
    }
}
