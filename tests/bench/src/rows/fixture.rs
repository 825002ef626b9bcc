//! The services that most rows need: identity, machine-registry and session-store on PostgreSQL, with a user and a
//! machine.

use anyhow::{Context, Result, bail};
use ensemble_client::{Client, Credential};
use ensemble_protocol::AccountKey;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::machine::{Machine, Service, free_port};

pub(crate) struct Fixture<'a> {
    machine: &'a Machine,
    pub(crate) identity: Service,
    pub(crate) registry: Service,
    pub(crate) store: Service,
    pub(crate) store_database: String,
    pub(crate) token: String,
    /// Where an edge listens, if the row starts one. People may sign in there.
    pub(super) edge_port: u16,
    http: reqwest::Client,
}

impl<'a> Fixture<'a> {
    pub(crate) fn start(machine: &'a Machine) -> Result<Self> {
        Self::with(machine, &[])
    }

    /// With these variables of session-store.
    pub(crate) fn with(machine: &'a Machine, of_store: &[(&str, &str)]) -> Result<Self> {
        let (port, edge_port) = (free_port()?, free_port()?);
        let identity = machine.service_on(
            port,
            "identity",
            &[
                ("DATABASE_URL", &machine.database("bench_identity")?),
                ("PUBLIC_ORIGINS", &format!("http://127.0.0.1:{port},http://127.0.0.1:{edge_port}")),
            ],
        )?;
        let rpc = [("IDENTITY_RPC_URL", identity.internal.as_str())];
        let registry_database = machine.database("bench_machines")?;
        let registry = machine.service("machine-registry", &[rpc[0], ("DATABASE_URL", &registry_database)])?;
        let store_database = machine.database("bench_sessions")?;
        let mut variables =
            vec![rpc[0], ("MACHINE_REGISTRY_RPC_URL", &registry.internal), ("DATABASE_URL", &store_database)];
        variables.extend(of_store);
        let store = machine.service("session-store", &variables)?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        let token = String::new();
        let fixture = Self { machine, identity, registry, store, store_database, token, edge_port, http };
        let token = fixture.account()?;
        Ok(Self { token, ..fixture })
    }

    /// Makes an account with a machine. Returns a token of it.
    pub(crate) fn account(&self) -> Result<String> {
        let token = self.machine.runtime.block_on(sign_in(&self.identity.public))?;
        let machine = json!({ "id": "m", "metadata": "x", "encryptionKey": "x" });
        self.call_as(&token, &self.registry.public, "POST", "/v1/machines", machine)?;
        Ok(token)
    }

    /// Creates sessions and returns their ids.
    pub(crate) fn sessions(&self, count: usize) -> Result<Vec<String>> {
        self.sessions_of(&self.token, count)
    }

    /// The same for the holder of a token.
    pub(crate) fn sessions_of(&self, token: &str, count: usize) -> Result<Vec<String>> {
        let body = json!({ "machineId": "m", "metadata": "bench", "encryptionKey": "bench" });
        (0..count)
            .map(|_| {
                let made = self.call_as(token, &self.store.public, "POST", "/v1/sessions", body.clone())?;
                made.get("id").and_then(Value::as_str).map(str::to_owned).context("no id")
            })
            .collect()
    }

    /// Appends messages to a session through the public interface, 200 in a call.
    pub(crate) fn fill(&self, session: &str, messages: usize, bytes: usize) -> Result<()> {
        let content = "x".repeat(bytes);
        for batch in 0..messages.div_ceil(200) {
            let drafts: Vec<Value> = (0..200.min(messages - batch * 200))
                .map(|at| json!({ "content": content, "localId": format!("fill-{batch}-{at}") }))
                .collect();
            self.call(
                &self.store.public,
                "POST",
                &format!("/v3/sessions/{session}/messages/batch"),
                json!({ "messages": drafts }),
            )?;
        }
        Ok(())
    }

    pub(crate) fn call(&self, base: &str, method: &str, path: &str, body: Value) -> Result<Value> {
        self.call_as(&self.token, base, method, path, body)
    }

    fn call_as(&self, token: &str, base: &str, method: &str, path: &str, body: Value) -> Result<Value> {
        self.machine.runtime.block_on(async {
            let method = reqwest::Method::from_bytes(method.as_bytes())?;
            let request = self.http.request(method, format!("{base}{path}")).bearer_auth(token);
            let request = if body.is_null() { request } else { request.json(&body) };
            let answer = request.send().await?;
            let status = answer.status();
            let text = answer.text().await?;
            if !status.is_success() {
                bail!("{path}: {status} {text}");
            }
            Ok(serde_json::from_str(&text)?)
        })
    }
}

pub(super) async fn sign_in(base: &str) -> Result<String> {
    let client = Client::builder(base).credential(Credential::Account(AccountKey::generate())).build()?;
    Ok(client.sign_in().await?.token.expose_secret().to_owned())
}
