//! The addresses of the peers: one variable for each, the same in every service.

use std::time::Duration;

use ensemble_chassis::Vars;

/// The internal listener of another service.
#[derive(Clone, Debug)]
pub struct Peer {
    /// As in `http://identity:9081`, without a slash at the end.
    pub url: String,
    /// The deadline of a call, including its repetition.
    pub deadline: Duration,
}

impl Peer {
    pub fn identity(vars: &mut Vars) -> Self {
        Self::read(vars, "IDENTITY_RPC_URL", "identity's internal listener", "http://127.0.0.1:9081")
    }

    pub fn machine_registry(vars: &mut Vars) -> Self {
        Self::read(vars, "MACHINE_REGISTRY_RPC_URL", "machine-registry's internal listener", "http://127.0.0.1:9082")
    }

    pub fn session_store(vars: &mut Vars) -> Self {
        Self::read(vars, "SESSION_STORE_RPC_URL", "session-store's internal listener", "http://127.0.0.1:9083")
    }

    pub fn orchestrator(vars: &mut Vars) -> Self {
        Self::read(vars, "ORCHESTRATOR_RPC_URL", "orchestrator's internal listener", "http://127.0.0.1:9084")
    }

    fn read(vars: &mut Vars, name: &str, meaning: &str, default: &str) -> Self {
        let url = vars.text(name, meaning, default).trim_end_matches('/').to_owned();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            vars.add_error(name, "must begin with http:// or https://");
        }
        let deadline = vars.millis("RPC_DEADLINE_MS", "how long a call to a peer may take", 1_000);
        Self { url, deadline }
    }
}
