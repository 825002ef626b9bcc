//! Invitations: one guest claims one, a device of its maker answers, and one account is made with it.

use std::time::Duration;

use ensemble_protocol::lists::{ClaimText, encode};
use ensemble_protocol::seal::InviteCode;
use ensemble_testkit::{Answer, Api, Backend, Peers, SOON, eventually, in_time, on_both_databases, sql};
use ensemble_types::devices::Role;
use ensemble_types::invites::ClaimInvite;
use ensemble_types::text::Blob;
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::listing::{Keys, Owner, signature};
use crate::{Fixture, ORIGIN, new_key, signed};

const SECRET: [u8; 32] = [5; 32];

fn after(seconds: u64) -> Timestamp {
    ensemble_chassis::Clock::system().now().plus(Duration::from_secs(seconds))
}

fn until(expires_at: Timestamp) -> Value {
    json!({ "admission": InviteCode::admission_digest(&SECRET).unwrap(), "expiresAt": expires_at })
}

/// An invitation for an hour.
pub(crate) fn body() -> Value {
    until(after(3_600))
}

pub(crate) async fn open(api: &Api) -> String {
    let made = api.post("/v1/invites", &body()).await.expect(201);
    made["id"].as_str().unwrap().to_owned()
}

/// The claim of an account's only device.
pub(crate) fn claim(guest: &Owner, invite: &str, name: &str) -> ClaimInvite {
    claim_at(ORIGIN, guest, invite, name)
}

fn claim_at(origin: &str, guest: &Owner, invite: &str, name: &str) -> ClaimInvite {
    let digest = encode(&Sha256::digest(guest.signed.body.as_bytes()));
    let (user, account) = (guest.user.parse().unwrap(), guest.keys.public());
    let text = ClaimText::new(origin, invite, (user, &account), (guest.list.version, &digest), name);
    ClaimInvite {
        name: Blob::new(name).unwrap(),
        version: guest.list.version,
        digest: Blob::new(digest).unwrap(),
        mac: Blob::new(text.mac(&SECRET).unwrap()).unwrap(),
        signature: Blob::new(signature(&guest.keys.key, text.as_bytes())).unwrap(),
    }
}

async fn claims(guest: &Owner, invite: &str) -> Answer {
    guest.api.post(&format!("{}/claim", path(invite)), &json!(claim(guest, invite, "Bob"))).await
}

fn path(invite: &str) -> String {
    format!("/v1/invites/{invite}")
}

