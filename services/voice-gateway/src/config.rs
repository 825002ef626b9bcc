//! What an operator sets. Every field says its variable and its unit where it is read.

use std::collections::HashMap;
use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_rpc::{KeyRefresh, Neighbour};
use ensemble_store_kit::{DatabaseConfig, database_config};
use ensemble_types::ids::GatewaySessionId;
use secrecy::{ExposeSecret, SecretString};

use crate::clients::livekit::{ApiKey, Budgets};
use crate::domain::limits::Limits;
use crate::domain::state::Rules;
use crate::domain::tool_bridge::AllowedOrigins;

pub struct VoiceConfig {
    pub(crate) database: DatabaseConfig,
    pub(crate) livekit: LiveKitConfig,
    /// None: nobody may enter, and voice is off.
    pub(crate) voice_keys: Vec<String>,
    pub(crate) require_user: bool,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) rates: Rates,
    pub(crate) rooms: RoomConfig,
    pub(crate) delivery: DeliveryConfig,
    pub(crate) tool_bridge: ToolBridgeConfig,
    pub(crate) upkeep: UpkeepConfig,
    /// Where agents reach the gateway; empty: where it was bound.
    pub(crate) public_url: Option<String>,
    pub(crate) identity: Neighbour,
    pub(crate) keys: KeyRefresh,
}

pub(crate) struct LiveKitConfig {
    pub(crate) url: String,
    /// What clients are told.
    pub(crate) ws_url: String,
    pub(crate) key: ApiKey,
    pub(crate) webhook_keys: Vec<ApiKey>,
    pub(crate) budgets: Budgets,
    pub(crate) breaker_failures: u32,
    pub(crate) breaker_probe: Duration,
}

pub(crate) struct RoomConfig {
    pub(crate) prefix: String,
    pub(crate) agent_name: String,
    /// By language code, in lower case.
    pub(crate) agent_names: HashMap<String, String>,
}

impl RoomConfig {
    /// The agent for a language: for `zh-CN` that of `zh-cn`, else that of `zh`, else the one for everybody.
    pub(crate) fn agent_for(&self, language: Option<&str>) -> &str {
        let language = language.unwrap_or("").to_ascii_lowercase();
        let primary = language.split('-').next().unwrap_or("");
        self.agent_names.get(&language).or_else(|| self.agent_names.get(primary)).unwrap_or(&self.agent_name)
    }

    /// The session that a room's name speaks of.
    pub(crate) fn session_of(&self, room: &str) -> Option<GatewaySessionId> {
        room.strip_prefix(&self.prefix)?.parse().ok()
    }
}

/// Starts per minute; zero means "no limit".
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) per_key: u32,
    pub(crate) per_user: u32,
    pub(crate) per_address: u32,
    pub(crate) wrong_keys: u32,
    /// Texts and contexts of one session.
    pub(crate) injections: u32,
}

