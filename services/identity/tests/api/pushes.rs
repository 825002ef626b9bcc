//! Notifications: subscriptions of devices, and what push services get.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{GivePushesRequest, PushEvent, Pushes as _, PushesClient};
use ensemble_testkit::peers::channel_to;
use ensemble_testkit::push_service::{PushAnswer, PushService, Pushed, Subscriber};
use ensemble_testkit::{Backend, SOON, eventually, in_time, on_both_databases, sql};
use ensemble_types::devices::Role;
use ensemble_types::ids::SessionId;
use serde_json::{Value, json};

use crate::Fixture;
use crate::listing::{Keys, Owner};

/// How long a test waits for a notification.
pub(crate) const ONE: &str = "AAAAAAAAAAA";
pub(crate) const TWO: &str = "BBBBBBBBBBB";

pub(crate) struct Place {
    pub(crate) fixture: Fixture,
    pub(crate) push: PushService,
    pub(crate) owner: Owner,
    pub(crate) session: String,
}

impl Place {
    pub(crate) async fn new(on: Backend) -> Self {
        let push = PushService::start().await;
        let fixture = Fixture::with(on, &[("PUSH_TRUSTED_ORIGINS", push.origin())]).await;
        let owner = Owner::new(&fixture).await;
        Self { fixture, push, owner, session: SessionId::generate().to_string() }
    }

    /// A service that may call these, too, and one that answers.
    pub(crate) async fn trusting(on: Backend, others: &[PushService]) -> (Self, PushService) {
        let push = PushService::start().await;
        let origins: Vec<&str> = others.iter().chain([&push]).map(PushService::origin).collect();
        let fixture = Fixture::with(on, &[("PUSH_TRUSTED_ORIGINS", &origins.join(","))]).await;
        let owner = Owner::new(&fixture).await;
        let session = SessionId::generate().to_string();
        (Self { fixture, push: push.clone(), owner, session }, push)
    }

