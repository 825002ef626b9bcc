//! LiveKit's addresses, keys and timeouts.

use std::time::Duration;

use ensemble_chassis::Vars;
use secrecy::ExposeSecret;

use crate::clients::livekit::{ApiKey, Budgets};

pub(crate) struct LiveKitConfig {
    pub(crate) url: String,
    /// The address for clients.
    pub(crate) ws_url: String,
    pub(crate) key: ApiKey,
    pub(crate) webhook_keys: Vec<ApiKey>,
    pub(crate) budgets: Budgets,
    pub(crate) breaker_failures: u32,
    pub(crate) breaker_probe: Duration,
}

impl LiveKitConfig {
    /// `wanted`: voice is on, so LiveKit's key is required.
    pub(super) fn read(vars: &mut Vars, wanted: bool) -> Self {
        let url = vars.text(
            "LIVEKIT_URL",
            "LiveKit's address for this gateway: ws, wss, http or https",
            "ws://127.0.0.1:7880",
        );
        if !["ws://", "wss://", "http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            vars.add_error("LIVEKIT_URL", "must begin with ws://, wss://, http:// or https://");
        }
        let default_ws = url.replacen("http", "ws", usize::from(url.starts_with("http")));
        let ws_url = vars.text("LIVEKIT_WS_URL", "LiveKit's address for clients; default: LIVEKIT_URL", &default_ws);
        let key = vars
            .secret("LIVEKIT_API_KEY", "LiveKit's API key; required when VOICE_PUBLIC_KEY is set")
            .map(|key| key.expose_secret().to_owned())
            .unwrap_or_default();
        let secret = vars.secret("LIVEKIT_API_SECRET", "the secret of LIVEKIT_API_KEY").unwrap_or_default();
        if wanted {
            for (name, empty) in
                [("LIVEKIT_API_KEY", key.is_empty()), ("LIVEKIT_API_SECRET", secret.expose_secret().is_empty())]
            {
                if empty {
                    vars.add_error(name, "is required as long as VOICE_PUBLIC_KEY is set");
                }
            }
        }
        let key = ApiKey { key, secret };
        let mut webhook_keys = vec![key.clone()];
        if let (Some(key), Some(secret)) = (
            vars.optional_secret("LIVEKIT_WEBHOOK_API_KEY", "another key that webhooks may be signed with"),
            vars.optional_secret("LIVEKIT_WEBHOOK_API_SECRET", "its secret"),
        ) {
            webhook_keys.push(ApiKey { key: key.expose_secret().to_owned(), secret });
        }
        Self {
            url,
            ws_url,
            key,
            webhook_keys,
            budgets: Budgets {
                create: vars.millis(
                    "VOICE_CREATE_TIMEOUT_MS",
                    "the first attempt of CreateRoom; a second one has half as long",
                    3_000,
                ),
                delete: vars.millis("VOICE_DELETE_TIMEOUT_MS", "one DeleteRoom", 5_000),
                list: vars.millis("VOICE_LIST_TIMEOUT_MS", "one ListRooms or ListParticipants", 2_000),
                rpc: vars.millis("VOICE_RPC_TIMEOUT_MS", "one PerformRpc with LiveKit's own retries", 8_000),
                rpc_response: vars.millis("VOICE_RPC_RESPONSE_MS", "how long LiveKit waits for the agent", 2_500),
                send: vars.millis("VOICE_SEND_TIMEOUT_MS", "one attempt of SendData; there are two", 3_000),
                dispatch: vars.millis("VOICE_DISPATCH_TIMEOUT_MS", "one call about dispatches", 3_000),
            },
            breaker_failures: vars.parse(
                "VOICE_BREAKER_FAILURES",
                "consecutive failures after which LiveKit counts as unavailable",
                5,
            ),
            breaker_probe: vars.millis("VOICE_BREAKER_PROBE_MS", "how often an unavailable LiveKit is probed", 2_000),
        }
    }
}
