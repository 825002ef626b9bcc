//! `GET /v1/events`: hints of what has changed, for an account and for a machine.

use std::time::{Duration, Instant};

use ensemble_rpc::RpcError;
use ensemble_rpc::sessions::{AccountHint as WireHint, AccountHints as _, AccountHintsClient, GiveHintsRequest};
use ensemble_testkit::peers::channel_to;
use ensemble_testkit::{Api, Backend, Events, SOON, eventually, on_both_databases, run};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, NO_SWEEP, messages};

async fn follow(api: &Api) -> Events {
    let events = Events::open(api.request("GET", "/v1/events")).await;
    assert_eq!(events.status, 200);
    events
}

/// The next hint within this time: kind, id, revision. A service that has just connected for notifications may have missed some, and
/// gives a hint of everything, which is left out.
async fn hint_within(events: &mut Events, within: Duration) -> Option<(String, String, i64)> {
    loop {
        let event = events.next_within(within).await.ok()?.expect("the stream has ended");
        assert_eq!((event.name.as_str(), event.id), ("hint", None), "{}", event.data);
        if event.data == r#"{"kind":"all"}"# {
            continue;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap();
        let text = |name: &str| data[name].as_str().unwrap().to_owned();
        return Some((text("kind"), text("id"), data["revision"].as_i64().unwrap()));
    }
}

async fn hint(events: &mut Events) -> (String, String, i64) {
    hint_within(events, SOON).await.expect("a hint")
}

/// The next hint about this session.
async fn session_hint(events: &mut Events, session: &str) -> i64 {
    loop {
        let (kind, id, revision) = hint(events).await;
        // The hint of the share that has let the reader in may still be on its way.
        if kind != "share" {
            assert_eq!((kind.as_str(), id.as_str()), ("session", session));
            return revision;
        }
    }
}

async fn is_quiet(events: &mut Events) -> bool {
    hint_within(events, Duration::from_millis(300)).await.is_none()
}

async fn change(client: &Client, session: &str) {
    client.api.patch(&format!("/v1/sessions/{session}"), &json!({ "metadata": "new" })).await.expect(200);
}

