//! Notifications of many accounts: a silent push service does not delay the others, and nothing is lost when a process ends.

use std::time::{Duration, Instant};

use ensemble_rpc::identity::{GivePushesRequest, PushEvent, Pushes as _, PushesClient};
use ensemble_testkit::peers::channel_to;
use ensemble_testkit::push_service::{PushAnswer, PushService, Subscriber};
use ensemble_testkit::{Backend, Program, SOON, eventually, on_both_databases, run};
use ensemble_types::devices::Role;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::Fixture;
use crate::listing::{Keys, Owner};
use crate::pushes::{ONE, Place, TWO, count, pushed};

/// The same when a process was killed: its deliveries are taken for 30 seconds.
const AFTER_A_KILL: Duration = Duration::from_secs(300);

on_both_databases! {
    async fn a_silent_push_service_does_not_delay_other_accounts(on: Backend) {
        let silent = PushService::start().await;
        let (mut place, live) = Place::trusting(on, std::slice::from_ref(&silent)).await;
        place.push = silent;
        let mut dead = Vec::new();
        for n in 0..3 {
            place.owner = Owner::new(&place.fixture).await;
            let browser = place.subscribe(&format!("dead-{n}")).await;
            browser.answer(PushAnswer::Never);
            place.give((10..20).map(|n| place.event("permission", &format!("{n}AAAAAAAAA"))).collect()).await;
            dead.push(browser);
        }
        let calls = || dead.iter().map(Subscriber::calls).sum::<usize>();
        eventually(SOON, async || calls() >= 4).await;
        (place.push, place.owner) = (live, Owner::new(&place.fixture).await);
        let browser = place.subscribe("live").await;
        place.give(vec![place.event("permission", TWO)]).await;
        pushed(&browser, 1).await;
        assert_eq!(calls(), 4, "it came before any try timed out");
    }

    async fn an_account_with_many_silent_push_services_does_not_delay_others(on: Backend) {
        let mut tarpits = Vec::new();
        for _ in 0..6 {
            tarpits.push(PushService::start().await);
        }
        let (mut place, live) = Place::trusting(on, &tarpits).await;
        // Each device of the account is at a push service of its own.
        let mut dead = Vec::new();
        for tarpit in tarpits {
            let keys = Keys::new();
            place.owner.link(&place.fixture, &keys, Role::Linked).await;
            let device = place.fixture.client(&keys).await;
            let devices = device.get("/v1/devices").await.expect(200);
            let id = devices["devices"].as_array().unwrap().iter().find(|d| d["current"] == true).unwrap()["id"].clone();
            let browser = tarpit.subscriber("dead");
            browser.answer(PushAnswer::Never);
            let subscribed = json!({ "pushSubscription": browser.subscription() });
            device.patch(&format!("/v1/devices/{}", id.as_str().unwrap()), &subscribed).await.expect(200);
            dead.push(browser);
        }
        let began = Instant::now();
        for batch in 10..14 {
            let events = (100..180).map(|n| place.event("permission", &format!("{batch}{n}AAAAAA"))).collect();
            place.give(events).await;
        }
        // Only the newest wait.
        assert!(count(&place, "push_deliveries") <= 6 * 50 + 2);
        let newest = "push_deliveries WHERE attention LIKE '13%'";
        assert!(count(&place, newest) >= 6 * 48, "the oldest go");
        let calls = || dead.iter().map(Subscriber::calls).sum::<usize>();
        eventually(SOON, async || calls() >= 2).await;
        (place.push, place.owner) = (live, Owner::new(&place.fixture).await);
        let browser = place.subscribe("live").await;
        place.give(vec![place.event("permission", TWO)]).await;
        pushed(&browser, 1).await;
        // Two at once, for ten seconds each.
        let rounds = usize::try_from(began.elapsed().as_secs() / 10).unwrap() + 1;
        assert!(calls() <= 2 * rounds, "{} calls in {:?}", calls(), began.elapsed());
    }

    async fn accounts_have_their_turns_and_each_gets_all_of_its_own(on: Backend) {
        let mut place = Place::new(on).await;
        let many = place.subscribe("many").await;
        many.answer(PushAnswer::Later(503, 1));
        let batch = |place: &Place| (10..55).map(|n| place.event("permission", &format!("{n}AAAAAAAAA"))).collect();
        place.give(batch(&place)).await;
        eventually(SOON, async || many.calls() >= 1).await;
        place.owner = Owner::new(&place.fixture).await;
        let few = place.subscribe("few").await;
        place.give(vec![place.event("permission", ONE), place.event("permission", TWO)]).await;
        pushed(&few, 2).await;
        many.answer(PushAnswer::Status(201));
        eventually(SOON, async || count(&place, "push_deliveries") == 0).await;
        let got: std::collections::HashSet<String> =
            many.pushed().iter().map(|one| one.payload["attention"].as_str().unwrap().to_owned()).collect();
        assert_eq!(got.len(), 45);
    }
}