#[derive(Clone)]
pub(crate) struct DeliveryConfig {
    /// How long a caller waits for the agent's acknowledgement.
    pub(crate) patience: Duration,
    pub(crate) queue_max: i64,
    pub(crate) retry: Duration,
    /// How long a replica that delivers is believed to be alive.
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

#[derive(Clone)]
pub(crate) struct UpkeepConfig {
    pub(crate) reconcile: Duration,
    pub(crate) sweep: Duration,
    pub(crate) keep: Duration,
    /// A record that is older than this is looked after before a status is answered.
    pub(crate) fresh: Duration,
    pub(crate) fresh_budget: Duration,
    /// How long `stop` waits for LiveKit.
    pub(crate) stop_budget: Duration,
    /// How long a repeated start waits for the first one.
    pub(crate) replay_patience: Duration,
}

impl VoiceConfig {
    pub(crate) fn read(vars: &mut Vars) -> Self {
        let voice_keys = voice_keys(vars);
        let livekit = LiveKitConfig::read(vars, !voice_keys.is_empty());
        Self {
            database: database_config!(vars, "voice-gateway"),
            voice_keys,
            require_user: vars.flag("VOICE_REQUIRE_USER", "demand a user's token beside the voice key", false),
            rules: rules(vars),
            limits: limits(vars),
            rates: rates(vars),
            rooms: rooms(vars),
            delivery: delivery(vars),
            tool_bridge: tool_bridge(vars),
            upkeep: upkeep(vars, &livekit),
            public_url: vars
                .optional("VOICE_GATEWAY_PUBLIC_URL", "where agents reach this gateway; default: PUBLIC_BASE_URL, else where it was bound")
                .or_else(|| vars.optional("PUBLIC_BASE_URL", "the edge's public address")),
            identity: Neighbour::identity(vars),
            keys: KeyRefresh::configure(vars),
            livekit,
        }
    }
}

impl VoiceConfig {
    /// Says what works but should not stay so.
    pub(crate) fn warn(&self) {
        if self.voice_keys.is_empty() {
            tracing::warn!("VOICE_PUBLIC_KEY is not set: nobody may use voice");
            return;
        }
        if self.livekit.key.secret.expose_secret().len() < 32 {
            tracing::warn!("LIVEKIT_API_SECRET is shorter than 32 characters");
        }
        let local = ["//127.0.0.1", "//localhost", "//[::1]"].iter().any(|host| self.livekit.url.contains(host));
        if !local && (self.livekit.url.starts_with("http://") || self.livekit.url.starts_with("ws://")) {
            tracing::warn!("LIVEKIT_URL is not encrypted, and beyond this machine");
        }
    }
}

fn voice_keys(vars: &mut Vars) -> Vec<String> {
    let split = |secret: SecretString| -> Vec<String> {
        secret.expose_secret().split(',').map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect()
    };
    let keys = vars
        .secret("VOICE_PUBLIC_KEY", "what applications show to use voice; several, separated by commas, while one is replaced")
        .map(split)
        .unwrap_or_default();
    if keys.iter().any(|key| key.len() < 16) {
        vars.fault("VOICE_PUBLIC_KEY", "has a key of fewer than 16 characters, which can be guessed");
    }
    keys
}

impl LiveKitConfig {
    /// `wanted`: voice is on, so LiveKit must be known.
    fn read(vars: &mut Vars, wanted: bool) -> Self {
        let url = vars.text("LIVEKIT_URL", "LiveKit's address for this gateway: ws, wss, http or https", "ws://127.0.0.1:7880");
        if !["ws://", "wss://", "http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            vars.fault("LIVEKIT_URL", "must begin with ws://, wss://, http:// or https://");
        }
        let default_ws = url.replacen("http", "ws", usize::from(url.starts_with("http")));
        let ws_url = vars.text("LIVEKIT_WS_URL", "LiveKit's address for clients; default: LIVEKIT_URL", &default_ws);
        let key = vars.optional("LIVEKIT_API_KEY", "LiveKit's API key; required when VOICE_PUBLIC_KEY is set").unwrap_or_default();
        let secret = vars.secret("LIVEKIT_API_SECRET", "the secret of LIVEKIT_API_KEY").unwrap_or_default();
        if wanted {
            for (name, empty) in [("LIVEKIT_API_KEY", key.is_empty()), ("LIVEKIT_API_SECRET", secret.expose_secret().is_empty())] {
                if empty {
                    vars.fault(name, "is required as long as VOICE_PUBLIC_KEY is set");
                }
            }
        }
        let key = ApiKey { key, secret };
        let mut webhook_keys = vec![key.clone()];
        if let (Some(key), Some(secret)) = (
            vars.optional("LIVEKIT_WEBHOOK_API_KEY", "another key that webhooks may be signed with"),
            vars.secret("LIVEKIT_WEBHOOK_API_SECRET", "its secret"),
        ) {
            webhook_keys.push(ApiKey { key, secret });
        }
        Self {
            url,
            ws_url,
            key,
            webhook_keys,
            budgets: Budgets {
                create: vars.millis("VOICE_CREATE_TIMEOUT_MS", "one attempt of CreateRoom; there are two", 3_000),
                delete: vars.millis("VOICE_DELETE_TIMEOUT_MS", "one DeleteRoom", 5_000),
                list: vars.millis("VOICE_LIST_TIMEOUT_MS", "one ListRooms or ListParticipants", 2_000),
                rpc: vars.millis("VOICE_RPC_TIMEOUT_MS", "one PerformRpc with LiveKit's own retries", 8_000),
                rpc_response: vars.millis("VOICE_RPC_RESPONSE_MS", "how long LiveKit waits for the agent", 2_500),
                send: vars.millis("VOICE_SEND_TIMEOUT_MS", "one attempt of SendData; there are two", 3_000),
                dispatch: vars.millis("VOICE_DISPATCH_TIMEOUT_MS", "one call about dispatches", 3_000),
            },
            breaker_failures: vars.parse("VOICE_BREAKER_FAILURES", "failures in a row after which LiveKit counts as away", 5),
            breaker_probe: vars.millis("VOICE_BREAKER_PROBE_MS", "how often LiveKit is asked whether it is back", 2_000),
        }
    }
}

fn rules(vars: &mut Vars) -> Rules {
    let create = vars.millis("VOICE_CREATE_GIVE_UP_MS", "after this nobody waits for CreateRoom any more", 15_000);
    Rules {
        agent_join: seconds(vars, "VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "an agent that has not come by then is sent for again", 10.0),
        agent_gone: vars.millis("VOICE_AGENT_GONE_GRACE_MS", "from an agent's loss to sending for another", 1_000),
        agent_ask: vars.millis("VOICE_AGENT_ASK_MS", "how often an agent that came is looked at until it is ready", 2_000),
        agent_ready: seconds(vars, "VOICE_AGENT_READY_TIMEOUT_SECONDS", "an agent that never says that it is ready counts as ready", 20.0),
        agent_stable: seconds(vars, "VOICE_AGENT_STABLE_SECONDS", "an agent that served so long may be replaced as often as a new one", 60.0),
        max_dispatches: vars.parse("VOICE_AGENT_MAX_DISPATCHES", "how often an agent is sent for again", 3),
        human_join: seconds(vars, "VOICE_EMPTY_TIMEOUT_SECONDS", "how long a room waits for its person", 120.0),
        human_return: seconds(vars, "VOICE_DEPARTURE_TIMEOUT_SECONDS", "how long a person who was cut off may take to return", 30.0),
        create,
        settle: vars.millis("VOICE_SETTLE_MS", "how far LiveKit's lists may lag behind", 5_000),
        delete_retry: vars.millis("VOICE_DELETE_RETRY_MS", "first pause between attempts to delete a room; it doubles four times", 2_000),
    }
}

fn limits(vars: &mut Vars) -> Limits {
    Limits {
        session: seconds(vars, "VOICE_MAX_SESSION_SECONDS", "how long a voice session may last", 3600.0),
        user_sessions: vars.parse("VOICE_MAX_SESSIONS_PER_USER", "open at once, per user; 0: no limit", 2),
        total_sessions: vars.parse("VOICE_MAX_SESSIONS", "open at once, in all; 0: no limit", 1_000),
        user_daily_seconds: vars.parse("VOICE_DAILY_SECONDS_PER_USER", "seconds of voice per day (UTC) and user; 0: no limit", 14_400),
        total_daily_seconds: vars.parse("VOICE_DAILY_SECONDS", "seconds of voice per day (UTC) in all; 0: no limit", 0),
    }
}

fn rates(vars: &mut Vars) -> Rates {
    Rates {
        per_key: vars.parse("VOICE_STARTS_PER_MINUTE_PER_KEY", "starts per minute and voice key, on each replica; 0: no limit", 600),
        per_user: vars.parse("VOICE_STARTS_PER_MINUTE_PER_USER", "starts per minute and user, on each replica; 0: no limit", 20),
        per_address: vars.parse("VOICE_STARTS_PER_MINUTE_PER_ADDRESS", "starts per minute and address, on each replica; 0: no limit", 60),
        wrong_keys: vars.parse("VOICE_WRONG_KEYS_PER_MINUTE", "wrong voice keys per minute and address before 429; 0: no limit", 60),
        injections: vars.parse("VOICE_INJECTIONS_PER_MINUTE", "texts and contexts per minute and voice session, on each replica; 0: no limit", 600),
    }
}

fn rooms(vars: &mut Vars) -> RoomConfig {
    let prefix = vars.text("VOICE_ROOM_PREFIX", "rooms whose names begin so are this gateway's; two gateways on one LiveKit need two", "voice_");
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        vars.fault("VOICE_ROOM_PREFIX", "must be 1 to 64 of A-Z a-z 0-9 _ -");
    }
    let agent_name = vars.text("LIVEKIT_AGENT_NAME", "the name under which the agent registers with LiveKit", "ensemble-voice");
    let mut agent_names = HashMap::new();
    for pair in vars.list("VOICE_AGENT_NAMES", "agents by language, as in zh=agent-zh,en=agent-en", "") {
        match pair.split_once('=') {
            Some((language, name)) if !name.is_empty() => {
                agent_names.insert(language.to_ascii_lowercase(), name.to_owned());
            }
            _ => vars.fault("VOICE_AGENT_NAMES", &format!("has {pair:?}, which is not language=agent")),
        }
    }
    RoomConfig { prefix, agent_name, agent_names }
}

fn delivery(vars: &mut Vars) -> DeliveryConfig {
    DeliveryConfig {
        patience: vars.millis("VOICE_DELIVERY_PATIENCE_MS", "how long text and context wait for the agent's acknowledgement", 2_500),
        queue_max: vars.parse("VOICE_QUEUE_MAX", "texts that may wait for one agent", 32),
        retry: vars.millis("VOICE_DELIVERY_RETRY_MS", "first pause after a failed delivery; it doubles four times", 500),
        lease: vars.millis("VOICE_DELIVERY_LEASE_MS", "how long a replica may be silent in the middle of a delivery", 20_000),
        rpc_inline_max: vars.parse("VOICE_CONTEXT_RPC_INLINE_MAX_BYTES", "larger contexts are fetched by the agent", 12_288),
        dispatch_inline_max: vars.parse("VOICE_CONTEXT_DISPATCH_INLINE_MAX_BYTES", "larger initial contexts are fetched by the agent", 49_152),
        topic_prefix: vars.text("VOICE_DATA_TOPIC_PREFIX", "topics of data packets to agents without RPC: <prefix>.text and <prefix>.context", "voice"),
    }
}

fn tool_bridge(vars: &mut Vars) -> ToolBridgeConfig {
    let origins = vars.list("VOICE_TOOL_BRIDGE_ALLOWED_ORIGINS", "origins that toolBridgeBaseUrl may have; none: the field is refused", "");
    let origins = AllowedOrigins::new(origins).unwrap_or_else(|error| {
        vars.fault("VOICE_TOOL_BRIDGE_ALLOWED_ORIGINS", &format!("has an origin that cannot be used: it {error}"));
        AllowedOrigins::default()
    });
    ToolBridgeConfig {
        origins,
        default_url: vars.optional("TOOL_BRIDGE_BASE_URL", "where the agent's tools are when the caller does not say"),
        key: vars.secret("TOOL_BRIDGE_API_KEY", "shared with the tool bridge; signs the agent's credential and goes nowhere itself"),
    }
}

fn upkeep(vars: &mut Vars, livekit: &LiveKitConfig) -> UpkeepConfig {
    UpkeepConfig {
        reconcile: seconds(vars, "VOICE_RECONCILE_SECONDS", "how often all rooms are compared with LiveKit", 15.0),
        sweep: vars.millis("VOICE_SWEEP_MS", "how often timers look at the database when nothing wakes them", 5_000),
        keep: seconds(vars, "VOICE_KEEP_SECONDS", "how long the records of ended sessions are kept", 2_592_000.0),
        fresh: vars.millis("VOICE_STATUS_FRESH_MS", "an older record is looked after before a status is answered", 5_000),
        fresh_budget: vars.millis("VOICE_STATUS_BUDGET_MS", "how long a status waits for LiveKit", 1_000),
        stop_budget: vars.millis("VOICE_STOP_BUDGET_MS", "how long stop waits for LiveKit", 2_000).min(livekit.budgets.delete),
        replay_patience: vars.millis("VOICE_REPLAY_PATIENCE_MS", "how long a repeated start waits for the first one", 5_000),
    }
}

/// Seconds, with a fraction if need be, so that tests can shorten them.
fn seconds(vars: &mut Vars, name: &str, meaning: &str, default: f64) -> Duration {
    let value = vars.parse(name, meaning, default);
    Duration::try_from_secs_f64(value).unwrap_or_else(|_| {
        vars.fault(name, "must be seconds, not below zero");
        Duration::from_secs_f64(default)
    })
}