on_both_databases! {
    async fn members_get_a_hint_of_each_change(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, stranger) = (fixture.client(), fixture.client());
        let (one, two) = (owner.session().await, owner.session().await);
        let guest = fixture.guest(&owner, &one, "view").await;
        let mut of_owner = follow(&owner.api).await;
        let mut of_guest = follow(&guest.api).await;
        let mut of_stranger = follow(&stranger.api).await;
        owner.append(&one, "a", "x").await;
        let first = session_hint(&mut of_owner, &one).await;
        assert_eq!(session_hint(&mut of_guest, &one).await, first);
        change(&owner, &two).await;
        session_hint(&mut of_owner, &two).await;
        owner.api.patch(&format!("/v1/sessions/{one}"), &json!({ "heartbeat": {} })).await.expect(200);
        assert!(is_quiet(&mut of_guest).await, "no hint of a session that is not shared, nor of a heartbeat");
        // Several changes within a second are one hint, which has the newest revision.
        let (begun, mut last) = (Instant::now(), 0);
        for n in 0..4 {
            owner.append(&one, &format!("more {n}"), "x").await;
            change(&owner, &one).await;
            last += 2;
        }
        for events in [&mut of_guest, &mut of_owner] {
            let mut hints = 1;
            while session_hint(events, &one).await < first + last {
                hints += 1;
            }
            assert!(is_quiet(events).await);
            assert!(hints <= 1 + begun.elapsed().as_secs(), "{hints} hints in {:?}", begun.elapsed());
        }
        owner.api.delete(&format!("/v1/sessions/{one}")).await.expect(200);
        assert!(session_hint(&mut of_guest, &one).await > first + last, "a deletion is a change");
        assert!(is_quiet(&mut of_stranger).await);
    }

    async fn a_new_session_is_a_hint_and_a_new_stream_is_none(on: Backend) {
        let fixture = Fixture::start_with(on, &[("SWEEP_MS", "50")]).await;
        let owner = fixture.client();
        let machine = fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, &owner.machine));
        let mut events = follow(&owner.api).await;
        let mut of_machine = follow(&machine).await;
        let session = owner.session().await;
        session_hint(&mut events, &session).await;
        let stream = Events::open(owner.api.request("GET", &format!("{}/stream", messages(&session)))).await;
        assert_eq!(stream.status, 200);
        // The sweep wakes streams that are new to it.
        assert_eq!(hint_within(&mut events, Duration::from_millis(1_500)).await, None);
        let hosted = machine.post("/v1/sessions", &owner.draft()).await.expect(201);
        let hosted = hosted["id"].as_str().unwrap();
        session_hint(&mut events, hosted).await;
        session_hint(&mut of_machine, hosted).await;
    }

    async fn a_share_is_a_hint_for_its_user(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, guest) = (fixture.client(), fixture.client());
        let session = owner.session().await;
        let mut events = follow(&guest.api).await;
        owner.share(&session, &guest, "view").await;
        let mut hints = vec![hint(&mut events).await, hint(&mut events).await];
        hints.sort();
        assert_eq!((hints[0].0.as_str(), hints[1].0.as_str()), ("session", "share"));
        assert!(hints.iter().all(|(_, id, _)| *id == session), "{hints:?}");
        owner.api.delete(&format!("/v1/sessions/{session}/shares/{}", guest.id)).await.expect(200);
        let (kind, id, revision) = hint(&mut events).await;
        assert_eq!((kind.as_str(), &id), ("share", &session));
        assert!(revision > hints[1].2);
        change(&owner, &session).await;
        assert_eq!(hint_within(&mut events, Duration::from_millis(1_500)).await, None, "it is not the guest's any more");
    }

    async fn a_machine_gets_hints_of_the_sessions_that_it_hosts(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let machine = fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, &owner.machine));
        let elsewhere = fixture.peers.new_machine(owner.id);
        let other = fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, &elsewhere));
        let hosted = machine.post("/v1/sessions", &owner.draft()).await.expect(201)["id"].as_str().unwrap().to_owned();
        let by_people = owner.session().await;
        let (mut events, mut of_other) = (follow(&machine).await, follow(&other).await);
        change(&owner, &by_people).await;
        owner.share(&by_people, &fixture.client(), "view").await;
        assert!(is_quiet(&mut events).await);
        let message = json!({ "content": "a command", "localId": "1", "keyEpoch": 1 });
        owner.api.post(&messages(&hosted), &message).await.expect(201);
        session_hint(&mut events, &hosted).await;
        owner.api.delete(&format!("/v1/sessions/{hosted}")).await.expect(200);
        session_hint(&mut events, &hosted).await;
        assert!(is_quiet(&mut of_other).await);
    }

    async fn other_services_give_hints(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, stranger) = (fixture.client(), fixture.client());
        let machine = fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, &owner.machine));
        let (mut events, mut of_stranger) = (follow(&owner.api).await, follow(&stranger.api).await);
        let mut of_machine = follow(&machine).await;
        let services = AccountHintsClient::new(channel_to(&fixture.service.internal_url()));
        let wire = |kind: &str, id: &str, revision| WireHint {
            user_id: owner.id.to_string(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            revision,
        };
        let give = async |hints: Vec<WireHint>| services.give(GiveHintsRequest { hints }).await;
        let hints = vec![wire("run", "a", 7), wire("machine", "laptop", 3), wire("device", "b", 1), wire("invite", "c", 2)];
        give(hints).await.unwrap();
        let mut given = Vec::new();
        for _ in 0..4 {
            given.push(hint(&mut events).await);
        }
        given.sort();
        let expected = [("device", "b", 1), ("invite", "c", 2), ("machine", "laptop", 3), ("run", "a", 7)];
        assert_eq!(given, expected.map(|(kind, id, revision)| (kind.to_owned(), id.to_owned(), revision)));
        // A machine obeys the devices of its owner.
        assert_eq!(hint(&mut of_machine).await, ("device".to_owned(), "b".to_owned(), 1));
        // Another replica of that service says the same.
        give(vec![wire("run", "a", 7)]).await.unwrap();
        assert_eq!(hint_within(&mut events, Duration::from_millis(1_500)).await, None);
        assert!(is_quiet(&mut of_stranger).await && is_quiet(&mut of_machine).await);
        let long = "x".repeat(65);
        for bad in [wire("session", "a", 1), wire("all", "a", 1), wire("run", "", 1), wire("run", &long, 1), wire("run", "a\nb", 1)] {
            assert!(matches!(give(vec![bad]).await, Err(RpcError::Invalid(_))));
        }
        assert!(matches!(give(vec![wire("run", "a", 8); 1_001]).await, Err(RpcError::Invalid(_))));
        assert!(is_quiet(&mut events).await);
    }

    async fn a_revoked_token_gets_no_more_hints(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let (token, id) = fixture.peers.issuer().revocable(owner.id);
        let mut events = follow(&owner.api.with_token(&token)).await;
        fixture.peers.issuer().revoke(id);
        let last = events.expect().await;
        assert_eq!((last.name.as_str(), last.data.as_str()), ("end", r#"{"reason":"token_revoked"}"#));
        assert_eq!(events.next_within(SOON).await, Ok(None));
    }
}

#[test]
fn hints_reach_readers_at_another_replica() {
    run(async {
        let fixture = Fixture::start_with(Backend::Postgres, &NO_SWEEP).await;
        let there = fixture.replica_with(&NO_SWEEP).await;
        let owner = fixture.client();
        let session = owner.session().await;
        let mut events = follow(&owner.api.at(&there.public_url())).await;
        // The replica may have to connect before it is notified. Then it gives a hint that anything may have changed.
        eventually(SOON, async || {
            change(&owner, &session).await;
            matches!(events.next_within(Duration::from_millis(300)).await, Ok(Some(event)) if event.data.contains("session"))
        })
        .await;
        // What was changed meanwhile.
        while events.next_within(Duration::from_millis(1_500)).await.is_ok() {}
        change(&owner, &session).await;
        session_hint(&mut events, &session).await;
    });
}
