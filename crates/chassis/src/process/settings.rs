//! The variables that all services have, and the limits of their public listeners.

use std::time::Duration;

use secrecy::SecretString;

use crate::config::Vars;
use crate::http::{BodyBudget, BodyLimits};

/// Limits of connections to the public listener.
#[derive(Clone, Copy, Debug)]
pub struct ServerSettings {
    /// Connections that are open at the same time. More of them wait in the kernel's queue.
    pub max_connections: usize,
    /// How long an idle connection stays open. Longer than the edge keeps its own, so that a service never closes a
    /// connection that the edge is about to use.
    pub keep_alive: Duration,
    /// How long a client may take to send a request's head. The edge, which people reach, has a setting for it; before a service is the
    /// edge, which has read the head.
    pub head_timeout: Duration,
    /// How long a client may take to close its side after the last answer.
    pub disconnect_timeout: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            max_connections: 25_000,
            keep_alive: Duration::from_secs(75),
            head_timeout: Duration::from_secs(60),
            disconnect_timeout: Duration::from_secs(1),
        }
    }
}

/// The variables that all services have in common.
pub(super) struct ProcessConfig {
    pub(super) workers: usize,
    pub(super) drain_delay: Duration,
    pub(super) drain_grace: Duration,
    pub(super) body: BodyLimits,
    pub(super) body_budget: BodyBudget,
    pub(super) tokens: Vec<SecretString>,
}

impl ProcessConfig {
    pub(super) fn read(vars: &mut Vars) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let mut tokens =
            vec![vars.required_secret("INTERNAL_TOKEN", "what services show each other on their internal listeners")];
        tokens.extend(
            vars.optional_secret(
                "INTERNAL_TOKEN_PREVIOUS",
                "the token before, still accepted while it is being replaced",
            ),
        );
        Self {
            workers: vars.parse("WORKERS", "threads that serve requests", cores.min(8)).max(1),
            drain_delay: vars.millis(
                "DRAIN_DELAY_MS",
                "how long to go on serving after readiness failed, so that load balancers stop sending requests",
                2_000,
            ),
            drain_grace: vars.millis("DRAIN_GRACE_MS", "how long requests in flight may take to end", 25_000),
            body: BodyLimits {
                max_bytes: vars.parse("MAX_BODY_BYTES", "the largest request body", BodyLimits::default().max_bytes),
                timeout: vars.millis("BODY_TIMEOUT_MS", "how long a body may take before its rate counts", 15_000),
                min_bytes_per_second: vars.parse(
                    "BODY_MIN_RATE",
                    "bytes per second that a body must have on average after that",
                    BodyLimits::default().min_bytes_per_second,
                ),
            },
            body_budget: BodyBudget::new(vars.parse(
                "BODY_BUDGET_BYTES",
                "bytes of request bodies that are held at once, a quarter of them for one account or address",
                64 << 20,
            )),
            tokens,
        }
    }
}
