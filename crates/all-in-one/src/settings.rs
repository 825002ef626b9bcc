//! The variables of each service, in increasing priority: defaults of one process, variables of this process, variables
//! that the caller gave.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ensemble_chassis::entrance::host_of;
use ensemble_chassis::{Listeners, Vars};

use crate::Config;
use crate::secrets::Secrets;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Settings(Arc<Inner>);

struct Inner {
    /// The edge's address on this machine.
    url: String,
    data: String,
    /// Given by the caller.
    given: HashMap<String, String>,
    /// Values that depend on this set of services: their addresses and shared secrets.
    wire: HashMap<&'static str, String>,
    /// Defaults.
    defaults: HashMap<&'static str, String>,
    /// Whether its plain listener is on loopback.
    is_loopback: bool,
    /// Whether it listens for this machine only.
    is_here: bool,
    /// The addresses at which people on this machine reach the services.
    origins: Vec<String>,
    /// The addresses at which people on other machines do, unless a public address is given.
    for_others: Vec<String>,
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Settings {
    /// `inner` holds the internal addresses in the order identity, machine-registry, session-store, orchestrator,
    /// voice-gateway.
    pub(crate) fn new(
        config: &Config,
        secrets: Secrets,
        inner: &[&Listeners; 5],
        edge: &Listeners,
        interfaces: &[IpAddr],
    ) -> io::Result<Self> {
        let at = edge.public.local_addr()?;
        let url = format!("http://{}", dialled(at));
        let for_others = for_others(at, interfaces);
        let public_base_url = for_others.first().unwrap_or(&url).clone();
        let mut wire = HashMap::from([("INTERNAL_TOKEN", secrets.internal_token)]);
        let urls =
            ["IDENTITY_URL", "MACHINE_REGISTRY_URL", "SESSION_STORE_URL", "ORCHESTRATOR_URL", "VOICE_GATEWAY_URL"];
        let rpc_urls =
            ["IDENTITY_RPC_URL", "MACHINE_REGISTRY_RPC_URL", "SESSION_STORE_RPC_URL", "ORCHESTRATOR_RPC_URL", ""];
        for ((listeners, url), rpc_url) in inner.iter().zip(urls).zip(rpc_urls) {
            wire.insert(url, format!("http://{}", listeners.public.local_addr()?));
            if !rpc_url.is_empty() {
                wire.insert(rpc_url, format!("http://{}", listeners.internal.local_addr()?));
            }
        }
        let defaults = HashMap::from([
            ("KEY_ENCRYPTION_KEY_FILE", secrets.key_encryption_key.display().to_string()),
            ("PUBLIC_BASE_URL", public_base_url),
            ("DATA_ID", secrets.data_id),
            ("DATA_FOLDER", config.data.display().to_string()),
            // No load balancer has to notice that the services stop.
            ("DRAIN_DELAY_MS", "0".to_owned()),
            // One machine runs six services, so two threads for each are enough.
            ("WORKERS", "2".to_owned()),
            // It also runs agents and builds, and all services have to wait for its processors.
            ("RPC_DEADLINE_MS", "5000".to_owned()),
            ("DATABASE_POOL_WAIT_MS", "4500".to_owned()),
            ("APPEND_TIMEOUT_MS", "4500".to_owned()),
        ]);
        let origins = local(at, &url);
        let (data, given) = (config.data.display().to_string(), config.vars.iter().cloned().collect());
        let is_loopback = at.ip().to_canonical().is_loopback();
        let is_here = is_loopback && config.tls.is_none() && edge.proxied.is_none();
        Ok(Self(Arc::new(Inner { url, data, given, wire, defaults, is_loopback, is_here, origins, for_others })))
    }

    pub(crate) fn url(&self) -> &str {
        &self.0.url
    }

    /// The addresses for people on other machines.
    pub(crate) fn for_others(&self) -> Vec<String> {
        let inner = Arc::clone(&self.0);
        // The default is left out, so that only a value from outside is found.
        let mut vars = Vars::over_env(move |name, env| inner.operators(name, env));
        let given = vars.text("PUBLIC_BASE_URL", "where people reach the edge", "");
        if given.is_empty() { self.0.for_others.clone() } else { vec![given] }
    }

    /// The hosts that requests to a listener on loopback may name: those of the addresses at which sign-ins are taken.
    pub(crate) fn names_here(&self) -> Option<Vec<String>> {
        let mut origins = self.of("identity").list("PUBLIC_ORIGINS", "where people reach the services", "");
        let mut edge = self.of("edge-proxy");
        origins.push(edge.text("PUBLIC_BASE_URL", "where people reach the edge", ""));
        origins.push(edge.text("SHARE_BASE_URL", "where public links lead", ""));
        let names: BTreeSet<String> = origins.iter().filter_map(|origin| name(origin)).collect();
        self.0.is_loopback.then(|| names.into_iter().collect())
    }

    /// The host that people on other machines name. An empty one is that of no request.
    pub(crate) fn public_name(&self) -> String {
        name(&self.of("edge-proxy").text("PUBLIC_BASE_URL", "where people reach the edge", "")).unwrap_or_default()
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
            // A database URL is never shared: each service has its own database.
            return for_one.or_else(|| Some(format!("sqlite:{}/{service}.db", self.data)));
        }
        for_one
            .or_else(|| self.given.get(name).cloned())
            .or_else(|| self.wire.get(name).cloned())
            .or_else(|| env(name))
            .or_else(|| self.defaults.get(name).cloned())
            .or_else(|| match name {
                "PUBLIC_ORIGINS" => Some(self.origins(service, env)),
                "ONLY_HERE" => Some(self.is_only_here(env).to_string()),
                _ => None,
            })
    }

