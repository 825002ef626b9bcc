//! What the operator may set.

use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_rpc::{KeyRefresh, Peer};
use ensemble_store_kit::{DatabaseConfig, database_config};

use crate::store::AppendLimits;

pub struct Config {
    /// `DATABASE_URL` and what goes with it.
    pub(crate) database: DatabaseConfig,
    /// `IDENTITY_RPC_URL`: token keys, and whether a user exists.
    pub(crate) identity: Peer,
    /// `MACHINE_REGISTRY_RPC_URL`: whether a machine is the caller's.
    pub(crate) machine_registry: Peer,
    /// `KEYS_REFRESH_MS`, `KEYS_TRUSTED_MS`
    pub(crate) key_refresh: KeyRefresh,
    /// `SHARE_BASE_URL`, else `PUBLIC_BASE_URL`: what public links begin with.
    pub(crate) share_base_url: String,
    /// `SESSION_ONLINE_MS`: how long a session counts as online after a heartbeat.
    pub(crate) online_for: Duration,
    /// `MACHINE_CACHE_MS`: how long a machine that was found is believed to be there.
    pub(crate) machine_cache: Duration,
    /// `APPEND_QUEUE`, `APPEND_QUEUE_BYTES`, `APPEND_BATCH_ROWS`, `APPEND_BATCH_BYTES`, `APPEND_TIMEOUT_MS`
    pub(crate) append: AppendLimits,
    /// `SWEEP_MS`: how often watched sessions are looked at, in case a wake-up was lost.
    pub(crate) sweep_every: Duration,
    /// `PURGE_MS`: how often deleted sessions are looked for, when none was deleted here.
    pub(crate) purge_every: Duration,
}

impl Config {
    pub(crate) fn read(vars: &mut Vars) -> Self {
        let public = vars.text("PUBLIC_BASE_URL", "the edge's own address", "http://127.0.0.1:8080");
        let share = vars.text("SHARE_BASE_URL", "what public links begin with; PUBLIC_BASE_URL when not set", "");
        Self {
            database: database_config!(vars, "session-store"),
            identity: Peer::identity(vars),
            machine_registry: Peer::machine_registry(vars),
            key_refresh: KeyRefresh::configure(vars),
            share_base_url: if share.is_empty() { public } else { share }.trim_end_matches('/').to_owned(),
            online_for: vars.millis(
                "SESSION_ONLINE_MS",
                "how long a session counts as online after a heartbeat",
                60_000,
            ),
            machine_cache: vars.millis(
                "MACHINE_CACHE_MS",
                "how long a machine that was found is believed to be there",
                30_000,
            ),
            append: AppendLimits {
                queue: vars.parse("APPEND_QUEUE", "appends that may wait; more are refused with 503", 4_096).max(1),
                queue_bytes: vars.parse("APPEND_QUEUE_BYTES", "what they may weigh together", 64 << 20),
                batch_rows: vars.parse("APPEND_BATCH_ROWS", "messages that are committed together at most", 512).max(1),
                batch_bytes: vars.parse("APPEND_BATCH_BYTES", "what they may weigh together", 8 << 20),
                timeout: vars.millis(
                    "APPEND_TIMEOUT_MS",
                    "an append that has waited so long is refused with 503",
                    1_250,
                ),
            },
            sweep_every: vars.millis(
                "SWEEP_MS",
                "how often watched sessions are looked at, in case a wake-up was lost",
                5_000,
            ),
            purge_every: vars.millis("PURGE_MS", "how often deleted sessions are looked for", 60_000),
        }
    }
}
