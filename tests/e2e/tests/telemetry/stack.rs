//! All services as separate programs, each with an SQLite database, sending their spans to a collector.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey};
use ensemble_doubles::livekit::{API_KEY, API_SECRET, Double};
use ensemble_testkit::{Api, Program, free_address};
use serde_json::{Value, json};

/// All services, in the order in which they are started.
pub(crate) const SERVICES: [&str; 6] =
    ["identity", "machine-registry", "session-store", "orchestrator", "voice-gateway", "edge-proxy"];
/// The public origin.
const ORIGIN: &str = "http://ensemble.test";
/// The application key of the voice gateway.
const VOICE_KEY: &str = "voice-key-of-the-test-stack";

/// The running programs. They end when this is dropped.
pub(crate) struct Stack {
    programs: Vec<(&'static str, Program)>,
    _folder: tempfile::TempDir,
}

/// A signed-in user, calling through the edge.
pub(crate) struct User {
    pub(crate) id: String,
    pub(crate) api: Api,
}

impl Stack {
    /// Starts all services. They send their spans to `collector`. `vars` override all other variables.
    pub(crate) async fn start(collector: &str, livekit: &Double, vars: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        let key = folder.path().join("key");
        write_key(&key);
        let edge = free_address();
        let origins = format!("{ORIGIN},http://{edge}");
        let mut common: Vec<(String, String)> = Vec::new();
        for (name, value) in [
            ("LOG_FORMAT", "json"),
            ("RUST_LOG", "warn"),
            ("WORKERS", "1"),
            ("INTERNAL_TOKEN", "internal-token-of-the-test-stack"),
            ("PUBLIC_ORIGINS", origins.as_str()),
            ("PUBLIC_BASE_URL", ORIGIN),
            ("REGISTRATION", "open"),
            ("KEY_ENCRYPTION_KEY_FILE", &key.display().to_string()),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ("VOICE_PUBLIC_KEY", VOICE_KEY),
            ("LIVEKIT_URL", &livekit.url()),
            ("LIVEKIT_API_KEY", API_KEY),
            ("LIVEKIT_API_SECRET", API_SECRET),
        ] {
            common.push((name.to_owned(), value.to_owned()));
        }
        let mut stack = Self { programs: Vec::new(), _folder: folder };
        for service in SERVICES {
            let mut own = common.clone();
            own.push(("DATABASE_URL".to_owned(), format!("sqlite:{}/{service}.db", stack._folder.path().display())));
            for (peer, program) in &stack.programs {
                let name = peer.to_uppercase().replace('-', "_");
                own.push((format!("{name}_URL"), program.public_url.clone()));
                own.push((format!("{name}_RPC_URL"), program.internal_url.clone()));
            }
            own.extend(vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            let public = if service == "edge-proxy" { edge.clone() } else { free_address() };
            stack.programs.push((service, Program::start_on(public, program(service), own).await));
        }
        stack
    }

    /// The address of the edge, where people may sign in.
    pub(crate) fn url(&self) -> &str {
        &self.of("edge-proxy").public_url
    }

    /// A caller of the edge without credentials.
    pub(crate) fn edge(&self) -> Api {
        Api::new(&self.of("edge-proxy").public_url)
    }

    /// A caller of the internal listener of a service.
    pub(crate) fn inside(&self, service: &str) -> Api {
        Api::new(&self.of(service).internal_url)
    }

    fn of(&self, service: &str) -> &Program {
        let found = self.programs.iter().find(|(name, _)| *name == service);
        found.map_or_else(|| panic!("there is no {service}"), |(_, program)| program)
    }

    /// Signs in with a new account.
    pub(crate) async fn user(&self) -> User {
        let edge = self.edge();
        let key = SigningKey::generate(&mut rand::rngs::OsRng);
        let public = URL_SAFE_NO_PAD.encode(key.verifying_key().as_bytes());
        let challenge = edge.post("/v1/auth/challenge", &json!({})).await.json();
        let challenge = text_of(&challenge, "challenge");
        let message = format!("ensemble-auth-v1\n{ORIGIN}\n{public}\n{challenge}");
        let signature = URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes()).to_bytes());
        let proof = json!({ "publicKey": public, "challenge": challenge, "signature": signature, "origin": ORIGIN });
        let signed = edge.post("/v1/auth", &proof).await;
        assert_eq!(signed.status, 200, "{}", signed.text);
        let signed = signed.json();
        User { id: text_of(&signed, "userId"), api: edge.with_token(&text_of(&signed, "token")) }
    }
}

/// A text field of a response.
fn text_of(of: &Value, name: &str) -> String {
    of.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name} in {of}")).to_owned()
}

/// The path of a program. `make test` builds all programs first; they are in the folder above this test.
pub(crate) fn program(service: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_else(|error| panic!("no path of this test: {error}"));
    let folder = test.ancestors().nth(2).unwrap_or_else(|| panic!("no folder above {}", test.display()));
    let path = folder.join(format!("ensemble-{service}"));
    assert!(path.exists(), "{} is not there: run `cargo build --workspace` first", path.display());
    path
}

fn write_key(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let written = std::fs::write(path, [7_u8; 32]);
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let closed = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o400));
    closed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
