//! Which service answers which path, how long it may take, and which limit a request counts against.

/// The services behind the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Upstream {
    Identity,
    MachineRegistry,
    SessionStore,
    Orchestrator,
    VoiceGateway,
}

impl Upstream {
    pub const ALL: [Self; 5] =
        [Self::Identity, Self::MachineRegistry, Self::SessionStore, Self::Orchestrator, Self::VoiceGateway];

    /// The name of the service, for variables, logs and problems.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::MachineRegistry => "machine-registry",
            Self::SessionStore => "session-store",
            Self::Orchestrator => "orchestrator",
            Self::VoiceGateway => "voice-gateway",
        }
    }
}

/// One of something for each service.
#[derive(Clone, Debug)]
pub struct PerUpstream<T>([T; 5]);

impl<T> PerUpstream<T> {
    pub fn new(make: impl FnMut(Upstream) -> T) -> Self {
        Self(Upstream::ALL.map(make))
    }

    pub fn of(&self, upstream: Upstream) -> &T {
        let [identity, machine_registry, session_store, orchestrator, voice_gateway] = &self.0;
        match upstream {
            Upstream::Identity => identity,
            Upstream::MachineRegistry => machine_registry,
            Upstream::SessionStore => session_store,
            Upstream::Orchestrator => orchestrator,
            Upstream::VoiceGateway => voice_gateway,
        }
    }
}

/// A prefix that ends in a slash takes what lies below it; any other takes itself and what lies below it.
const TABLE: [(&str, Upstream); 17] = [
    ("/v3/sessions", Upstream::SessionStore),
    ("/v1/sessions", Upstream::SessionStore),
    ("/v2/sessions", Upstream::SessionStore),
    ("/v1/public-sessions/", Upstream::SessionStore),
    ("/v1/events", Upstream::SessionStore),
    ("/v1/looks", Upstream::SessionStore),
    ("/v1/machines", Upstream::MachineRegistry),
    ("/v1/orchestrator/", Upstream::Orchestrator),
    ("/v1/voice/", Upstream::VoiceGateway),
    ("/hooks/livekit", Upstream::VoiceGateway),
    ("/agent/v1/", Upstream::VoiceGateway),
    ("/v1/auth", Upstream::Identity),
    ("/v1/account", Upstream::Identity),
    ("/v1/invites", Upstream::Identity),
    ("/v1/devices", Upstream::Identity),
    ("/v1/users/", Upstream::Identity),
    ("/.well-known/jwks.json", Upstream::Identity),
];
const LINKS: [&str; 2] = ["/v1/auth/links/", "/v1/invites/"];

/// The service that answers a path, and the prefix by which it has it; none for the edge's own pages and for what is no path.
pub fn route(path: &str) -> Option<(&'static str, Upstream)> {
    TABLE.into_iter().find(|(prefix, _)| is_under(path, prefix))
}

fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
}

/// Whether the service answers when something happens, or when the caller's own deadline is over.
pub fn is_long_poll(path: &str) -> bool {
    path.strip_prefix("/v1/orchestrator/")
        .is_some_and(|rest| rest == "leases" || ["/pend", "/apply", "/discard"].iter().any(|last| rest.ends_with(last)))
        || path == "/v1/looks"
        || LINKS.iter().any(|links| path.strip_prefix(links).is_some_and(|id| !id.contains('/')))
}

/// Which limit a request counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Against the account, the machine token or the address.
    Ordinary,
    /// Signing in, reading a public link, and asking to be linked: each against the address, strictly.
    SignIn,
    PublicLink,
    DeviceLink,
    /// Against the account, apart from its other requests: a person who looks can still say stop.
    Look,
    /// A runner's heartbeat or finish, counted and never refused: refusing it would throw work away.
    NeverThrottled,
    /// The frames of a machine, which come five times a second: their service drops what is too much.
    LiveFrames,
    /// Health, asked for by the platform.
    Exempt,
}

pub fn class(is_post: bool, path: &str) -> Class {
    match path {
        "/v1/auth" | "/v1/auth/challenge" => Class::SignIn,
        "/healthz" | "/readyz" => Class::Exempt,
        _ if is_post && LINKS.iter().any(|links| is_call(path, links, &["request", "claim"])) => Class::DeviceLink,
        _ if ["/v1/public-sessions/", "/share/", LINKS[1]].iter().any(|one| is_under(path, one)) => Class::PublicLink,
        _ if is_post && is_call(path, "/v1/orchestrator/leases/", &["heartbeat", "finish"]) => Class::NeverThrottled,
        "/v1/looks" if is_post => Class::Look,
        "/v3/sessions/live" if is_post => Class::LiveFrames,
        _ => Class::Ordinary,
    }
}

/// Whether the path is one of these verbs of one thing below `prefix`.
fn is_call(path: &str, prefix: &str, verbs: &[&str]) -> bool {
    path.strip_prefix(prefix).and_then(|rest| rest.split_once('/')).is_some_and(|(_, verb)| verbs.contains(&verb))
}