on_both_databases! {
    async fn a_guest_claims_an_invitation_and_its_maker_answers(on: Backend) {
        let peers = Peers::start().await;
        let fixture = Fixture::with(on, &[("SESSION_STORE_RPC_URL", peers.url())]).await;
        let [alice, bob, carol] = [Owner::new(&fixture).await, Owner::new(&fixture).await, Owner::new(&fixture).await];
        let invite = open(&alice.api).await;
        let anybody = &fixture.api;
        assert_eq!(anybody.get(&path(&invite)).await.expect(200), json!({ "state": "open" }));
        let waits = |api: &Api, invite: &str| {
            let (api, path) = (api.clone(), format!("{}?waitMs=30000", path(invite)));
            tokio::spawn(async move { api.get(&path).await.expect(200) })
        };
        let maker_waits = waits(&alice.api, &invite);
        assert_eq!(claims(&bob, &invite).await.expect(200), json!({ "state": "claimed" }));
        let seen = maker_waits.await.unwrap();
        assert_eq!((&seen["state"], &seen["claim"]["name"]), (&json!("claimed"), &json!("Bob")));
        let (user, account) = (&seen["claim"]["userId"], &seen["claim"]["account"]);
        assert_eq!((user, account), (&json!(bob.user), &json!(bob.keys.public())));
        assert_eq!(seen["claim"]["key"], json!(bob.keys.public()));
        for other in [&bob.api, &carol.api, anybody, &fixture.api.with_token("x")] {
            assert_eq!(other.get(&path(&invite)).await.expect(200), json!({ "state": "claimed" }));
        }
        assert_eq!(claims(&bob, &invite).await.expect(200)["state"], "claimed", "an answer was lost on its way");
        claims(&carol, &invite).await.problem(409, "CONFLICT");
        let listed = alice.api.get("/v1/invites").await.expect(200);
        assert_eq!((&listed["invites"][0]["id"], &listed["invites"][0]["claim"]), (&json!(invite), &seen["claim"]));
        assert_eq!(carol.api.get("/v1/invites").await.expect(200), json!({ "invites": [] }));

        let guest_waits = waits(&bob.api, &invite);
        let (answers, sealed) = (format!("{}/answer", path(&invite)), json!({ "answer": "sealed" }));
        bob.api.post(&answers, &sealed).await.problem(404, "NOT_FOUND");
        alice.api.post(&answers, &sealed).await.expect(200);
        assert_eq!(guest_waits.await.unwrap(), json!({ "state": "answered", "answer": "sealed" }));
        alice.api.post(&answers, &sealed).await.expect(200);
        alice.api.post(&answers, &json!({ "answer": "other" })).await.problem(409, "CONFLICT");
        alice.api.delete(&path(&invite)).await.problem(409, "CONFLICT");
        let maker = alice.user.parse().unwrap();
        let hints = || peers.hints(maker).into_iter().filter(|(kind, id, _)| kind == "invite" && *id == invite).count();
        eventually(SOON, async || hints() >= 1).await;
    }

    async fn a_claim_is_signed_here_by_the_guest_for_the_newest_list(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, mut bob) = (Owner::new(&fixture).await, Owner::new(&fixture).await);
        let invite = open(&alice.api).await;
        let path = format!("{}/claim", path(&invite));
        let old = claim(&bob, &invite, "Bob");
        bob.put(bob.next()).await;
        let good = || claim(&bob, &invite, "Bob");
        let other_name = ClaimInvite { name: Blob::new("Eve").unwrap(), ..good() };
        let elsewhere = claim_at("https://evil.example.com", &bob, &invite, "Bob");
        for bad in [old, other_name, elsewhere, claim(&bob, "other", "Bob"), claim(&alice, &invite, "Bob")] {
            bob.api.post(&path, &json!(bad)).await.problem(400, "INVALID_ARGUMENT");
        }
        alice.api.post(&path, &json!(claim(&alice, &invite, "Alice"))).await.problem(400, "INVALID_ARGUMENT");
        let without_list = fixture.account().await.1;
        let refused = without_list.post(&path, &json!(good())).await;
        assert!(refused.problem(409, "CONFLICT")["detail"].as_str().unwrap().contains("device list"));
        bob.api.post(&path, &json!(good())).await.expect(200);
    }

    async fn what_its_maker_has_ended_is_claimed_and_answered_no_more(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, bob) = (Owner::new(&fixture).await, Owner::new(&fixture).await);
        let invite = open(&alice.api).await;
        bob.api.delete(&path(&invite)).await.problem(404, "NOT_FOUND");
        alice.api.post(&format!("{}/answer", path(&invite)), &json!({ "answer": "x" })).await.problem(409, "CONFLICT");
        for _ in 0..2 {
            assert_eq!(alice.api.delete(&path(&invite)).await.expect(200)["state"], "ended");
        }
        claims(&bob, &invite).await.problem(409, "CONFLICT");
        for unknown in ["AAAAAAAAAAAAAAAAAAAAAA", "x"] {
            fixture.api.get(&path(unknown)).await.problem(404, "NOT_FOUND");
            claims(&bob, unknown).await.problem(404, "NOT_FOUND");
        }
    }

    async fn invitations_are_bounded_in_time_and_number(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        for bad in [after(7 * 24 * 3_600 + 600), Timestamp::from_unix_seconds(0)] {
            alice.api.post("/v1/invites", &until(bad)).await.problem(400, "INVALID_ARGUMENT");
        }
        let mut made = Vec::new();
        for _ in 0..20 {
            made.push(open(&alice.api).await);
        }
        alice.api.post("/v1/invites", &body()).await.problem(409, "CONFLICT");
        for at in 0..30 {
            alice.api.delete(&path(&made[at])).await.expect(200);
            made.push(open(&alice.api).await);
        }
        alice.api.delete(&path(&made[49])).await.expect(200);
        alice.api.post("/v1/invites", &body()).await.problem(429, "QUOTA_EXCEEDED");
        let bob = Owner::new(&fixture).await;
        open(&bob.api).await;
    }

    async fn an_invitation_makes_one_account(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        let invite = open(&alice.api).await;
        let fixture = fixture.restarted(&[("REGISTRATION", "invite")]).await;
        let api = &fixture.api;
        let admission = InviteCode::with_secret("", &invite, SECRET.into()).admission().unwrap().to_string();
        let good = json!({ "id": invite, "admission": admission });
        let sign_in = async |invite: &Value| {
            let challenge = api.post("/v1/auth/challenge", &json!({})).await.expect(200);
            let mut body = signed(&new_key(), ORIGIN, challenge["challenge"].as_str().unwrap());
            body["invite"] = invite.clone();
            api.post("/v1/auth", &body).await
        };
        let digest = InviteCode::admission_digest(&SECRET).unwrap();
        let unknown = json!({ "id": "AAAAAAAAAAAAAAAAAAAAAA", "admission": admission });
        for bad in [Value::Null, json!({ "id": invite, "admission": digest }), unknown] {
            sign_in(&bad).await.problem(403, "REGISTRATION_CLOSED");
        }
        let together = futures_util::future::join_all((0..4).map(|_| sign_in(&good))).await;
        let admitted = together.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(admitted, 1);
        sign_in(&good).await.problem(403, "REGISTRATION_CLOSED");
    }

    async fn the_first_account_is_made_by_the_address_in_the_log(on: Backend) {
        let fixture = Fixture::with(on, &[("REGISTRATION", "invite")]).await;
        let file = fixture.database.folder.path().join("first-account");
        let read = || InviteCode::from_address(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let first = read();
        let fixture = fixture.restarted(&[]).await;
        let code = read();
        assert_eq!((code.base.as_str(), code.address()), (ORIGIN, first.address()), "each replica gives the same one");
        // As after seven days.
        sql::execute(&fixture.database.url, "UPDATE invites SET expires_at = created_at").await;
        eventually(SOON, async || read().id != code.id).await;
        let code = read();
        let api = &fixture.api;
        assert_eq!(api.get(&path(&code.id)).await.expect(200), json!({ "state": "open", "first": true }));
        let sign_in = async || {
            let challenge = api.post("/v1/auth/challenge", &json!({})).await.expect(200);
            let mut body = signed(&new_key(), ORIGIN, challenge["challenge"].as_str().unwrap());
            body["invite"] = json!({ "id": code.id, "admission": code.admission().unwrap().to_string() });
            api.post("/v1/auth", &body).await
        };
        sign_in().await.expect(200);
        sign_in().await.problem(403, "REGISTRATION_CLOSED");
        eventually(SOON, async || !file.exists()).await;
        let _again = fixture.restarted(&[]).await;
        assert!(!file.exists(), "there is an account");
    }

    async fn a_removed_device_has_no_invitation_left(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (phone, laptop) = (Keys::new(), Keys::new());
        alice.link(&fixture, &phone, Role::Linked).await;
        alice.link(&fixture, &laptop, Role::Machine).await;
        let invite = open(&alice.api).await;
        alice.put(alice.without(&laptop)).await;
        assert_eq!(alice.api.get(&path(&invite)).await.expect(200)["state"], "open", "a machine does not know it");
        alice.put(alice.without(&phone)).await;
        assert_eq!(alice.api.get(&path(&invite)).await.expect(200)["state"], "ended");
    }
}

#[tokio::test]
async fn a_wait_ends_when_the_invitation_expires() {
    in_time(Duration::from_secs(60), async || {
        let fixture = Fixture::new(Backend::Sqlite).await;
        let alice = Owner::new(&fixture).await;
        let made = alice.api.post("/v1/invites", &until(after(1))).await.expect(201);
        let path = format!("{}?waitMs=30000", path(made["id"].as_str().unwrap()));
        assert_eq!(fixture.api.get(&path).await.expect(200), json!({ "state": "expired" }));
    })
    .await;
}
