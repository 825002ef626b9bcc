//! Every variable of the edge.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_chassis::entrance::Apart;
use ensemble_chassis::process::{ServerSettings, TlsSettings};
use ipnet::IpNet;

use crate::domain::client_address;
use crate::domain::cors::{self, Origins, origin_of};
use crate::domain::request_rules::HeadLimits;
use crate::domain::route_table::{PerUpstream, Upstream};
use crate::limits::Limiter;
use crate::upstream::addresses::Origin;

/// Everything that can be set.
pub struct Config {
    pub upstreams: PerUpstream<Origin>,
    pub resolve_every: Duration,
    pub keys_every: Duration,
    pub upstream: UpstreamLimits,
    pub head: HeadLimits,
    pub server: ServerSettings,
    /// HTTPS in addition to the plain listener.
    pub tls: Option<TlsSettings>,
    /// How long a client may take nothing of its answer.
    pub send_stall: Duration,
    pub connections_per_address: usize,
    pub trusted_proxies: Vec<IpNet>,
    pub limiters: Arc<Apart<Limiter>>,
    pub cors: Origins,
    /// Where people reach the edge; empty: wherever they do.
    pub public_base_url: String,
    /// The security policy of the web app.
    pub page_policy: String,
    /// What tells the data of this server from other data.
    pub data_id: Option<String>,
    /// Whether only this computer can reach the server.
    pub only_here: bool,
    /// Where the databases of the services are, if they are on the disk of this machine.
    pub data_folder: Option<PathBuf>,
}

/// How long the edge waits for services, and how it keeps its connections to them.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamLimits {
    pub connect: Duration,
    /// To the head of an answer.
    pub ordinary: Duration,
    pub long_poll: Duration,
    /// Within the body of an answer whose length is known.
    pub stall: Duration,
    pub idle: Duration,
    pub max_idle: usize,
}

impl Config {
    pub fn read(vars: &mut Vars) -> Self {
        let public_base_url =
            vars.text("PUBLIC_BASE_URL", "where people reach the edge, as in https://api.example.com", "");
        if !(public_base_url.is_empty() || ["https://", "http://"].iter().any(|of| public_base_url.starts_with(of))) {
            vars.add_error("PUBLIC_BASE_URL", "must begin with https:// or http://");
        }
        Self {
            upstreams: PerUpstream::new(|upstream| origin(vars, upstream)),
            resolve_every: vars.millis("RESOLVE_INTERVAL_MS", "how often the services' names are looked up", 2_000),
            keys_every: vars.millis("KEYS_INTERVAL_MS", "how often the published keys of tokens are fetched", 10_000),
            upstream: upstream(vars),
            head: HeadLimits {
                fields: vars.parse("MAX_HEADER_FIELDS", "header fields of a request", 64),
                bytes: vars.parse("MAX_HEAD_BYTES", "bytes of a request's header fields", 32 * 1024),
            },
            server: server(vars),
            tls: TlsSettings::read(vars),
            send_stall: vars.millis("SEND_STALL_MS", "how long a client may take nothing of an answer", 30_000),
            connections_per_address: vars.parse(
                "MAX_CONNECTIONS_PER_ADDRESS",
                "client connections from one address (IPv6: one /64)",
                256,
            ),
            trusted_proxies: networks(vars),
            limiters: Arc::new(Apart::new(Limiter::read(vars), Limiter::read(vars))),
            cors: cors(vars, &public_base_url),
            public_base_url,
            page_policy: crate::pages::web::configured_policy(vars),
            data_id: vars
                .optional("DATA_ID", "what tells the data of this server from other data, for `GET /v1/version`"),
            only_here: vars.flag("ONLY_HERE", "only this computer reaches it: its new accounts do not count", false),
            data_folder: vars.optional("DATA_FOLDER", "where the databases are, if on this machine").map(PathBuf::from),
        }
    }
}

fn origin(vars: &mut Vars, upstream: Upstream) -> Origin {
    let variable = format!("{}_URL", upstream.name().replace('-', "_").to_uppercase());
    let meaning = format!("the public address of {}, or several with commas between", upstream.name());
    // By default the services listen on one port after the other, in the order of `Upstream`.
    vars.parse(&variable, &meaning, Origin::local(8081 + upstream as u16))
}

fn upstream(vars: &mut Vars) -> UpstreamLimits {
    UpstreamLimits {
        connect: vars.millis("UPSTREAM_CONNECT_MS", "how long connecting to a service may take", 1_000),
        ordinary: vars.millis("UPSTREAM_TIMEOUT_MS", "how long a service may take to begin its answer", 10_000),
        long_poll: vars.millis("LONG_POLL_TIMEOUT_MS", "the same for long-polls, which may wait 120 s", 130_000),
        stall: vars.millis("UPSTREAM_STALL_MS", "how long a service may stop within an answer of known length", 30_000),
        idle: vars.millis("UPSTREAM_IDLE_MS", "how long an unused connection is kept: less than services do", 30_000),
        max_idle: vars.parse("UPSTREAM_KEPT", "unused connections kept to one address", 256),
    }
}

fn server(vars: &mut Vars) -> ServerSettings {
    ServerSettings {
        max_connections: vars.parse("MAX_CONNECTIONS", "client connections in all", 20_000),
        head_timeout: vars.millis("HEAD_DEADLINE_MS", "how long a request's head may take", 5_000),
        keep_alive: vars.millis("IDLE_MS", "how long a connection may be unused", 60_000),
        ..ServerSettings::default()
    }
}

fn networks(vars: &mut Vars) -> Vec<IpNet> {
    let texts =
        vars.list("TRUSTED_PROXIES", "addresses or ranges of proxies before the edge whose X-Forwarded-For counts", "");
    let parsed: Result<_, _> = texts.iter().map(|text| client_address::network(text)).collect();
    parsed.unwrap_or_else(|error| {
        vars.add_error("TRUSTED_PROXIES", &format!("is not usable: {error}"));
        Vec::new()
    })
}

fn cors(vars: &mut Vars, public_base_url: &str) -> Origins {
    let meaning = "origins of web pages that may call, as in https://app.example.com, instead of loopback; or none";
    let mut origins = vars.list("CORS_ALLOWED_ORIGINS", meaning, cors::LOOPBACK);
    let share = vars.text("SHARE_BASE_URL", "where public links lead; its pages may call, too", public_base_url);
    origins.extend(origin_of(&share));
    Origins::new(origins.iter().map(String::as_str)).unwrap_or_else(|error| {
        vars.add_error("CORS_ALLOWED_ORIGINS", &format!("is not usable: {error}"));
        Origins::default()
    })
}