/// May the request be sent again when a connection that had been idle turns out to be dead before the first byte of an
/// answer? Only what changes nothing; reading a public link counts a use, and a long-poll may have taken something.
pub fn is_repeatable(is_read: bool, path: &str) -> bool {
    is_read && !is_under(path, "/v1/public-sessions/") && !is_long_poll(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_lead_to_their_services() {
        for (path, upstream) in [
            ("/v1/sessions", Upstream::SessionStore),
            ("/v1/sessions/x/shares/y", Upstream::SessionStore),
            ("/v2/sessions/active", Upstream::SessionStore),
            ("/v3/sessions/x/messages", Upstream::SessionStore),
            ("/v1/public-sessions/t", Upstream::SessionStore),
            ("/v1/events", Upstream::SessionStore),
            ("/v1/looks", Upstream::SessionStore),
            ("/v1/looks/x/answer", Upstream::SessionStore),
            ("/v1/machines", Upstream::MachineRegistry),
            ("/v1/orchestrator/runs", Upstream::Orchestrator),
            ("/v1/voice/session/start", Upstream::VoiceGateway),
            ("/hooks/livekit", Upstream::VoiceGateway),
            ("/agent/v1/sessions/x/context", Upstream::VoiceGateway),
            ("/v1/auth", Upstream::Identity),
            ("/v1/auth/tokens/x", Upstream::Identity),
            ("/v1/account", Upstream::Identity),
            ("/v1/invites", Upstream::Identity),
            ("/v1/auth/links/x/request", Upstream::Identity),
            ("/v1/invites/x/claim", Upstream::Identity),
            ("/v1/devices", Upstream::Identity),
            ("/v1/devices/content-ring", Upstream::Identity),
            ("/v1/users/x", Upstream::Identity),
            ("/.well-known/jwks.json", Upstream::Identity),
        ] {
            assert_eq!(route(path).map(|(_, found)| found), Some(upstream), "{path}");
        }
    }

    #[test]
    fn other_paths_belong_to_no_service() {
        for path in [
            "/v1",
            "/v1/sessionsx",
            "/v1/public-sessions",
            "/v1/orchestrator",
            "/v1/users",
            "/V1/sessions",
            "/metrics",
            "/rpc/x",
            "/share/abc",
            "/v4/sessions",
            "/.well-known/x",
        ] {
            assert_eq!(route(path), None, "{path}");
        }
    }

    #[test]
    fn classes_follow_the_path() {
        assert_eq!(class(true, "/v1/auth"), Class::SignIn);
        assert_eq!(class(true, "/v1/auth/challenge"), Class::SignIn);
        assert_eq!(class(true, "/v1/auth/tokens"), Class::Ordinary);
        assert_eq!(class(false, "/v1/public-sessions/t/stream"), Class::PublicLink);
        assert_eq!(class(true, "/v1/auth/links/x/request"), Class::DeviceLink);
        assert_eq!(class(true, "/v1/invites/x/claim"), Class::DeviceLink);
        assert_eq!(class(false, "/v1/invites/x"), Class::PublicLink);
        assert_eq!(class(false, "/v1/invites"), Class::Ordinary);
        assert_eq!(class(true, "/v1/auth/links/x/refusal"), Class::Ordinary);
        assert_eq!(class(true, "/v1/looks"), Class::Look);
        assert_eq!(class(true, "/v1/looks/x/answer"), Class::Ordinary);
        assert_eq!(class(false, "/v1/auth/links/x"), Class::Ordinary);
        assert_eq!(class(true, "/v1/orchestrator/leases/x/heartbeat"), Class::NeverThrottled);
        assert_eq!(class(true, "/v1/orchestrator/leases/x/finish"), Class::NeverThrottled);
        assert_eq!(class(true, "/v3/sessions/live"), Class::LiveFrames);
        assert_eq!(class(false, "/v3/sessions/live"), Class::Ordinary);
        assert_eq!(class(false, "/v1/orchestrator/leases/x/finish"), Class::Ordinary);
        assert_eq!(class(true, "/v1/orchestrator/leases/x/output"), Class::Ordinary);
        assert_eq!(class(false, "/readyz"), Class::Exempt);
    }

    #[test]
    fn long_polls_may_take_long_and_are_not_repeated() {
        assert!(is_long_poll("/v1/orchestrator/runs/x/pend"));
        assert!(is_long_poll("/v1/orchestrator/leases"));
        assert!(is_long_poll("/v1/orchestrator/runs/x/tasks/y/apply"));
        assert!(is_long_poll("/v1/orchestrator/runs/x/tasks/y/discard"));
        assert!(is_long_poll("/v1/auth/links/x") && is_long_poll("/v1/invites/x"));
        assert!(is_long_poll("/v1/looks") && !is_long_poll("/v1/looks/x/answer"));
        assert!(!is_long_poll("/v1/auth/links/x/request"));
        assert!(!is_long_poll("/v1/sessions/x/pend"));
        assert!(is_repeatable(true, "/v1/sessions"));
        assert!(!is_repeatable(false, "/v1/sessions"));
        assert!(!is_repeatable(true, "/v1/public-sessions/t"));
        assert!(!is_repeatable(true, "/v1/orchestrator/runs/x/pend"));
    }

    #[test]
    fn each_service_has_its_name_and_its_own_entry() {
        let names = PerUpstream::new(Upstream::name);
        let found = Upstream::ALL.map(|upstream| *names.of(upstream));
        assert_eq!(found, ["identity", "machine-registry", "session-store", "orchestrator", "voice-gateway"]);
    }

    #[test]
    fn pages_of_links_count_like_links_and_other_paths_do_not() {
        assert_eq!(class(false, "/share/t"), Class::PublicLink);
        assert_eq!(class(false, "/shared"), Class::Ordinary);
        assert_eq!(class(false, "/healthz"), Class::Exempt);
        assert_eq!(class(false, "/healthz/x"), Class::Ordinary);
        assert_eq!(class(true, "/v1/orchestrator/leases/x/y/finish"), Class::Ordinary);
        assert_eq!(class(true, "/v1/orchestrator/leases"), Class::Ordinary);
    }

    #[test]
    fn what_only_resembles_a_long_poll_is_none() {
        for path in ["/v1/orchestrator/leases/x", "/v1/orchestrator/runs/pending", "/v1/orchestrator/runs"] {
            assert!(!is_long_poll(path) && is_repeatable(true, path), "{path}");
        }
    }
}
