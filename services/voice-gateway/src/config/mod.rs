//! The configuration. Each variable is documented where it is read.

use std::collections::HashMap;
use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_rpc::{KeyRefresh, Peer};
use ensemble_store_kit::{DatabaseConfig, database_config};
use ensemble_types::ids::GatewaySessionId;
use secrecy::{ExposeSecret, SecretString};

use crate::clients::directory::DirectoryPeers;
use crate::domain::limits::Limits;
use crate::domain::state::Rules;
use crate::domain::tool_bridge::AllowedOrigins;

mod livekit;
mod timing;
mod webhooks;

pub(crate) use livekit::LiveKitConfig;
pub(crate) use timing::{Rates, TimingConfig};
use timing::{limits, rates, rules, timing};
pub(crate) use webhooks::WebhookConfig;

/// The values of all variables.
pub struct VoiceConfig {
    pub(crate) database: DatabaseConfig,
    pub(crate) livekit: LiveKitConfig,
    /// Empty: voice is off.
    pub(crate) voice_keys: Vec<String>,
    pub(crate) require_user: bool,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) rates: Rates,
    pub(crate) rooms: RoomConfig,
    pub(crate) delivery: DeliveryConfig,
    pub(crate) tool_bridge: ToolBridgeConfig,
    pub(crate) timing: TimingConfig,
    pub(crate) webhooks: WebhookConfig,
    /// The address at which agents reach the gateway; `None`: the address to which it was bound.
    pub(crate) public_url: Option<String>,
    /// `IDENTITY_RPC_URL`, `ORCHESTRATOR_RPC_URL` and `SESSION_STORE_RPC_URL`.
    pub(crate) peers: DirectoryPeers,
    pub(crate) keys: KeyRefresh,
}

#[derive(Clone)]
pub(crate) struct RoomConfig {
    pub(crate) prefix: String,
    pub(crate) agent_name: String,
    /// By language code, in lower case.
    pub(crate) agent_names: HashMap<String, String>,
}

impl RoomConfig {
    /// The agent for a language: for `zh-CN` that of `zh-cn`, else that of `zh`, else the default agent.
    pub(crate) fn agent_for(&self, language: Option<&str>) -> &str {
        let language = language.unwrap_or("").to_ascii_lowercase();
        let primary = language.split('-').next().unwrap_or("");
        self.agent_names.get(&language).or_else(|| self.agent_names.get(primary)).unwrap_or(&self.agent_name)
    }

    /// The session in the name of a room.
    pub(crate) fn session_of(&self, room: &str) -> Option<GatewaySessionId> {
        room.strip_prefix(&self.prefix)?.parse().ok()
    }
}

#[derive(Clone)]
pub(crate) struct DeliveryConfig {
    /// How long a caller waits for the agent's acknowledgement.
    pub(crate) timeout: Duration,
    pub(crate) queue_max: i64,
    pub(crate) retry: Duration,
    /// After this a delivery is taken over by another replica.
    pub(crate) lease: Duration,
    pub(crate) rpc_inline_max: usize,
    pub(crate) dispatch_inline_max: usize,
    pub(crate) topic_prefix: String,
}

pub(crate) struct ToolBridgeConfig {
    pub(crate) origins: AllowedOrigins,
    pub(crate) default_url: Option<String>,
    pub(crate) key: Option<SecretString>,
}

impl VoiceConfig {
    pub(crate) fn read(vars: &mut Vars) -> Self {
        let voice_keys = voice_keys(vars);
        let public_base_url = vars.optional("PUBLIC_BASE_URL", "the edge's public address");
        let livekit = LiveKitConfig::read(vars, !voice_keys.is_empty());
        Self {
            database: database_config!(vars, "voice-gateway"),
            voice_keys,
            require_user: vars.flag("VOICE_REQUIRE_USER", "require a user's token in addition to the voice key", false),
            rules: rules(vars),
            limits: limits(vars),
            rates: rates(vars),
            rooms: rooms(vars),
            delivery: delivery(vars),
            tool_bridge: tool_bridge(vars, public_base_url.as_deref()),
            timing: timing(vars, &livekit),
            webhooks: WebhookConfig::read(vars),
            public_url: vars
                .optional(
                    "VOICE_GATEWAY_PUBLIC_URL",
                    "where agents reach this gateway; default: PUBLIC_BASE_URL, else where it was bound",
                )
                .or(public_base_url),
            peers: DirectoryPeers {
                identity: Peer::identity(vars),
                orchestrator: Peer::orchestrator(vars),
                session_store: Peer::session_store(vars),
            },
            keys: KeyRefresh::configure(vars),
            livekit,
        }
    }
}