    /// The value that the caller or the environment of this process gives to all services.
    fn operators(&self, name: &str, env: Env<'_>) -> Option<String> {
        self.given.get(name).cloned().or_else(|| env(name))
    }

    /// Whether no other computer is meant to reach the server, neither by itself nor by a proxy that has a public address.
    fn is_only_here(&self, env: Env<'_>) -> bool {
        let is_given = |name: &str| {
            let of_service =
                |service: &&str| env(&format!("{}_{name}", service.replace('-', "_").to_uppercase())).is_some();
            self.operators(name, env).is_some() || ["edge-proxy", "identity"].iter().any(of_service)
        };
        self.is_here && !["PUBLIC_BASE_URL", "PUBLIC_ORIGINS", "TRUSTED_PROXIES"].into_iter().any(is_given)
    }

    /// Accept sign-ins at the local address, and at the public address. Where none is given: at the machine's addresses.
    fn origins(&self, service: &str, env: Env<'_>) -> String {
        let mut origins = self.origins.clone();
        if self.operators("PUBLIC_BASE_URL", env).is_none() {
            origins.extend(self.for_others.iter().filter(|other| !self.origins.contains(*other)).cloned());
        }
        let base = self.value(service, "PUBLIC_BASE_URL", env).unwrap_or_default();
        let origin: String = base.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        if !origins.contains(&origin) {
            origins.push(origin);
        }
        origins.join(",")
    }
}

/// The address to dial when a server listens on all interfaces.
pub fn dialled(at: SocketAddr) -> SocketAddr {
    if at.ip().is_unspecified() { ([127, 0, 0, 1], at.port()).into() } else { at }
}

/// The host of an address.
fn name(url: &str) -> Option<String> {
    Some(host_of(url.split('/').nth(2)?).to_owned())
}

/// The addresses at which people on this machine reach a server that listens at `at`.
fn local(at: SocketAddr, url: &str) -> Vec<String> {
    let mut origins = vec![url.to_owned(), format!("http://localhost:{}", at.port())];
    if at.is_ipv6() && at.ip().is_unspecified() {
        // It takes connections of both families.
        origins.push(format!("http://[::1]:{}", at.port()));
    }
    origins
}