    /// The calling device's id.
    pub(crate) async fn device(&self) -> String {
        let devices = self.owner.api.get("/v1/devices").await.expect(200);
        let own = devices["devices"].as_array().unwrap().iter().find(|device| device["current"] == true).unwrap();
        own["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn subscribe(&self, name: &str) -> Subscriber {
        let subscriber = self.push.subscriber(name);
        let path = format!("/v1/devices/{}", self.device().await);
        let body = json!({ "pushSubscription": subscriber.subscription() });
        assert_eq!(self.owner.api.patch(&path, &body).await.expect(200)["push"], true);
        subscriber
    }

    pub(crate) fn event(&self, kind: &str, attention: &str) -> PushEvent {
        PushEvent {
            user_id: self.owner.user.clone(),
            kind: kind.to_owned(),
            session_id: self.session.clone(),
            run_id: String::new(),
            attention: attention.to_owned(),
        }
    }

    pub(crate) async fn give(&self, events: Vec<PushEvent>) {
        let identity = PushesClient::new(channel_to(&self.fixture.service.internal_url()));
        identity.give(GivePushesRequest { events }).await.unwrap();
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    n: i64,
}

/// Does this in the database of the service.
macro_rules! in_database {
    ($place:expr, |$c:ident| $call:expr) => {{
        let url = &$place.fixture.database.url;
        match url.strip_prefix("sqlite:") {
            Some(file) => {
                let $c = &mut sql::sqlite(file);
                $call.unwrap()
            }
            None => {
                let $c = &mut PgConnection::establish(url).unwrap();
                $call.unwrap()
            }
        }
    }};
}

/// How many rows there are.
pub(crate) fn count(place: &Place, rows: &str) -> i64 {
    let text = format!("SELECT count(*) AS n FROM {rows}");
    in_database!(place, |c| diesel::sql_query(&text).get_result::<Number>(c)).n
}

pub(crate) async fn pushed(subscriber: &Subscriber, count: usize) -> Vec<Pushed> {
    eventually(SOON, async || subscriber.calls() >= count).await;
    let pushed = subscriber.pushed();
    assert_eq!(pushed.len(), count, "{pushed:?}");
    pushed
}

on_both_databases! {
    async fn an_event_reaches_the_device_sealed_and_once(on: Backend) {
        let place = Place::new(on).await;
        let browser = place.subscribe("browser").await;
        // A second delivery shows that the first was sent once.
        place.give(vec![place.event("permission", ONE), place.event("permission", ONE)]).await;
        place.give(vec![place.event("permission", ONE)]).await;
        pushed(&browser, 1).await;
        place.give(vec![place.event("finished", TWO)]).await;
        let pushed = pushed(&browser, 2).await;
        let expected = json!({ "kind": "permission", "sessionId": place.session, "attention": ONE });
        assert_eq!(pushed[0].payload, expected);
        assert_eq!((pushed[0].headers["topic"].as_str(), pushed[0].headers["urgency"].as_str()), (ONE, "high"));
        let ttl: u64 = pushed[0].headers["ttl"].parse().unwrap();
        assert!((86_000..=86_400).contains(&ttl), "{ttl}");
        assert_eq!((&pushed[1].payload["kind"], pushed[1].headers["urgency"].as_str()), (&json!("finished"), "normal"));
        let key = place.owner.api.get("/v1/devices/push").await.expect(200);
        let header = &pushed[0].headers["authorization"];
        assert!(header.ends_with(&format!("k={}", key["publicKey"].as_str().unwrap())), "{header}");
    }

    async fn a_device_chooses_kinds_and_the_others_are_reached_too(on: Backend) {
        let mut place = Place::new(on).await;
        let browser = place.subscribe("browser").await;
        let device = place.device().await;
        let path = format!("/v1/devices/{device}");
        let set = place.owner.api.patch(&path, &json!({ "notify": ["failed", "question"] })).await.expect(200);
        assert_eq!((&set["notify"], &set["push"]), (&json!(["question", "failed"]), &json!(true)));
        // A phone of the same account gets everything, until it is removed.
        let phone = Keys::new();
        place.owner.link(&place.fixture, &phone, Role::Linked).await;
        let on_phone = place.fixture.client(&phone).await;
        let devices = on_phone.get("/v1/devices").await.expect(200);
        let id = devices["devices"].as_array().unwrap().iter().find(|d| d["current"] == true).unwrap()["id"].clone();
        let phone_browser = place.push.subscriber("phone");
        let subscribed = json!({ "pushSubscription": phone_browser.subscription() });
        let of_phone = format!("/v1/devices/{}", id.as_str().unwrap());
        on_phone.patch(&of_phone, &subscribed).await.expect(200);
        // Neither sets the other's.
        on_phone.patch(&path, &subscribed).await.problem(403, "FORBIDDEN");
        place.owner.api.patch(&of_phone, &json!({ "notify": [] })).await.problem(403, "FORBIDDEN");
        place.give(vec![place.event("permission", ONE)]).await;
        pushed(&phone_browser, 1).await;
        place.give(vec![place.event("question", TWO)]).await;
        assert_eq!(pushed(&browser, 1).await[0].payload["kind"], "question");
        pushed(&phone_browser, 2).await;
        let without = place.owner.without(&phone);
        place.owner.put(without).await;
        place.give(vec![place.event("failed", "CCCCCCCCCCC")]).await;
        pushed(&browser, 2).await;
        assert_eq!(phone_browser.calls(), 2, "a removed device gets nothing");
    }

    async fn what_was_answered_is_not_sent(on: Backend) {
        let place = Place::new(on).await;
        let browser = place.subscribe("browser").await;
        browser.answer(PushAnswer::Later(503, 1));
        place.give(vec![place.event("permission", ONE)]).await;
        eventually(SOON, async || browser.calls() >= 1).await;
        place.give(vec![place.event("", ONE)]).await;
        // One that is given only after it was taken back is not sent at all.
        place.give(vec![place.event("", "LATEAAAAAAA")]).await;
        place.give(vec![place.event("question", "LATEAAAAAAA")]).await;
        // The next event passes the one that was taken back; both would have been due.
        browser.answer(PushAnswer::Status(201));
        let calls = browser.calls();
        place.give(vec![place.event("failed", TWO)]).await;
        eventually(SOON, async || browser.calls() > calls).await;
        let kinds: Vec<Value> = browser.pushed()[calls..].iter().map(|one| one.payload["kind"].clone()).collect();
        assert_eq!(kinds, ["failed"]);
    }

    async fn a_redirect_is_not_followed(on: Backend) {
        let place = Place::new(on).await;
        let browser = place.subscribe("browser").await;
        browser.answer(PushAnswer::Redirect);
        place.give(vec![place.event("permission", ONE)]).await;
        eventually(SOON, async || count(&place, "push_deliveries") == 0).await;
        assert_eq!(browser.calls(), 1, "it is refused for good");
    }

    async fn what_was_not_sent_in_a_day_is_not_sent_at_all(on: Backend) {
        // It is tried again after two seconds.
        in_time(Duration::from_secs(10), async || {
            let place = Place::new(on).await;
            let browser = place.subscribe("browser").await;
            browser.answer(PushAnswer::Later(503, 2));
            place.give(vec![place.event("permission", ONE)]).await;
            eventually(SOON, async || browser.calls() == 1).await;
            browser.answer(PushAnswer::Status(201));
            // As after a day without this service.
            eventually(SOON, async || count(&place, "push_deliveries WHERE tries = 1") == 1).await;
            let age = "UPDATE push_deliveries SET expires_at = due_at";
            assert_eq!(in_database!(place, |c| diesel::sql_query(age).execute(c)), 1);
            eventually(SOON, async || count(&place, "push_deliveries") == 0).await;
            place.give(vec![place.event("failed", TWO)]).await;
            eventually(SOON, async || browser.calls() >= 2).await;
            let kinds: Vec<Value> = browser.pushed()[1..].iter().map(|one| one.payload["kind"].clone()).collect();
            assert_eq!(kinds, ["failed"]);
        })
        .await;
    }

    async fn a_subscription_that_has_ended_is_forgotten(on: Backend) {
        for status in [404, 410] {
            let place = Place::new(on).await;
            let browser = place.subscribe("browser").await;
            browser.answer(PushAnswer::Status(status));
            place.give(vec![place.event("permission", ONE)]).await;
            eventually(SOON, async || {
                place.owner.api.get("/v1/devices").await.expect(200)["devices"][0]["push"] == false
            })
            .await;
            assert_eq!(browser.calls(), 1);
        }
    }

    async fn subscriptions_that_cannot_be_used_are_refused(on: Backend) {
        let place = Place::new(on).await;
        let path = format!("/v1/devices/{}", place.device().await);
        let good = place.push.subscriber("x").subscription();
        let with = |pointer: &str, value: &str| {
            let mut changed = good.clone();
            *changed.pointer_mut(pointer).unwrap() = json!(value);
            json!({ "pushSubscription": changed })
        };
        let bad = [
            with("/endpoint", "http://push.example.com/x"),
            with("/endpoint", "https://10.0.0.1/x"),
            with("/endpoint", "https://localhost/x"),
            with("/endpoint", "https://[::1]/x"),
            with("/endpoint", "https://user@push.example.com/x"),
            with("/keys/auth", "AAAAAAAAAAAAAAAAAAAAAAA"),
            with("/keys/p256dh", &"A".repeat(87)),
        ];
        for body in bad {
            let refused = place.owner.api.patch(&path, &body).await.bad_fields();
            assert!(refused[0].starts_with("/pushSubscription/"), "{body}: {refused:?}");
        }
        for bad in [json!(["lunch"]), json!(vec!["failed"; 6]), json!("failed")] {
            place.owner.api.patch(&path, &json!({ "notify": bad })).await.problem(400, "INVALID_ARGUMENT");
        }
        place.owner.api.patch(&path, &json!({})).await.problem(400, "INVALID_ARGUMENT");
        // Nothing of it stayed, and a good one ends with null.
        assert_eq!(place.owner.api.get("/v1/devices").await.expect(200)["devices"][0]["push"], false);
        let browser = place.subscribe("browser").await;
        let answer = place.owner.api.patch(&path, &json!({ "pushSubscription": null })).await;
        assert!(!answer.text.contains(place.push.origin()), "no address is shown: {}", answer.text);
        assert_eq!(answer.expect(200)["push"], false);
        place.give(vec![place.event("permission", ONE)]).await;
        place.subscribe("again").await;
        assert_eq!(browser.calls(), 0);
    }

    async fn malformed_events_are_refused(on: Backend) {
        let place = Place::new(on).await;
        let identity = PushesClient::new(channel_to(&place.fixture.service.internal_url()));
        let good = place.event("permission", ONE);
        let bad = [
            PushEvent { kind: "lunch".to_owned(), ..good.clone() },
            PushEvent { attention: "short".to_owned(), ..good.clone() },
            PushEvent { attention: "AAAA AAAAAA".to_owned(), ..good.clone() },
            PushEvent { session_id: String::new(), ..good.clone() },
            PushEvent { run_id: place.session.clone(), ..good.clone() },
            PushEvent { user_id: "me".to_owned(), ..good.clone() },
        ];
        for event in bad {
            let refused = identity.give(GivePushesRequest { events: vec![event.clone()] }).await;
            assert!(matches!(refused, Err(RpcError::Invalid(_))), "{event:?}: {refused:?}");
        }
        let many = GivePushesRequest { events: vec![good; 101] };
        assert!(matches!(identity.give(many).await, Err(RpcError::Invalid(_))));
    }
}