impl VoiceConfig {
    /// Logs settings that work but are not safe.
    pub(crate) fn warn(&self) {
        if self.voice_keys.is_empty() {
            // It is off unless an operator wants it, so nothing is wrong.
            tracing::info!("VOICE_PUBLIC_KEY is not set: voice is off");
            return;
        }
        if self.voice_keys.iter().any(|key| key.len() < 16) {
            tracing::warn!("VOICE_PUBLIC_KEY has a key of fewer than 16 characters, which can be guessed");
        }
        if self.livekit.key.secret.expose_secret().len() < 32 {
            tracing::warn!("LIVEKIT_API_SECRET is shorter than 32 characters");
        }
        let local = ["//127.0.0.1", "//localhost", "//[::1]"].iter().any(|host| self.livekit.url.contains(host));
        if !local && (self.livekit.url.starts_with("http://") || self.livekit.url.starts_with("ws://")) {
            tracing::warn!("LIVEKIT_URL is on another machine and not encrypted");
        }
    }
}

fn voice_keys(vars: &mut Vars) -> Vec<String> {
    let split = |secret: SecretString| -> Vec<String> {
        secret.expose_secret().split(',').map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect()
    };
    vars.secret(
        "VOICE_PUBLIC_KEY",
        "the voice keys of applications, separated by commas; several are valid during a rotation",
    )
    .map(split)
    .unwrap_or_default()
}

fn rooms(vars: &mut Vars) -> RoomConfig {
    let prefix = vars.text(
        "VOICE_ROOM_PREFIX",
        "prefix of the names of this gateway's rooms; two gateways on one LiveKit need two prefixes",
        "voice_",
    );
    if prefix.is_empty()
        || prefix.len() > 64
        || !prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    {
        vars.add_error("VOICE_ROOM_PREFIX", "must be 1 to 64 of A-Z a-z 0-9 _ -");
    }
    let agent_name =
        vars.text("LIVEKIT_AGENT_NAME", "the name under which the agent registers with LiveKit", "ensemble-voice");
    let mut agent_names = HashMap::new();
    for pair in vars.list("VOICE_AGENT_NAMES", "agents by language, as in zh=agent-zh,en=agent-en", "") {
        match pair.split_once('=') {
            Some((language, name)) if !name.is_empty() => {
                agent_names.insert(language.to_ascii_lowercase(), name.to_owned());
            }
            _ => vars.add_error("VOICE_AGENT_NAMES", &format!("has {pair:?}, which is not language=agent")),
        }
    }
    RoomConfig { prefix, agent_name, agent_names }
}

fn delivery(vars: &mut Vars) -> DeliveryConfig {
    DeliveryConfig {
        timeout: vars.millis(
            "VOICE_DELIVERY_TIMEOUT_MS",
            "how long text and context wait for the agent's acknowledgement",
            2_500,
        ),
        queue_max: vars.parse("VOICE_QUEUE_MAX", "texts that may wait for one agent", 32),
        retry: vars.millis(
            "VOICE_DELIVERY_RETRY_MS",
            "first pause after a failed delivery; it doubles four times",
            500,
        ),
        lease: vars.millis("VOICE_DELIVERY_LEASE_MS", "after this a delivery is taken over by another replica", 20_000),
        rpc_inline_max: vars.parse(
            "VOICE_CONTEXT_RPC_INLINE_MAX_BYTES",
            "larger contexts are fetched by the agent",
            12_288,
        ),
        dispatch_inline_max: vars.parse(
            "VOICE_CONTEXT_DISPATCH_INLINE_MAX_BYTES",
            "larger initial contexts are fetched by the agent",
            49_152,
        ),
        topic_prefix: vars.text(
            "VOICE_DATA_TOPIC_PREFIX",
            "topics of data packets to agents without RPC: <prefix>.text and <prefix>.context",
            "voice",
        ),
    }
}

/// Besides the list, the origins of the server's own address and of the default bridge are allowed.
fn tool_bridge(vars: &mut Vars, public_base_url: Option<&str>) -> ToolBridgeConfig {
    let default_url =
        vars.optional("TOOL_BRIDGE_BASE_URL", "the tool bridge when the caller names none; its origin is allowed");
    let mut origins = vars.list(
        "VOICE_TOOL_BRIDGE_ALLOWED_ORIGINS",
        "origins that toolBridgeBaseUrl may have, besides those of PUBLIC_BASE_URL and TOOL_BRIDGE_BASE_URL",
        "",
    );
    origins.extend(default_url.clone());
    origins.extend(public_base_url.map(str::to_owned));
    let origins = AllowedOrigins::new(origins).unwrap_or_else(|error| {
        vars.add_error(
            "VOICE_TOOL_BRIDGE_ALLOWED_ORIGINS",
            &format!("(or TOOL_BRIDGE_BASE_URL, PUBLIC_BASE_URL) {error}"),
        );
        AllowedOrigins::default()
    });
    ToolBridgeConfig {
        // Normalised like the addresses of callers, because the address is part of the credential.
        default_url: default_url.and_then(|url| origins.check(&url).ok()),
        origins,
        key: vars.optional_secret(
            "TOOL_BRIDGE_API_KEY",
            "shared with the tool bridge; signs the agent's credential and is never sent",
        ),
    }
}
