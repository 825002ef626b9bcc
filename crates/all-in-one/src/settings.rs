//! Which variables each service sees: what belongs to running in one process, over those of this process, under those
//! that the caller gave.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ensemble_chassis::{Doors, Vars};

use crate::Config;
use crate::secrets::Secrets;

pub(crate) struct Settings {
    url: String,
    data: String,
    given: Arc<HashMap<String, String>>,
    own: Arc<HashMap<&'static str, String>>,
}

impl Settings {
    /// `inner` in the order identity, machine-registry, session-store, orchestrator, voice-gateway.
    pub(crate) fn new(config: &Config, secrets: Secrets, inner: &[&Doors; 5], edge: &Doors) -> io::Result<Self> {
        let at = edge.public.local_addr()?;
        let url = format!("http://{}", dialled(at));
        let origins = format!("{url},http://localhost:{}", at.port());
        let mut own = HashMap::from([
            ("INTERNAL_TOKEN", secrets.internal_token),
            ("KEY_ENCRYPTION_KEY_FILE", secrets.key_encryption_key.display().to_string()),
            ("PUBLIC_BASE_URL", url.clone()),
            ("PUBLIC_ORIGINS", origins),
            // Two threads for each of six services are plenty on one machine.
            ("WORKERS", "2".to_owned()),
        ]);
        let urls =
            ["IDENTITY_URL", "MACHINE_REGISTRY_URL", "SESSION_STORE_URL", "ORCHESTRATOR_URL", "VOICE_GATEWAY_URL"];
        let rpc_urls = ["IDENTITY_RPC_URL", "MACHINE_REGISTRY_RPC_URL", "", "ORCHESTRATOR_RPC_URL", ""];
        for ((doors, url), rpc_url) in inner.iter().zip(urls).zip(rpc_urls) {
            own.insert(url, format!("http://{}", doors.public.local_addr()?));
            if !rpc_url.is_empty() {
                own.insert(rpc_url, format!("http://{}", doors.internal.local_addr()?));
            }
        }
        let data = config.data.display().to_string();
        Ok(Self { url, data, given: Arc::new(config.vars.iter().cloned().collect()), own: Arc::new(own) })
    }

    pub(crate) fn public_url(&self) -> &str {
        &self.url
    }

    /// The variables of one service.
    pub(crate) fn of(&self, service: &str) -> Vars {
        let prefix = format!("{}_", service.to_uppercase().replace('-', "_"));
        let database = format!("sqlite:{}/{service}.db", self.data);
        let (given, own) = (Arc::clone(&self.given), Arc::clone(&self.own));
        Vars::over_env(move |name, env| {
            let alone = format!("{prefix}{name}");
            given
                .get(&alone)
                .or_else(|| given.get(name))
                .cloned()
                .or_else(|| env(&alone))
                // Addresses and secrets that only make sense between these very processes are not taken from outside.
                .or_else(|| matches_wire(name).then(|| own.get(name).cloned()).flatten())
                .or_else(|| env(name))
                .or_else(|| own.get(name).cloned())
                .or_else(|| (name == "DATABASE_URL").then(|| database.clone()))
        })
    }
}

fn matches_wire(name: &str) -> bool {
    name.ends_with("_RPC_URL")
        || (name.ends_with("_URL") && name != "PUBLIC_BASE_URL" && name != "DATABASE_URL")
        || name == "INTERNAL_TOKEN"
}

/// What people dial when a server listens everywhere.
fn dialled(at: SocketAddr) -> SocketAddr {
    if at.ip().is_unspecified() { ([127, 0, 0, 1], at.port()).into() } else { at }
}