/// The addresses for other machines of a server that listens at `at`.
fn for_others(at: SocketAddr, interfaces: &[IpAddr]) -> Vec<String> {
    if at.ip().is_loopback() {
        return Vec::new();
    }
    if !at.ip().is_unspecified() {
        return vec![format!("http://{at}")];
    }
    let is_reached = |address: &&IpAddr| at.is_ipv6() || address.is_ipv4();
    interfaces.iter().filter(is_reached).map(|ip| format!("http://{}", SocketAddr::new(*ip, at.port()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> Settings {
        listening_at("127.0.0.1:0", vars)
    }

    fn listening_at(listen: &str, vars: &[(&str, &str)]) -> Settings {
        let mut config = Config::new("/data", listen.parse().unwrap());
        config.vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = Secrets {
            key_encryption_key: "/data/key".into(),
            internal_token: "made".to_owned(),
            data_id: "id".to_owned(),
        };
        let listeners = || Listeners::loopback().unwrap();
        let [a, b, c, d, e] = [listeners(), listeners(), listeners(), listeners(), listeners()];
        let edge = Listeners::bind(config.listen, ([127, 0, 0, 1], 0).into()).unwrap();
        Settings::new(&config, secrets, &[&a, &b, &c, &d, &e], &edge, &[]).unwrap()
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
    fn addresses_of_the_services_are_not_taken_operators() {
        let env = [("INTERNAL_TOKEN", "outside"), ("IDENTITY_RPC_URL", "http://outside"), ("LIVEKIT_URL", "http://lk")];
        let plain = settings(&[]);
        assert_eq!(value(&plain, "session-store", "INTERNAL_TOKEN", &env).unwrap(), "made");
        assert!(value(&plain, "session-store", "IDENTITY_RPC_URL", &env).unwrap().starts_with("http://127.0.0.1:"));
        assert_eq!(value(&plain, "voice-gateway", "LIVEKIT_URL", &env).unwrap(), "http://lk");
        assert_eq!(value(&plain, "identity", "NO_SUCH_THING", &env), None);
        assert_eq!(value(&plain, "session-store", "RPC_DEADLINE_MS", &env).unwrap(), "5000");
        assert_eq!(value(&plain, "identity", "RPC_DEADLINE_MS", &[("RPC_DEADLINE_MS", "70")]).unwrap(), "70");
        let given = settings(&[("WORKERS", "3"), ("EDGE_PROXY_WORKERS", "5")]);
        assert_eq!(value(&given, "identity", "WORKERS", &[("WORKERS", "9")]).unwrap(), "3");
        assert_eq!(value(&given, "edge-proxy", "WORKERS", &[]).unwrap(), "5");
    }

    #[test]
    fn sign_ins_are_taken_here_and_at_the_public_address() {
        let plain = settings(&[]);
        let own = plain.url().to_owned();
        let local = own.replace("127.0.0.1", "localhost");
        let origins = |env: &[(&str, &str)]| value(&plain, "identity", "PUBLIC_ORIGINS", env).unwrap();
        assert_eq!(origins(&[]), format!("{own},{local}"));
        let public = [("PUBLIC_BASE_URL", "https://api.example.com/ensemble")];
        assert_eq!(origins(&public), format!("{own},{local},https://api.example.com"));
        assert_eq!(origins(&[("PUBLIC_ORIGINS", "https://a")]), "https://a");
    }

    #[test]
    fn a_server_is_only_here_when_it_listens_here_and_has_no_public_address() {
        let only_here = |listen: &str, vars: &[(&str, &str)], env: &[(&str, &str)]| {
            value(&listening_at(listen, vars), "edge-proxy", "ONLY_HERE", env).unwrap()
        };
        let public = [("PUBLIC_BASE_URL", "https://api.example.com")];
        assert_eq!(only_here("127.0.0.1:0", &[], &[]), "true");
        assert_eq!(only_here("127.0.0.1:0", &public, &[]), "false");
        assert_eq!(only_here("127.0.0.1:0", &[], &public), "false");
        assert_eq!(only_here("0.0.0.0:0", &[], &[]), "false");
        for name in ["PUBLIC_ORIGINS", "TRUSTED_PROXIES", "EDGE_PROXY_PUBLIC_BASE_URL", "IDENTITY_PUBLIC_ORIGINS"] {
            assert_eq!(only_here("127.0.0.1:0", &[], &[(name, "https://api.example.com")]), "false", "{name}");
        }
    }

    #[test]
    fn a_listener_on_loopback_answers_to_the_names_where_sign_ins_are_taken() {
        let names = |listen: &str, vars: &[(&str, &str)]| listening_at(listen, vars).names_here();
        let public = ("PUBLIC_BASE_URL", "https://api.example.com:8443/ensemble");
        assert_eq!(names("127.0.0.1:0", &[]).unwrap(), ["127.0.0.1", "localhost"]);
        assert_eq!(names("[::1]:0", &[public]).unwrap(), ["[::1]", "api.example.com", "localhost"]);
        let several =
            [("IDENTITY_PUBLIC_ORIGINS", "https://a,https://b:1"), ("SHARE_BASE_URL", "https://s.example.com")];
        assert_eq!(names("127.0.0.1:0", &several).unwrap(), ["127.0.0.1", "a", "b", "s.example.com"]);
        assert_eq!(names("0.0.0.0:0", &[public]), None);
        let settings = listening_at("0.0.0.0:0", &[public]);
        assert_eq!(settings.public_name(), "api.example.com");
    }

    #[test]
    fn people_on_this_machine_reach_it_by_both_families() {
        let at = |at: &str| {
            let at = at.parse().unwrap();
            local(at, &format!("http://{}", dialled(at)))
        };
        assert_eq!(at("127.0.0.1:80"), ["http://127.0.0.1:80", "http://localhost:80"]);
        assert_eq!(at("0.0.0.0:80"), ["http://127.0.0.1:80", "http://localhost:80"]);
        assert_eq!(at("[::1]:80"), ["http://[::1]:80", "http://localhost:80"]);
        assert_eq!(at("[::]:80"), ["http://127.0.0.1:80", "http://localhost:80", "http://[::1]:80"]);
    }

    #[test]
    fn a_server_for_others_is_reached_at_the_addresses_of_its_machine() {
        let interfaces: Vec<IpAddr> = ["192.0.2.2", "2001:db8::1"].iter().map(|ip| ip.parse().unwrap()).collect();
        let at = |listen: &str| for_others(listen.parse().unwrap(), &interfaces);
        assert!(at("127.0.0.1:8080").is_empty() && at("[::1]:8080").is_empty());
        assert_eq!(at("192.0.2.9:80"), ["http://192.0.2.9:80"]);
        assert_eq!(at("0.0.0.0:8080"), ["http://192.0.2.2:8080"]);
        assert_eq!(at("[::]:8080"), ["http://192.0.2.2:8080", "http://[2001:db8::1]:8080"]);
    }
}
