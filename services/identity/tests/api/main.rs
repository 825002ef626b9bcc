//! The interface of identity, on both databases.

#![cfg(test)]

mod accounts;
mod costs;
mod device_access;
mod device_hints;
mod device_links;
mod device_removal;
mod device_sign_in;
mod devices;
mod invites;
mod listing;
mod lists_lost;
mod peers;
mod push_turns;
mod pushes;
mod registration;
mod rotation;
mod sign_in;
mod tokens;
mod voice_tokens;

use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey};
use ensemble_chassis::Running;
use ensemble_identity::Identity;
use ensemble_testkit::peers::INTERNAL_TOKEN;
use ensemble_testkit::{Answer, Api, Backend, TestDatabase, start_service};
use serde_json::{Value, json};

const ORIGIN: &str = "https://api.example.com";

/// A running service with its database.
struct Fixture {
    service: Running,
    api: Api,
    vars: Vec<(String, String)>,
    /// Removed when dropped.
    database: TestDatabase,
}

impl Fixture {
    async fn new(on: Backend) -> Self {
        Self::with(on, &[]).await
    }

    async fn with(on: Backend, settings: &[(&str, &str)]) -> Self {
        let database = TestDatabase::new(on, "identity", ensemble_identity::migrations()).await;
        let key_file = database.folder.path().join("key-encryption-key");
        std::fs::write(&key_file, [7; 32]).unwrap();
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o400)).unwrap();
        let mut vars: Vec<(String, String)> = [
            ("INTERNAL_TOKEN", INTERNAL_TOKEN),
            ("DATABASE_URL", database.url.as_str()),
            ("DATABASE_POOL_SIZE", "4"),
            ("PUBLIC_ORIGINS", "https://api.example.com,http://127.0.0.1:8080"),
            ("KEY_ENCRYPTION_KEY_FILE", &key_file.display().to_string()),
            ("REGISTRATION", "open"),
            ("WORKERS", "2"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        vars.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let service = start_service::<Identity>(vars.clone()).await;
        let api = Api::new(&service.public_url());
        Self { service, api, vars, database }
    }

    /// The service with more settings, on the same database.
    async fn restarted(self, settings: &[(&str, &str)]) -> Self {
        let Self { service, mut vars, database, .. } = self;
        service.stop().await;
        vars.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let service = start_service::<Identity>(vars.clone()).await;
        let api = Api::new(&service.public_url());
        Self { service, api, vars, database }
    }

    /// Another replica on the same database.
    async fn replica(&self) -> Running {
        start_service::<Identity>(self.vars.clone()).await
    }

    async fn challenge(&self) -> String {
        let answer = self.api.post("/v1/auth/challenge", &json!({})).await.expect(200);
        answer["challenge"].as_str().unwrap().to_owned()
    }

    /// A new account that has signed in: its key, its client, its id.
    async fn account(&self) -> (SigningKey, Api, String) {
        let key = new_key();
        let signed_in = self.sign_in(&key).await.expect(200);
        let api = self.api.with_token(signed_in["token"].as_str().unwrap());
        (key, api, signed_in["userId"].as_str().unwrap().to_owned())
    }

    async fn sign_in(&self, key: &SigningKey) -> Answer {
        let body = signed(key, ORIGIN, &self.challenge().await);
        self.api.post("/v1/auth", &body).await
    }
}

fn new_key() -> SigningKey {
    SigningKey::generate(&mut rand::rngs::OsRng)
}

fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn sign(key: &SigningKey, text: &str) -> String {
    base64url(&key.sign(text.as_bytes()).to_bytes())
}

/// The body of a valid sign-in.
fn signed(key: &SigningKey, origin: &str, challenge: &str) -> Value {
    let public = base64url(key.verifying_key().as_bytes());
    let signature = sign(key, &format!("ensemble-auth-v1\n{origin}\n{public}\n{challenge}"));
    json!({ "publicKey": public, "challenge": challenge, "signature": signature, "origin": origin })
}

/// The claims of a token, unverified.
fn claims(token: &str) -> Value {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice(&payload).unwrap()
}
