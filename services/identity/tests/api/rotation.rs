//! Signing keys rotate without a request failing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_chassis::KeySource;
use ensemble_identity::Identity;
use ensemble_rpc::identity::KeysClient;
use ensemble_rpc::{KeyRefresh, RemoteKeys};
use ensemble_testkit::peers::channel_to;
use ensemble_testkit::{Api, SOON, eventually, in_time, on_both_databases, start_service};
use serde_json::Value;

use crate::{Fixture, new_key};

fn kid(token: &str) -> String {
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    serde_json::from_slice::<Value>(&header).unwrap()["kid"].as_str().unwrap().to_owned()
}

async fn published(fixture: &Fixture) -> Vec<String> {
    let jwks = fixture.api.get("/.well-known/jwks.json").await.expect(200);
    let keys = jwks["keys"].as_array().unwrap().clone();
    for key in &keys {
        for (member, value) in [("kty", "OKP"), ("crv", "Ed25519"), ("alg", "EdDSA"), ("use", "sig")] {
            assert_eq!(key[member], value);
        }
        assert_eq!(URL_SAFE_NO_PAD.decode(key["x"].as_str().unwrap()).unwrap().len(), 32);
        assert!(key.get("d").is_none(), "the private key is not published");
    }
    keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

async fn keys_at(api: &Api, url: &str) -> Value {
    api.at(url).get("/.well-known/jwks.json").await.expect(200)
}

on_both_databases! {
    async fn keys_rotate_without_one_401(on: Backend) {
        in_time(Duration::from_secs(10), async || {
            let rotation = [
                ("KEY_ROTATE_MS", "400"), ("KEY_PUBLISH_BEFORE_MS", "250"), ("KEY_RING_REFRESH_MS", "20"),
            ];
            let fixture = Fixture::with(on, &rotation).await;
            // As every other service does, with a shorter interval.
            let refresh = KeyRefresh { every: Duration::from_millis(50), trusted_for: Duration::from_secs(60) };
            let elsewhere =
                RemoteKeys::follow(Arc::new(KeysClient::new(channel_to(&fixture.service.internal_url()))), refresh).await;
            let key = new_key();
            let (mut signers, mut tokens): (HashSet<String>, Vec<String>) = (HashSet::new(), Vec::new());
            eventually(SOON, async || {
                let token = fixture.sign_in(&key).await.expect(200)["token"].as_str().unwrap().to_owned();
                assert!(elsewhere.current().unwrap().key(&kid(&token)).is_some(), "published before it signs");
                signers.insert(kid(&token));
                tokens.push(token);
                for token in tokens.iter().rev().take(3).chain(tokens.first()) {
                    fixture.api.with_token(token).get("/v1/account").await.expect(200);
                }
                signers.len() >= 4
            })
            .await;
            for token in &tokens {
                fixture.api.with_token(token).get("/v1/account").await.expect(200);
                assert!(elsewhere.current().unwrap().key(&kid(token)).is_some());
            }
        })
        .await;
    }

    async fn a_key_is_deleted_when_its_last_token_has_expired(on: Backend) {
        let rotation = [
            ("KEY_ROTATE_MS", "300"), ("KEY_PUBLISH_BEFORE_MS", "100"), ("KEY_RING_REFRESH_MS", "20"),
            ("USER_TOKEN_MS", "1000"), ("MACHINE_TOKEN_MAX_SECONDS", "1"), ("KEY_KEEP_MARGIN_MS", "0"),
        ];
        let fixture = Fixture::with(on, &rotation).await;
        let first = published(&fixture).await;
        assert!((1..=2).contains(&first.len()), "{first:?}");
        eventually(SOON, async || {
            let now = published(&fixture).await;
            assert!((1..=8).contains(&now.len()), "{now:?}");
            !now.contains(&first[0])
        })
        .await;
    }

    async fn a_restart_keeps_the_keys_and_their_tokens(on: Backend) {
        let fixture = Fixture::new(on).await;
        let token = fixture.sign_in(&new_key()).await.expect(200)["token"].as_str().unwrap().to_owned();
        let before = published(&fixture).await;
        let (vars, api) = (fixture.vars.clone(), fixture.api.clone());
        assert!(fixture.service.stop().await);
        let again = start_service::<Identity>(vars).await;
        let api = api.at(&again.public_url());
        assert_eq!(api.get("/.well-known/jwks.json").await.expect(200)["keys"][0]["kid"], before[0].as_str());
        api.with_token(&token).get("/v1/account").await.expect(200);
    }

    async fn the_service_does_not_start_with_another_key_encryption_key(on: Backend) {
        let fixture = Fixture::new(on).await;
        let other = fixture.database.folder.path().join("other");
        std::fs::write(&other, [8; 32]).unwrap();
        std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        let own = fixture.database.folder.path().join("key-encryption-key").display().to_string();
        let (mut vars, api) = (fixture.vars.clone(), fixture.api.clone());
        assert!(fixture.service.stop().await);
        vars.push(("KEY_ENCRYPTION_KEY_FILE".to_owned(), other.display().to_string()));
        let listeners = ensemble_chassis::Listeners::loopback().unwrap();
        let clock = ensemble_chassis::Clock::system();
        let refused = ensemble_chassis::start::<Identity>(
            ensemble_chassis::Vars::from_pairs(vars.clone()), listeners, clock,
        ).await;
        assert!(refused.unwrap_err().to_string().contains("key-encryption key"));
        vars.push(("KEY_ENCRYPTION_KEY_PREVIOUS_FILE".to_owned(), own));
        let replaced = start_service::<Identity>(vars.clone()).await;
        let keys = keys_at(&api, &replaced.public_url()).await;
        assert!(replaced.stop().await);
        // That start has sealed everything with the new key, and the old one is no longer needed. A missing file counts as no key.
        let gone = fixture.database.folder.path().join("gone").display().to_string();
        vars.push(("KEY_ENCRYPTION_KEY_PREVIOUS_FILE".to_owned(), gone));
        let without = start_service::<Identity>(vars).await;
        assert_eq!(keys_at(&api, &without.public_url()).await, keys);
        assert!(without.stop().await);
    }
}

/// Replicas that start at the same moment agree on one first key.
#[test]
fn replicas_share_their_keys() {
    ensemble_testkit::run(async {
        let fixture = Fixture::with(ensemble_testkit::Backend::Postgres, &[("KEY_RING_REFRESH_MS", "50")]).await;
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(fixture.replica().await);
        }
        let key = new_key();
        let token = fixture.sign_in(&key).await.expect(200)["token"].as_str().unwrap().to_owned();
        for replica in &replicas {
            let api = fixture.api.at(&replica.public_url()).with_token(&token);
            api.get("/v1/account").await.expect(200);
        }
        assert_eq!(published(&fixture).await.len(), 1);
    });
}
