//! What every test needs: a LiveKit double, a gateway with short timers, a client with a voice key.

use ensemble_chassis::Running;
use ensemble_doubles::livekit::{API_KEY, API_SECRET, Double};
use ensemble_testkit::{Answer, Api, Backend, Peers, SOON, TestDatabase, eventually, sql, start_service};
use ensemble_types::ids::{MessageId, UserId};
use ensemble_voice_gateway::VoiceGateway;
use serde_json::{Value, json};

pub(crate) const VOICE_KEY: &str = "voice-key-of-the-tests-1";
pub(crate) const OTHER_VOICE_KEY: &str = "voice-key-of-the-tests-2";
pub(crate) const BRIDGE_KEY: &str = "tool-bridge-key-of-the-tests-0123456789";

pub(crate) struct Fixture {
    pub(crate) double: Double,
    pub(crate) gateway: Running,
    pub(crate) peers: Peers,
    pub(crate) database: TestDatabase,
    pub(crate) api: Api,
    pub(crate) vars: Vec<(String, String)>,
}

impl Fixture {
    pub(crate) async fn new(on: Backend) -> Self {
        Self::with(on, &[]).await
    }

    pub(crate) async fn with(on: Backend, more: &[(&str, &str)]) -> Self {
        let (double, peers) = (Double::start().unwrap(), Peers::start().await);
        let database = TestDatabase::new(on, "voice-gateway", ensemble_voice_gateway::migrations()).await;
        let vars = vars(&double, &peers, &database, more);
        let gateway = start_service::<VoiceGateway>(vars.clone()).await;
        double.send_webhooks_to(format!("{}/hooks/livekit", gateway.public_url()));
        let api = Api::new(&gateway.public_url()).with_token(VOICE_KEY);
        Self { double, gateway, peers, database, api, vars }
    }

    /// One more gateway on the same database; PostgreSQL only.
    pub(crate) async fn replica(&self) -> Running {
        start_service::<VoiceGateway>(self.vars.clone()).await
    }

    /// A start that is allowed.
    pub(crate) async fn start(&self, user: &str, session: &str) -> Started {
        let body = json!({ "userId": user, "sessionId": session });
        let key = MessageId::generate().to_string();
        let start = async || self.api.post_keyed("/v1/voice/session/start", &key, &body).await;
        Started::of(&self.retry(start).await)
    }

    /// A call with the user's token and the voice key.
    pub(crate) async fn as_user(&self, user: UserId, path: &str, body: &Value) -> Answer {
        let api = Api::new(&self.gateway.public_url()).with_token(&self.peers.issuer().user(user));
        self.retry(async || Api::send(api.request("POST", path).header("x-voice-key", VOICE_KEY).json(body)).await)
            .await
    }

    pub(crate) async fn status(&self, id: &str) -> Value {
        self.retry(async || self.api.get(&format!("/v1/voice/session/{id}/status")).await).await.expect(200)
    }

    pub(crate) async fn stop(&self, id: &str) -> Value {
        let body = json!({ "gatewaySessionId": id });
        self.retry(async || self.api.post("/v1/voice/session/stop", &body).await).await.expect(200)
    }

    /// Retries while the database is overloaded, because tests run on busy machines.
    pub(crate) async fn retry(&self, mut ask: impl AsyncFnMut() -> Answer) -> Answer {
        let mut answer = ask().await;
        for _ in 0..20 {
            if answer.status != 503 || !answer.text.contains("database") {
                break;
            }
            answer = ask().await;
        }
        answer
    }

    /// A text under an id of its own, so that it may be repeated.
    pub(crate) async fn text(&self, id: &str, text: &str) -> Value {
        let body = json!({ "gatewaySessionId": id, "text": text, "messageId": MessageId::generate().to_string() });
        self.retry(async || self.api.post("/v1/voice/session/text", &body).await).await.expect(200)
    }

    pub(crate) async fn context(&self, id: &str, payload: &Value) -> Value {
        let body = json!({ "gatewaySessionId": id, "payload": payload });
        self.retry(async || self.api.post("/v1/voice/session/context", &body).await).await.expect(200)
    }

    /// Waits until the status is as expected.
    pub(crate) async fn status_becomes(&self, id: &str, expected: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        eventually(SOON, async || {
            last = self.status(id).await;
            expected(&last)
        })
        .await;
        last
    }

