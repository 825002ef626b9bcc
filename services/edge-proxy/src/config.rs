//! Every variable of the edge.

use std::time::Duration;

use ensemble_chassis::Vars;

use crate::domain::client_address::Network;
use crate::domain::cors::{Origins, origin_of};
use crate::domain::head_scanner::HeadLimits;
use crate::domain::route_table::{PerUpstream, Upstream};
use crate::guard::admission::AdmissionLimits;
use crate::guard::limits;
use crate::limits::Quotas;
use crate::upstream::addresses::Origin;
use crate::upstream::pool::PoolLimits;

/// Everything that can be set.
pub struct Config {
    pub upstreams: PerUpstream<Origin>,
    pub resolve_every: Duration,
    pub keys_every: Duration,
    pub pool: PoolLimits,
    pub timeout: Patience,
    pub guard: limits::Limits,
    pub admission: AdmissionLimits,
    pub quotas: Quotas,
    pub streams_per_caller: usize,
    pub cors: Origins,
    /// Where people reach the edge; empty: wherever they do.
    pub public_base_url: String,
}

/// How long the edge waits for services.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub ordinary: Duration,
    pub long_poll: Duration,
    /// Within the body of an answer whose length is known.
    pub stall: Duration,
}

impl Config {
    pub fn read(vars: &mut Vars) -> Self {
        let public_base_url =
            vars.text("PUBLIC_BASE_URL", "where people reach the edge, as in https://api.example.com", "");
        let trusted: Vec<Network> = networks(vars);
        Self {
            upstreams: PerUpstream::new(|upstream| origin(vars, upstream)),
            resolve_every: vars.millis("RESOLVE_INTERVAL_MS", "how often the services' names are looked up", 2_000),
            keys_every: vars.millis("KEYS_INTERVAL_MS", "how often the published keys of tokens are fetched", 10_000),
            pool: PoolLimits {
                connect: vars.millis("UPSTREAM_CONNECT_MS", "how long connecting to a service may take", 1_000),
                idle: vars.millis(
                    "UPSTREAM_IDLE_MS",
                    "how long an unused connection is kept; less than the services keep theirs",
                    30_000,
                ),
                kept: vars.parse("UPSTREAM_KEPT", "unused connections kept to one address, per thread", 256),
            },
            timeout: Patience {
                ordinary: vars.millis("UPSTREAM_TIMEOUT_MS", "how long a service may take to begin its answer", 10_000),
                long_poll: vars.millis(
                    "LONG_POLL_TIMEOUT_MS",
                    "the same for long-polls, which may wait 120 s",
                    130_000,
                ),
                stall: vars.millis(
                    "UPSTREAM_STALL_MS",
                    "how long a service may stop within an answer of known length",
                    30_000,
                ),
            },
            guard: guard(vars),
            admission: AdmissionLimits {
                in_all: vars.parse("MAX_CONNECTIONS", "client connections in all", 20_000),
                per_address: vars.parse(
                    "MAX_CONNECTIONS_PER_ADDRESS",
                    "client connections from one address (IPv6: one /64)",
                    256,
                ),
                trusted,
            },
            quotas: quotas(vars),
            streams_per_caller: vars.parse(
                "MAX_STREAMS_PER_CALLER",
                "streams and long-polls that one account, machine token or address may hold",
                1_000,
            ),
            cors: cors(vars, &public_base_url),
            public_base_url,
        }
    }
}

fn origin(vars: &mut Vars, upstream: Upstream) -> Origin {
    let (name, port) = match upstream {
        Upstream::Identity => ("IDENTITY_URL", 8081),
        Upstream::MachineRegistry => ("MACHINE_REGISTRY_URL", 8082),
        Upstream::SessionStore => ("SESSION_STORE_URL", 8083),
        Upstream::Orchestrator => ("ORCHESTRATOR_URL", 8084),
        Upstream::VoiceGateway => ("VOICE_GATEWAY_URL", 8085),
    };
    let default = Origin { authority: format!("127.0.0.1:{port}").into() };
    vars.parse(name, &format!("the public door of {}; its name may have many addresses", upstream.name()), default)
}

fn guard(vars: &mut Vars) -> limits::Limits {
    limits::Limits {
        head: HeadLimits {
            fields: vars.parse("MAX_HEADER_FIELDS", "header fields of a request", 64),
            head: vars.parse("MAX_HEAD_BYTES", "bytes of a request's head", 32 * 1024),
            body: vars.parse("MAX_BODY_BYTES", "the largest request body", 16 * 1024 * 1024),
        },
        head_deadline: vars.millis("HEAD_DEADLINE_MS", "how long a request's head may take", 5_000),
        body_timeout: vars.millis("BODY_TIMEOUT_MS", "how long a body may take before its rate counts", 15_000),
        body_min_rate: vars.parse(
            "BODY_MIN_RATE",
            "bytes per second that a body must have on average after that",
            1_024,
        ),
        body_deadline: vars.millis("BODY_DEADLINE_MS", "how long the edge waits for a body in all", 120_000),
        idle: vars.millis("IDLE_MS", "how long a connection may be unused", 60_000),
        send_stall: vars.millis("SEND_STALL_MS", "how long a client may take nothing of an answer", 30_000),
        linger: vars.millis("LINGER_MS", "how long a refused client may go on sending", 1_000),
    }
}

fn quotas(vars: &mut Vars) -> Quotas {
    Quotas {
        account: vars.parse(
            "LIMIT_ACCOUNT",
            "requests per minute of one account (0: no limit, as for all of these)",
            600,
        ),
        address: vars.parse("LIMIT_ADDRESS", "requests per minute of one address without a valid token", 3_000),
        machine: vars.parse("LIMIT_MACHINE", "requests per minute of one machine token", 6_000),
        sign_in: vars.parse("LIMIT_SIGN_IN", "sign-in calls per minute of one address", 60),
        public_link: vars.parse("LIMIT_PUBLIC_LINK", "readings of public links per minute of one address", 60),
        new_accounts: vars.parse("LIMIT_NEW_ACCOUNTS", "new accounts per hour from one address", 10),
    }
}

fn networks(vars: &mut Vars) -> Vec<Network> {
    let texts =
        vars.list("TRUSTED_PROXIES", "addresses or ranges of proxies before the edge whose X-Forwarded-For counts", "");
    let parsed: Result<Vec<Network>, _> = texts.iter().map(|text| text.parse()).collect();
    parsed.unwrap_or_else(|error| {
        vars.add_error("TRUSTED_PROXIES", &format!("is not usable: {error}"));
        Vec::new()
    })
}

fn cors(vars: &mut Vars, public_base_url: &str) -> Origins {
    let mut origins =
        vars.list("CORS_ALLOWED_ORIGINS", "origins of web pages that may call, as in https://app.example.com", "");
    let share = vars.text("SHARE_BASE_URL", "where public links lead; its pages may call, too", public_base_url);
    origins.extend(origin_of(&share).map(str::to_owned));
    Origins::new(origins.iter().map(String::as_str)).unwrap_or_else(|error| {
        vars.add_error("CORS_ALLOWED_ORIGINS", &format!("is not usable: {error}"));
        Origins::default()
    })
}
