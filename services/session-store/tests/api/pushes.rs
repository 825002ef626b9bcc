//! What identity is given of hosted sessions, to notify their owners' devices of.

use ensemble_testkit::{Api, Backend, SOON, eventually, on_both_databases};
use ensemble_types::ids::UserId;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fixture::Fixture;

const ONE: &str = "AAAAAAAAAAA";
const TWO: &str = "BBBBBBBBBBB";

/// A session that its machine hosts.
struct Hosted {
    fixture: Fixture,
    owner: UserId,
    api: Api,
    machine: Api,
    session: String,
}

impl Hosted {
    async fn new(on: Backend, settings: &[(&str, &str)]) -> Self {
        let fixture = Fixture::start_with(on, settings).await;
        let owner = fixture.client();
        let machine = fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, &owner.machine));
        let made = machine.post("/v1/sessions", &owner.draft()).await.expect(201);
        let session = made["id"].as_str().unwrap().to_owned();
        Self { owner: owner.id, api: owner.api, machine, session, fixture }
    }

    async fn patch(&self, body: Value) {
        self.machine.patch(&format!("/v1/sessions/{}", self.session), &body).await.expect(200);
    }

    async fn wants(&self, kind: &str, id: &str) {
        let open = u8::from(matches!(kind, "permission" | "question"));
        self.patch(json!({ "attention": { "kind": kind, "open": open, "id": id } })).await;
    }

    async fn wants_nothing(&self) {
        self.patch(json!({ "attention": { "kind": "none" } })).await;
    }

    async fn thinks(&self, thinking: bool) {
        self.patch(json!({ "heartbeat": { "thinking": thinking, "hostId": Uuid::from_bytes([7; 16]) } })).await;
    }

    /// What identity was given, once there are `count` events.
    async fn given(&self, count: usize) -> Vec<(String, String)> {
        eventually(SOON, async || self.fixture.peers.pushes(self.owner).len() >= count).await;
        let given = self.fixture.peers.pushes(self.owner);
        assert!(given.iter().all(|event| event.session_id == self.session && event.run_id.is_empty()), "{given:?}");
        given.into_iter().map(|event| (event.kind, event.attention)).collect()
    }
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(kind, id)| (kind.to_owned(), id.to_owned())).into()
}

on_both_databases! {
    async fn an_open_request_is_given_and_taken_back_when_it_is_answered(on: Backend) {
        let hosted = Hosted::new(on, &[("PUSH_AFTER_MS", "1")]).await;
        hosted.wants("permission", ONE).await;
        // The same again is the same thing, though more are open.
        hosted.patch(json!({ "attention": { "kind": "permission", "open": 2, "id": ONE } })).await;
        assert_eq!(hosted.given(1).await, pairs([("permission", ONE)]));
        hosted.wants("question", TWO).await;
        let mut given = hosted.given(3).await;
        given.sort();
        assert_eq!(given, pairs([("", ONE), ("permission", ONE), ("question", TWO)]));
        hosted.wants_nothing().await;
        assert_eq!(hosted.given(4).await.last().unwrap(), &(String::new(), TWO.to_owned()));
    }

    async fn a_request_that_was_answered_soon_is_not_given(on: Backend) {
        let hosted = Hosted::new(on, &[("PUSH_AFTER_MS", "3600000")]).await;
        hosted.wants("permission", ONE).await;
        hosted.wants_nothing().await;
        // A failure is given at once, and shows that nothing came before it.
        hosted.wants("failed", TWO).await;
        assert_eq!(hosted.given(1).await, pairs([("failed", TWO)]));
    }

    async fn only_the_end_of_a_long_turn_is_given(on: Backend) {
        let hosted = Hosted::new(on, &[("PUSH_LONG_TURN_MS", "3600000")]).await;
        hosted.thinks(true).await;
        hosted.thinks(false).await;
        hosted.wants("finished", ONE).await;
        hosted.wants_nothing().await;
        hosted.wants("failed", TWO).await;
        assert_eq!(hosted.given(1).await, pairs([("failed", TWO)]));
        let careful = Hosted::new(on, &[("PUSH_LONG_TURN_MS", "1")]).await;
        // Without a beat it is unknown how long it took.
        careful.wants("finished", ONE).await;
        careful.wants_nothing().await;
        careful.thinks(true).await;
        careful.thinks(true).await;
        careful.thinks(false).await;
        careful.wants("finished", TWO).await;
        assert_eq!(careful.given(1).await, pairs([("finished", TWO)]));
    }

    async fn a_machine_that_goes_away_while_it_works_is_given_once(on: Backend) {
        let hosted = Hosted::new(on, &[("SESSION_ONLINE_MS", "300")]).await;
        hosted.thinks(true).await;
        let given = hosted.given(1).await;
        assert_eq!(given[0].0, "away");
        // It comes back, works, and goes away again.
        hosted.thinks(true).await;
        let again = hosted.given(2).await;
        assert_eq!((again.len(), &again[1].0), (2, &"away".to_owned()));
        assert_ne!(again[0].1, again[1].1);
        // One that does not work may go.
        hosted.thinks(true).await;
        hosted.thinks(false).await;
        hosted.wants("failed", TWO).await;
        eventually(SOON, async || hosted.given(1).await.iter().any(|(kind, _)| kind == "failed")).await;
    }

    async fn what_identity_did_not_get_is_given_again(on: Backend) {
        let hosted = Hosted::new(on, &[("PUSH_AFTER_MS", "1")]).await;
        hosted.fixture.peers.identity_away(true);
        hosted.wants("permission", ONE).await;
        hosted.fixture.peers.identity_away(false);
        assert_eq!(hosted.given(1).await, pairs([("permission", ONE)]));
        hosted.api.delete(&format!("/v1/sessions/{}", hosted.session)).await.expect(200);
        assert_eq!(hosted.given(2).await, pairs([("permission", ONE), ("", ONE)]), "it is taken back");
    }
}
