//! Which variables each service sees: what belongs to running in one process, over those of this process, under those
//! that the caller gave.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ensemble_chassis::{Listeners, Vars};

use crate::Config;
use crate::secrets::Secrets;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Settings(Arc<Inner>);

struct Inner {
    /// The edge's address as people type it.
    url: String,
    data: String,
    /// By the caller.
    given: HashMap<String, String>,
    /// What only makes sense between these very services: their addresses, and what they show each other.
    wire: HashMap<&'static str, String>,
    /// What holds unless somebody says otherwise.
    defaults: HashMap<&'static str, String>,
    /// Where people reach us on this machine.
    origins: [String; 2],
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Settings {
    /// `inner` in the order identity, machine-registry, session-store, orchestrator, voice-gateway.
    pub(crate) fn new(
        config: &Config,
        secrets: Secrets,
        inner: &[&Listeners; 5],
        edge: &Listeners,
    ) -> io::Result<Self> {
        let at = edge.public.local_addr()?;
        let url = format!("http://{}", dialled(at));
        let mut wire = HashMap::from([("INTERNAL_TOKEN", secrets.internal_token)]);
        let urls =
            ["IDENTITY_URL", "MACHINE_REGISTRY_URL", "SESSION_STORE_URL", "ORCHESTRATOR_URL", "VOICE_GATEWAY_URL"];
        let rpc_urls = ["IDENTITY_RPC_URL", "MACHINE_REGISTRY_RPC_URL", "", "ORCHESTRATOR_RPC_URL", ""];
        for ((doors, url), rpc_url) in inner.iter().zip(urls).zip(rpc_urls) {
            wire.insert(url, format!("http://{}", doors.public.local_addr()?));
            if !rpc_url.is_empty() {
                wire.insert(rpc_url, format!("http://{}", doors.internal.local_addr()?));
            }
        }
        let defaults = HashMap::from([
            ("KEY_ENCRYPTION_KEY_FILE", secrets.key_encryption_key.display().to_string()),
            ("PUBLIC_BASE_URL", url.clone()),
            // No load balancer has to notice that the services stop.
            ("DRAIN_DELAY_MS", "0".to_owned()),
            // Two threads for each of six services are plenty on one machine.
            ("WORKERS", "2".to_owned()),
        ]);
        let origins = [url.clone(), format!("http://localhost:{}", at.port())];
        let (data, given) = (config.data.display().to_string(), config.vars.iter().cloned().collect());
        Ok(Self(Arc::new(Inner { url, data, given, wire, defaults, origins })))
    }

    pub(crate) fn public_url(&self) -> &str {
        &self.0.url
    }

    /// The variables of one service.
    pub(crate) fn of(&self, service: &'static str) -> Vars {
        let inner = Arc::clone(&self.0);
        Vars::over_env(move |name, env| inner.value(service, name, env))
    }
}

impl Inner {
    fn value(&self, service: &str, name: &str, env: Env<'_>) -> Option<String> {
        let alone = format!("{}_{name}", service.to_uppercase().replace('-', "_"));
        let for_one = self.given.get(&alone).cloned().or_else(|| env(&alone));
        if name == "DATABASE_URL" {
            // Never the same one for all: each service has a database of its own.
            return for_one.or_else(|| Some(format!("sqlite:{}/{service}.db", self.data)));
        }
        for_one
            .or_else(|| self.given.get(name).cloned())
            .or_else(|| self.wire.get(name).cloned())
            .or_else(|| env(name))
            .or_else(|| self.defaults.get(name).cloned())
            .or_else(|| (name == "PUBLIC_ORIGINS").then(|| self.origins(service, env)))
    }

    /// Sign-ins are taken where people reach us on this machine, and at the public address where there is one.
    fn origins(&self, service: &str, env: Env<'_>) -> String {
        let base = self.value(service, "PUBLIC_BASE_URL", env).unwrap_or_default();
        let origin: String = base.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        let mut origins = self.origins.to_vec();
        if !origins.contains(&origin) {
            origins.push(origin);
        }
        origins.join(",")
    }
}

/// What people dial when a server listens everywhere.
fn dialled(at: SocketAddr) -> SocketAddr {
    if at.ip().is_unspecified() { ([127, 0, 0, 1], at.port()).into() } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> Settings {
        let mut config = Config::new("/data", ([127, 0, 0, 1], 0).into());
        config.vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = Secrets { key_encryption_key: "/data/key".into(), internal_token: "made".to_owned() };
        let doors = || Listeners::loopback().unwrap();
        let [a, b, c, d, e, edge] = [doors(), doors(), doors(), doors(), doors(), doors()];
        Settings::new(&config, secrets, &[&a, &b, &c, &d, &e], &edge).unwrap()
    }

    fn value(settings: &Settings, service: &str, name: &str, env: &[(&str, &str)]) -> Option<String> {
        let env = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        settings.0.value(service, name, &env)
    }

    #[test]
    fn every_service_has_a_database_of_its_own() {
        let plain = settings(&[]);
        let env = [("DATABASE_URL", "postgres://x/all"), ("IDENTITY_DATABASE_URL", "postgres://x/identity")];
        let database = |service| value(&plain, service, "DATABASE_URL", &env).unwrap();
        assert_eq!(database("identity"), "postgres://x/identity");
        assert_eq!(database("session-store"), "sqlite:/data/session-store.db");
        let given = settings(&[("SESSION_STORE_DATABASE_URL", "postgres://x/sessions")]);
        assert_eq!(value(&given, "session-store", "DATABASE_URL", &env).unwrap(), "postgres://x/sessions");
    }

    #[test]
    fn addresses_of_the_services_are_not_taken_from_outside() {
        let env = [("INTERNAL_TOKEN", "outside"), ("IDENTITY_RPC_URL", "http://outside"), ("LIVEKIT_URL", "http://lk")];
        let plain = settings(&[]);
        assert_eq!(value(&plain, "session-store", "INTERNAL_TOKEN", &env).unwrap(), "made");
        assert!(value(&plain, "session-store", "IDENTITY_RPC_URL", &env).unwrap().starts_with("http://127.0.0.1:"));
        assert_eq!(value(&plain, "voice-gateway", "LIVEKIT_URL", &env).unwrap(), "http://lk");
        assert_eq!(value(&plain, "identity", "NO_SUCH_THING", &env), None);
        let given = settings(&[("WORKERS", "3"), ("EDGE_PROXY_WORKERS", "5")]);
        assert_eq!(value(&given, "identity", "WORKERS", &[("WORKERS", "9")]).unwrap(), "3");
        assert_eq!(value(&given, "edge-proxy", "WORKERS", &[]).unwrap(), "5");
    }

    #[test]
    fn sign_ins_are_taken_here_and_at_the_public_address() {
        let plain = settings(&[]);
        let own = plain.public_url().to_owned();
        let local = own.replace("127.0.0.1", "localhost");
        let origins = |env: &[(&str, &str)]| value(&plain, "identity", "PUBLIC_ORIGINS", env).unwrap();
        assert_eq!(origins(&[]), format!("{own},{local}"));
        let public = [("PUBLIC_BASE_URL", "https://api.example.com/ensemble")];
        assert_eq!(origins(&public), format!("{own},{local},https://api.example.com"));
        assert_eq!(origins(&[("PUBLIC_ORIGINS", "https://a")]), "https://a");
    }
}