    pub(crate) async fn ends(&self, id: &str, state: &str, reason: &str) -> Value {
        let status = self.status_becomes(id, |status| status["state"] == "stopped" || status["state"] == "error").await;
        assert_eq!((&status["state"], &status["endReason"]), (&json!(state), &json!(reason)), "{status}");
        status
    }

    pub(crate) async fn room_goes(&self, room: &str) {
        eventually(SOON, async || self.double.room(room).is_none()).await;
    }

    /// A session with a person and a ready agent in it.
    pub(crate) async fn talking(&self, user: &str, session: &str) -> Started {
        let started = self.start(user, session).await;
        self.double.join(&started.token).unwrap();
        self.status_becomes(&started.id, |status| status["state"] == "active").await;
        started
    }

    /// How many rows a table of the database has.
    pub(crate) async fn rows(&self, table: &str) -> i64 {
        sql::number(&self.database.url, &format!("SELECT count(*) FROM {table}")).await
    }

    pub(crate) async fn metrics(&self) -> String {
        Api::new(&self.gateway.internal_url()).get("/metrics").await.text
    }
}

/// The fields of a start that was allowed.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) id: String,
    pub(crate) room: String,
    pub(crate) identity: String,
    pub(crate) token: String,
    pub(crate) body: Value,
}

impl Started {
    pub(crate) fn of(answer: &Answer) -> Self {
        let body = answer.expect(200);
        assert_eq!(body["allowed"], true, "{body}");
        let text = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("no {name} in {body}")).to_owned();
        Self {
            id: text("gatewaySessionId"),
            room: text("roomName"),
            identity: text("participantIdentity"),
            token: text("participantToken"),
            body: body.clone(),
        }
    }
}

pub(crate) fn vars(
    double: &Double,
    peers: &Peers,
    database: &TestDatabase,
    more: &[(&str, &str)],
) -> Vec<(String, String)> {
    let mut vars = peers.vars();
    let keys = format!("{VOICE_KEY},{OTHER_VOICE_KEY}");
    let url = double.url();
    let ours = [
        ("DATABASE_URL", database.url.as_str()),
        ("DATABASE_POOL_SIZE", "8"),
        ("VOICE_PUBLIC_KEY", &keys),
        ("LIVEKIT_URL", &url),
        ("LIVEKIT_WS_URL", "wss://voice.example"),
        ("LIVEKIT_API_KEY", API_KEY),
        ("LIVEKIT_API_SECRET", API_SECRET),
        ("VOICE_CREATE_TIMEOUT_MS", "60000"),
        ("VOICE_CREATE_GIVE_UP_MS", "180000"),
        ("VOICE_DELETE_TIMEOUT_MS", "60000"),
        ("VOICE_LIST_TIMEOUT_MS", "60000"),
        ("VOICE_STOP_BUDGET_MS", "1500"),
        ("VOICE_BREAKER_PROBE_MS", "100"),
        ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "60"),
        ("VOICE_AGENT_GONE_GRACE_MS", "100"),
        ("VOICE_AGENT_ASK_MS", "100"),
        ("VOICE_AGENT_READY_TIMEOUT_SECONDS", "1"),
        ("VOICE_EMPTY_TIMEOUT_SECONDS", "120"),
        ("VOICE_DEPARTURE_TIMEOUT_SECONDS", "1"),
        ("VOICE_RECONCILE_SECONDS", "0.5"),
        ("VOICE_SWEEP_MS", "200"),
        ("VOICE_SETTLE_MS", "300"),
        ("VOICE_DELETE_RETRY_MS", "100"),
        ("VOICE_DELIVERY_RETRY_MS", "50"),
        ("VOICE_DELIVERY_TIMEOUT_MS", "10000"),
        ("VOICE_STATUS_FRESH_MS", "200"),
        ("VOICE_TOOL_BRIDGE_ALLOWED_ORIGINS", "https://app.example"),
        ("TOOL_BRIDGE_API_KEY", BRIDGE_KEY),
        ("VOICE_STARTS_PER_MINUTE_PER_USER", "0"),
        ("VOICE_STARTS_PER_MINUTE_PER_ADDRESS", "0"),
    ];
    // Later ones win.
    vars.extend(ours.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    vars
}
