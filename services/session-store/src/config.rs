//! The configuration, with the variable of each field.

use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_rpc::{KeyRefresh, Peer};
use ensemble_store_kit::{DatabaseConfig, database_config};

use crate::domain::push::PushRules;
use crate::operations::append::AppendLimits;
use crate::operations::quotas::QuotaLimits;

pub struct Config {
    /// `DATABASE_URL` and the other `DATABASE_` variables, `MIGRATE`
    pub(crate) database: DatabaseConfig,
    /// `IDENTITY_RPC_URL`: the service that has token keys and accounts.
    pub(crate) identity: Peer,
    /// `MACHINE_REGISTRY_RPC_URL`: the service that knows whose a machine is.
    pub(crate) machine_registry: Peer,
    /// `KEYS_REFRESH_MS`, `KEYS_TRUSTED_MS`
    pub(crate) key_refresh: KeyRefresh,
    /// `SHARE_BASE_URL`, else `PUBLIC_BASE_URL`: the start of the URL of public links.
    pub(crate) share_base_url: String,
    /// `SESSION_ONLINE_MS`: how long a session counts as online after a heartbeat.
    pub(crate) online_for: Duration,
    /// `PUSH_AFTER_MS`, `PUSH_LONG_TURN_MS`: when people are notified.
    pub(crate) push_rules: PushRules,
    /// `MACHINE_CACHE_MS`: how long the machine registry's answer about a machine is cached.
    pub(crate) machine_cache: Duration,
    /// `LOOK_WAIT_MS`: how long a look waits for the machine's answer.
    pub(crate) look_wait: Duration,
    /// `APPEND_QUEUE`, `APPEND_QUEUE_BYTES`, `APPEND_BATCH_ROWS`, `APPEND_TIMEOUT_MS`
    pub(crate) append: AppendLimits,
    /// `QUOTA_SESSIONS`, `QUOTA_MESSAGE_BYTES`
    pub(crate) quotas: QuotaLimits,
    /// `SWEEP_MS`: how often sessions with open streams are checked for changes whose notification was lost.
    pub(crate) sweep_every: Duration,
    /// `PURGE_MS`: how often deleted sessions are looked for. A deletion in this process starts the purge at once.
    pub(crate) purge_every: Duration,
    /// `SESSION_RETENTION_DAYS`: how long a session that has ended, or is archived, is kept after its last change.
    pub(crate) keep_sessions: Option<Duration>,
}

impl Config {
    pub(crate) fn read(vars: &mut Vars) -> Self {
        let public = vars.text("PUBLIC_BASE_URL", "the edge's own address", "http://127.0.0.1:8080");
        let share = vars.text("SHARE_BASE_URL", "the start of the URL of public links; default: PUBLIC_BASE_URL", "");
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
            push_rules: PushRules {
                answered_within: vars.millis(
                    "PUSH_AFTER_MS",
                    "how long a request of an agent waits before its people's devices are notified",
                    10_000,
                ),
                long_turn: vars.millis(
                    "PUSH_LONG_TURN_MS",
                    "the end of a turn that took at least this long notifies the devices",
                    60_000,
                ),
            },
            machine_cache: vars.millis(
                "MACHINE_CACHE_MS",
                "how long the machine registry's answer about a machine is cached",
                30_000,
            ),
            look_wait: vars.millis("LOOK_WAIT_MS", "how long a look waits for the machine's answer", 20_000),
            append: AppendLimits {
                queue: vars
                    .parse("APPEND_QUEUE", "append calls that may be queued; more are refused with 503", 4_096)
                    .max(1),
                queue_bytes: vars.parse(
                    "APPEND_QUEUE_BYTES",
                    "size of all queued append calls; more are refused with 503",
                    64 << 20,
                ),
                batch_messages: vars
                    .parse("APPEND_BATCH_ROWS", "the most messages that are committed together", 512)
                    .max(1),
                timeout: vars.millis(
                    "APPEND_TIMEOUT_MS",
                    "how long an append call waits for its commit before it is answered with 503",
                    1_750,
                ),
            },
            quotas: QuotaLimits {
                sessions: vars.parse(
                    "QUOTA_SESSIONS",
                    "sessions of an account that are not deleted; 0 is no limit",
                    100_000,
                ),
                message_bytes: vars.parse(
                    "QUOTA_MESSAGE_BYTES",
                    "bytes of messages in all sessions of an account, with 256 for each message; 0 is no limit",
                    10 << 30,
                ),
            },
            sweep_every: vars.millis(
                "SWEEP_MS",
                "how often sessions with open streams are checked for changes whose notification was lost",
                5_000,
            ),
            purge_every: vars.millis("PURGE_MS", "how often deleted sessions are looked for", 60_000),
            keep_sessions: days(vars.parse(
                "SESSION_RETENTION_DAYS",
                "days without a change after which a session that has ended, or is archived, is deleted; 0 keeps it",
                0,
            )),
        }
    }
}

fn days(count: u32) -> Option<Duration> {
    (count > 0).then(|| Duration::from_secs(u64::from(count) * 24 * 60 * 60))
}
