//! All services in this process, for tests that go through the edge: on either database, with signed-in users and a
//! clock that a test can move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ensemble_all_in_one::Config;
use ensemble_chassis::Clock;
use ensemble_client::{Client, Credential};
use ensemble_protocol::AccountKey;
use ensemble_testkit::Backend;
use ensemble_testkit::postgres::shared_url;
use ensemble_types::ids::TokenId;
use ensemble_types::time::Timestamp;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

/// The application key of the voice gateway.
pub const VOICE_KEY: &str = "voice-key-of-the-tests";

/// All services, each with an empty database.
pub struct Stack {
    pub services: ensemble_all_in_one::Stack,
    clock_offset: Arc<AtomicI64>,
    pub http: reqwest::Client,
    _folder: tempfile::TempDir,
}

/// A user with an account and a token.
#[derive(Clone, Debug)]
pub struct User {
    pub id: String,
    pub token: String,
}

impl Stack {
    /// Starts all services. Rate limits are off unless `vars` sets them.
    pub async fn start(backend: Backend, vars: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut config = Config::new(folder.path().join("data"), ([127, 0, 0, 1], 0).into());
        let clock_offset = Arc::new(AtomicI64::new(0));
        let (system, offset) = (Clock::system(), Arc::clone(&clock_offset));
        config.clock =
            Clock::from_fn(move || Timestamp::from_micros(system.now().micros() + offset.load(Ordering::SeqCst)));
        let always = [
            ("LIMIT_ACCOUNT", "0"),
            ("LIMIT_ADDRESS", "0"),
            ("LIMIT_MACHINE", "0"),
            ("LIMIT_SIGN_IN", "0"),
            ("LIMIT_PUBLIC_LINK", "0"),
            ("LIMIT_DEVICE_LINK", "0"),
            ("LIMIT_LOOK", "0"),
            ("LIMIT_NEW_ACCOUNTS", "0"),
            ("MAX_CONNECTIONS_PER_ADDRESS", "20000"),
            ("VOICE_WRONG_KEYS_PER_MINUTE", "0"),
            ("VOICE_PUBLIC_KEY", VOICE_KEY),
            ("LIVEKIT_URL", "http://127.0.0.1:9"),
            ("LIVEKIT_API_KEY", "test-key"),
            ("LIVEKIT_API_SECRET", "test-secret-test-secret-test-secret"),
        ];
        config.vars.extend(always.iter().chain(vars).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        if backend == Backend::Postgres {
            config.vars.extend(databases().await?);
        }
        let services = ensemble_all_in_one::Stack::start(config).await?;
        Ok(Self { services, clock_offset, http: reqwest::Client::builder().no_proxy().build()?, _folder: folder })
    }

    pub fn url(&self) -> &str {
        self.services.url()
    }

    /// Advances the clocks of all services. The clocks of the databases do not move.
    pub fn advance(&self, time: Duration) {
        self.clock_offset.fetch_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Creates an account and signs in.
    pub async fn user(&self) -> Result<User> {
        let key = Credential::Account(AccountKey::generate());
        let token = Client::builder(self.url()).credential(key).build()?.sign_in().await?;
        Ok(User { id: token.user_id.to_string(), token: token.token.expose_secret().to_owned() })
    }

    /// A call with a bearer token (none when empty). Returns the status, and the body or null when it is not JSON.
    pub async fn call(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        let mut request = self.http.request(method, format!("{}{path}", self.url()));
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let is_stream = answer.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
        // A stream has no end, so only its beginning is checked.
        let text = if is_stream { String::new() } else { answer.text().await? };
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// A call that must succeed.
    pub async fn must(&self, token: &str, method: &str, path: &str, body: Value) -> Result<Value> {
        let body = (!body.is_null()).then_some(body);
        let (status, answer) = self.call(token, method, path, body.as_ref()).await?;
        anyhow::ensure!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        Ok(answer)
    }

    pub async fn machine(&self, owner: &User, id: &str) -> Result<()> {
        let body = json!({ "id": id, "metadata": "sealed", "encryptionKey": "sealed" });
        self.must(&owner.token, "POST", "/v1/machines", body).await.map(drop)
    }

    /// Creates a session of `owner` on the machine and returns its id.
    pub async fn session(&self, owner: &User, machine: &str) -> Result<String> {
        let body = json!({ "machineId": machine, "metadata": "sealed", "encryptionKey": "sealed" });
        text(&self.must(&owner.token, "POST", "/v1/sessions", body).await?, "id")
    }
}

/// A text member of a response.
pub fn text(answer: &Value, name: &str) -> Result<String> {
    answer.get(name).and_then(Value::as_str).map(str::to_owned).with_context(|| format!("no {name} in {answer}"))
}

/// Creates an empty database on the shared server for every service that needs one.
async fn databases() -> Result<Vec<(String, String)>> {
    let server = tokio::task::spawn_blocking(shared_url).await??;
    let (admin, connection) = tokio_postgres::connect(&server, tokio_postgres::NoTls).await?;
    let driver = tokio::spawn(connection);
    let mut vars = Vec::new();
    for service in ["IDENTITY", "MACHINE_REGISTRY", "SESSION_STORE", "ORCHESTRATOR", "VOICE_GATEWAY"] {
        let name = format!("ensemble_test_{}", TokenId::generate().uuid().simple());
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        let base = server.rsplit_once('/').context("the server's address has no path")?.0;
        vars.push((format!("{service}_DATABASE_URL"), format!("{base}/{name}")));
        vars.push((format!("{service}_DATABASE_POOL_SIZE"), "6".to_owned()));
    }
    drop(admin);
    driver.await??;
    Ok(vars)
}