/// SQLite has one connection that writes, which notifications and sign-ins share.
#[test]
fn while_notifications_end_together_no_sign_in_is_refused() {
    run(async {
        let mut place = Place::new(Backend::Sqlite).await;
        let (mut browsers, mut events) = (Vec::new(), Vec::new());
        for n in 0..8 {
            place.owner = Owner::new(&place.fixture).await;
            browsers.push(place.subscribe(&format!("browser-{n}")).await);
            events.extend((10..40).map(|n| place.event("permission", &format!("{n}AAAAAAAAA"))));
        }
        for batch in events.chunks(60) {
            place.give(batch.to_vec()).await;
        }
        let mut sign_ins = 0;
        while count(&place, "push_deliveries") > 0 {
            let keys: Vec<_> = (0..8).map(|_| crate::new_key()).collect();
            for answer in join_all(keys.iter().map(|key| place.fixture.sign_in(key))).await {
                answer.expect(200);
                sign_ins += 1;
            }
        }
        assert!(sign_ins >= 8, "{sign_ins}");
        assert!(browsers.iter().all(|browser| browser.calls() == 30));
    });
}

#[test]
fn what_a_replica_leaves_is_sent_by_another() {
    run(async {
        let place = Place::new(Backend::Postgres).await;
        let browser = place.subscribe("browser").await;
        browser.answer(PushAnswer::Later(503, 1));
        place.give(vec![place.event("permission", ONE)]).await;
        eventually(SOON, async || browser.calls() >= 1).await;
        browser.answer(PushAnswer::Status(201));
        let before = browser.calls();
        let another = place.fixture.replica().await;
        let Place { fixture, .. } = place;
        assert!(fixture.service.stop().await);
        eventually(SOON, async || browser.calls() > before).await;
        assert_eq!(browser.pushed()[before..].len(), 1);
        assert_eq!(browser.pushed().last().unwrap().payload["attention"], ONE);
        drop(another);
    });
}

on_both_databases! {
    async fn what_a_killed_process_was_sending_is_sent_again_once(on: Backend) {
        let place = Place::new(on).await;
        let browser = place.subscribe("browser").await;
        let event = place.event("permission", ONE);
        let Fixture { service, vars, database, .. } = place.fixture;
        assert!(service.stop().await);
        let mut program = Program::start(env!("CARGO_BIN_EXE_ensemble-identity"), vars).await;
        browser.answer(PushAnswer::Never);
        let identity = PushesClient::new(channel_to(&program.internal_url));
        identity.give(GivePushesRequest { events: vec![event.clone()] }).await.unwrap();
        eventually(SOON, async || browser.calls() == 1).await;
        program.kill().await;

        browser.answer(PushAnswer::Status(201));
        program.restart().await;
        // Given again, as by a service that has got no answer.
        let identity = PushesClient::new(channel_to(&program.internal_url));
        identity.give(GivePushesRequest { events: vec![event.clone()] }).await.unwrap();
        eventually(AFTER_A_KILL, async || browser.calls() == 2).await;
        // The next event shows that nothing of the first is left.
        let next = PushEvent { kind: "finished".to_owned(), attention: TWO.to_owned(), ..event };
        identity.give(GivePushesRequest { events: vec![next] }).await.unwrap();
        let pushed = pushed(&browser, 3).await;
        let attentions: Vec<&Value> = pushed.iter().map(|one| &one.payload["attention"]).collect();
        assert_eq!(attentions, [ONE, ONE, TWO]);
        // One topic: a push service shows the second in place of the first.
        assert_eq!((&pushed[0].headers["topic"], &pushed[1].headers["topic"]), (&ONE.to_owned(), &ONE.to_owned()));
        drop(database);
    }
}
