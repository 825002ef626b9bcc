//! The whole house, running in this process, for stories that go through the edge: started on either database, with people
//! who have signed in and a clock that a test can move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ensemble_all_in_one::{Config, Stack};
use ensemble_chassis::Clock;
use ensemble_client::{AccountKey, Client, Credential};
use ensemble_testkit::Backend;
use ensemble_testkit::postgres::shared_url;
use ensemble_types::ids::TokenId;
use ensemble_types::time::Timestamp;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

/// What the voice gateway of the house wants to be shown.
pub const VOICE_KEY: &str = "voice-key-of-the-test-house";

/// All services, an empty database each.
pub struct House {
    pub stack: Stack,
    ahead: Arc<AtomicI64>,
    pub http: reqwest::Client,
    _folder: tempfile::TempDir,
}

/// Somebody with an account.
#[derive(Clone, Debug)]
pub struct Person {
    pub id: String,
    pub token: String,
}

impl House {
    /// Without rate limits, unless `vars` bring them back.
    pub async fn open(backend: Backend, vars: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut config = Config::new(folder.path().join("data"), ([127, 0, 0, 1], 0).into());
        let ahead = Arc::new(AtomicI64::new(0));
        let (machine, offset) = (Clock::system(), Arc::clone(&ahead));
        config.clock =
            Clock::from_fn(move || Timestamp::from_micros(machine.now().micros() + offset.load(Ordering::SeqCst)));
        let always = [
            ("LIMIT_ACCOUNT", "0"),
            ("LIMIT_ADDRESS", "0"),
            ("LIMIT_MACHINE", "0"),
            ("LIMIT_SIGN_IN", "0"),
            ("LIMIT_PUBLIC_LINK", "0"),
            ("LIMIT_NEW_ACCOUNTS", "0"),
            ("MAX_CONNECTIONS_PER_ADDRESS", "20000"),
            ("VOICE_PUBLIC_KEY", VOICE_KEY),
            ("LIVEKIT_URL", "http://127.0.0.1:9"),
            ("LIVEKIT_API_KEY", "test-key"),
            ("LIVEKIT_API_SECRET", "test-secret-test-secret-test-secret"),
        ];
        config.vars.extend(always.iter().chain(vars).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        if backend == Backend::Postgres {
            config.vars.extend(databases().await?);
        }
        let stack = Stack::start(config).await?;
        Ok(Self { stack, ahead, http: reqwest::Client::builder().no_proxy().build()?, _folder: folder })
    }

    pub fn url(&self) -> &str {
        self.stack.url()
    }

    /// Moves the clocks of all services; the databases keep theirs.
    pub fn advance(&self, time: Duration) {
        self.ahead.fetch_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// A new account, signed in.
    pub async fn person(&self) -> Result<Person> {
        let key = Credential::Account(AccountKey::generate());
        let token = Client::builder(self.url()).credential(key).build()?.sign_in().await?;
        Ok(Person { id: token.user_id.to_string(), token: token.token.expose_secret().to_owned() })
    }

    /// A call with a bearer (none when it is empty); the status and the body, null when it is not JSON.
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
        // A stream does not end by itself; that it began is all there is to see here.
        let text = if is_stream { String::new() } else { answer.text().await? };
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// A call that has to succeed.
    pub async fn must(&self, token: &str, method: &str, path: &str, body: Value) -> Result<Value> {
        let body = (!body.is_null()).then_some(body);
        let (status, answer) = self.call(token, method, path, body.as_ref()).await?;
        anyhow::ensure!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        Ok(answer)
    }

    pub async fn machine(&self, owner: &Person, id: &str) -> Result<()> {
        let body = json!({ "id": id, "metadata": "sealed", "encryptionKey": "sealed" });
        self.must(&owner.token, "POST", "/v1/machines", body).await.map(drop)
    }

    /// A new session of `owner` on the machine `m`; its id.
    pub async fn session(&self, owner: &Person, machine: &str) -> Result<String> {
        let body = json!({ "machineId": machine, "metadata": "sealed", "encryptionKey": "sealed" });
        text(&self.must(&owner.token, "POST", "/v1/sessions", body).await?, "id")
    }
}

/// A text member of an answer.
pub fn text(answer: &Value, name: &str) -> Result<String> {
    answer.get(name).and_then(Value::as_str).map(str::to_owned).with_context(|| format!("no {name} in {answer}"))
}

/// An empty database on the shared server for every service that has one.
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
