//! Linking a device: a primary makes a link, the new device asks once, and the next list answers.

use std::time::Duration;

use ensemble_testkit::{Answer, Api, SOON, eventually, in_time, on_both_databases};
use ensemble_types::devices::{DeviceKind, Role};
use serde_json::{Value, json};

use crate::listing::{Keys, Owner, change, completing, refused, sign};
use crate::{Fixture, ORIGIN};

fn path(link: &str) -> String {
    format!("/v1/auth/links/{link}")
}

async fn ask(api: &Api, link: &str, keys: &Keys) -> Answer {
    api.post(&format!("{}/request", path(link)), &json!(keys.request(link, ORIGIN))).await
}

async fn state(api: &Api, link: &str) -> Value {
    api.get(&path(link)).await.expect(200)["state"].clone()
}

on_both_databases! {
    async fn a_phone_is_linked(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        let (phone, anybody) = (Keys::new(), &fixture.api);
        let made = alice.api.post("/v1/auth/links", &json!({})).await.expect(201);
        let link = made["id"].as_str().unwrap();
        assert_eq!(link.len(), 22);
        assert!(made["expiresAt"].is_string());
        assert_eq!(anybody.get(&path(link)).await.expect(200), json!({ "state": "waiting" }));
        let request = phone.request(link, ORIGIN);
        assert_eq!(ask(anybody, link, &phone).await.expect(200), json!({ "state": "asked" }));
        assert_eq!(anybody.get(&path(link)).await.expect(200), json!({ "state": "asked" }));
        let mine = alice.api.get(&path(link)).await.expect(200);
        assert_eq!(mine, json!({ "state": "asked", "request": request }));
        let bob = fixture.account().await.1;
        assert_eq!(bob.get(&path(link)).await.expect(200), json!({ "state": "asked" }));
        let bad = fixture.api.with_token("x").get(&path(link)).await;
        assert_eq!(bad.expect(200), json!({ "state": "asked" }), "a bad bearer changes nothing");

        let list = alice.with(phone.entry(Role::Linked));
        let body = completing(&sign(&list, &alice.keys), link);
        let answer = alice.api.post("/v1/devices", &body).await.expect(201);
        let device = &answer["devices"][1];
        assert_eq!((&device["kind"], &device["name"]), (&json!("web"), &Value::Null), "the list has no name for it");
        let approved = anybody.get(&path(link)).await.expect(200);
        assert_eq!(approved, json!({ "state": "approved", "answer": "sealed answer" }));
        assert_eq!(alice.api.post("/v1/devices", &body).await.expect(200), answer, "the same list again");
        assert_eq!(anybody.get(&path(link)).await.expect(200), approved);
        fixture.client(&phone).await.get("/v1/devices").await.expect(200);
    }

    async fn only_the_edge_says_that_a_device_asked_on_this_computer(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        for (entrance, local) in [(Some("local"), json!(true)), (Some("proxy"), Value::Null), (None, Value::Null)] {
            let (link, keys) = (alice.open_link().await, Keys::new());
            let body = json!(keys.request(&link, ORIGIN));
            let path = format!("{}/request", path(&link));
            let mut claims = body.clone();
            claims["local"] = json!(true);
            fixture.api.post(&path, &claims).await.problem(400, "INVALID_ARGUMENT");
            let mut request = fixture.api.request("POST", &path);
            if let Some(entrance) = entrance {
                request = request.header("x-internal-entrance", entrance);
            }
            let asked = Api::send(request.json(&body)).await;
            assert_eq!(asked.expect(200), json!({ "state": "asked" }), "the device does not learn it");
            assert_eq!(alice.api.get(&self::path(&link)).await.expect(200)["local"], local, "{entrance:?}");
            let others = fixture.api.get(&self::path(&link)).await.expect(200);
            assert_eq!(others, json!({ "state": "asked" }), "it is for the maker");
            let signed = sign(&alice.with(keys.entry(Role::Linked)), &alice.keys);
            if local == json!(true) {
                alice.api.post("/v1/devices", &completing(&signed, &link)).await.expect(201);
                assert_eq!(alice.api.get(&self::path(&link)).await.expect(200)["local"], local, "it stays");
            }
        }
    }

    async fn the_maker_learns_that_another_device_asked(on: Backend) {
        in_time(Duration::from_secs(15), async || {
            let fixture = Fixture::new(on).await;
            let mut alice = Owner::new(&fixture).await;
            let (link, phone, thief) = (alice.open_link().await, Keys::new(), Keys::new());
            let again = async |api: &Api| api.get(&path(&link)).await.expect(200)["again"].clone();
            ask(&fixture.api, &link, &phone).await.expect(200);
            ask(&fixture.api, &link, &phone).await.problem(409, "CONFLICT");
            let mut forged = json!(thief.request(&link, ORIGIN));
            forged["signature"] = json!(phone.request(&link, ORIGIN).signature);
            fixture.api.post(&format!("{}/request", path(&link)), &forged).await.problem(400, "INVALID_ARGUMENT");
            assert_eq!(again(&alice.api).await, Value::Null);
            alice.signed = sign(&alice.with(phone.entry(Role::Linked)), &alice.keys);
            alice.api.post("/v1/devices", &completing(&alice.signed, &link)).await.expect(201);
            let (api, waiting) = (alice.api.clone(), format!("{}?waitMs=30000", path(&link)));
            let waiting = tokio::spawn(async move { api.get(&waiting).await.expect(200) });
            ask(&fixture.api, &link, &thief).await.problem(409, "CONFLICT");
            let seen = waiting.await.unwrap();
            assert_eq!((&seen["state"], &seen["again"]), (&json!("approved"), &json!(true)));
            let (first, others) = (&seen["request"]["publicKey"], again(&fixture.api).await);
            assert_eq!((first, others), (&json!(phone.public()), Value::Null), "the first claim counts");
        })
        .await;
    }

    async fn a_link_is_used_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (phone, thief) = (Keys::new(), Keys::new());
        let link = alice.open_link().await;
        ask(&fixture.api, &link, &phone).await.expect(200);
        ask(&fixture.api, &link, &thief).await.problem(409, "CONFLICT");
        ask(&fixture.api, &link, &phone).await.problem(409, "CONFLICT");
        let complete = async |alice: &Owner, keys: &Keys, link: &str| {
            let signed = sign(&alice.with(keys.entry(Role::Linked)), &alice.keys);
            alice.api.post("/v1/devices", &completing(&signed, link)).await
        };
        // Another key than that which asked, or its key with another box.
        assert_eq!(refused(&complete(&alice, &thief, &link).await).0, "/list");
        let other_box = Keys { box_key: thief.box_key.clone(), ..phone.clone() };
        assert_eq!(refused(&complete(&alice, &other_box, &link).await).0, "/list");
        let nothing = completing(&sign(&alice.next(), &alice.keys), &link);
        assert_eq!(refused(&alice.api.post("/v1/devices", &nothing).await).0, "/link");
        alice.signed = {
            let signed = sign(&alice.with(phone.entry(Role::Linked)), &alice.keys);
            alice.api.post("/v1/devices", &completing(&signed, &link)).await.expect(201);
            signed
        };
        let again = completing(&sign(&alice.next(), &alice.keys), &link);
        alice.api.post("/v1/devices", &again).await.problem(409, "CONFLICT");
        ask(&fixture.api, &link, &thief).await.problem(409, "CONFLICT");
        alice.api.post(&format!("{}/refusal", path(&link)), &json!({})).await.problem(409, "CONFLICT");
        let waiting = alice.open_link().await;
        complete(&alice, &thief, &waiting).await.problem(409, "CONFLICT");
    }

    async fn of_many_that_ask_at_once_one_is_accepted(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        let link = alice.open_link().await;
        let mut together = Vec::new();
        for _ in 0..8 {
            let (api, link) = (fixture.api.clone(), link.clone());
            together.push(tokio::spawn(async move { ask(&api, &link, &Keys::new()).await.status }));
        }
        let mut accepted = 0;
        for one in together {
            match one.await.unwrap() {
                200 => accepted += 1,
                status => assert_eq!(status, 409),
            }
        }
        assert_eq!(accepted, 1);
    }

    async fn a_request_is_signed_for_this_link_and_this_server(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        let link = alice.open_link().await;
        let phone = Keys::new();
        let send = async |body: Value| fixture.api.post(&format!("{}/request", path(&link)), &body).await;
        let good = json!(phone.request(&link, ORIGIN));
        let with = |field: &str, value: Value| { let mut body = good.clone(); body[field] = value; body };
        let other = Keys::new();
        for body in [
            json!(phone.request(&link, "https://evil.example.com")),
            json!(phone.request("AAAAAAAAAAAAAAAAAAAAAA", ORIGIN)),
            with("publicKey", json!(other.public())),
            with("boxKey", json!(other.box_key)),
            with("boxKey", json!(crate::base64url(&[0; 32]))),
            with("name", json!("other")),
            with("kind", json!("cli")),
            with("signature", json!(other.request(&link, ORIGIN).signature)),
        ] {
            assert_eq!(refused(&send(body).await).0, "/signature");
        }
        let weak = json!(Keys { box_key: crate::base64url(&[0; 32]), ..phone.clone() }.request(&link, ORIGIN));
        assert_eq!(refused(&send(weak).await).0, "/signature");
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let mut small = with("publicKey", json!(crate::base64url(&neutral)));
        small["signature"] = json!(crate::base64url(&[neutral, [0; 32]].concat()));
        assert_eq!(refused(&send(small).await).0, "/signature");
        assert_eq!(send(with("kind", json!(DeviceKind::Recovery))).await.bad_fields(), ["/kind"]);
        assert_eq!(send(with("name", json!("x".repeat(65)))).await.bad_fields(), ["/name"]);
        for by in [other.public(), "x".to_owned()] {
            assert_eq!(send(with("by", json!(by))).await.bad_fields(), ["/by"], "only a runner is on a computer");
        }
        send(with("name", json!("x".repeat(5_000)))).await.problem(413, "PAYLOAD_TOO_LARGE");
        assert_eq!(state(&fixture.api, &link).await, "waiting", "none of these used the link");
        send(good).await.expect(200);
        for unknown in ["AAAAAAAAAAAAAAAAAAAAAA", "x", "AAAAAAAAAAAAAAAAAAAAAB"] {
            ask(&fixture.api, unknown, &Keys::new()).await.problem(404, "NOT_FOUND");
            fixture.api.get(&path(unknown)).await.problem(404, "NOT_FOUND");
        }
    }

    async fn a_key_that_has_an_account_is_not_linked(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (mut alice, mut bob) = (Owner::new(&fixture).await, Owner::new(&fixture).await);
        let (phone, unlisted) = (Keys::new(), Keys::of(fixture.account().await.0));
        bob.link(&fixture, &phone, Role::Linked).await;
        let link = alice.open_link().await;
        for taken in [&phone, &bob.keys, &alice.keys, &unlisted] {
            ask(&fixture.api, &link, taken).await.problem(409, "CONFLICT");
        }
        // Also after it was removed.
        bob.put(bob.without(&phone)).await;
        ask(&fixture.api, &link, &phone).await.problem(409, "CONFLICT");
        let own = bob.open_link().await;
        ask(&fixture.api, &own, &phone).await.problem(409, "CONFLICT");
        // A link is of one account.
        let tablet = Keys::new();
        ask(&fixture.api, &own, &tablet).await.expect(200);
        let signed = sign(&alice.with(tablet.entry(Role::Linked)), &alice.keys);
        alice.api.post("/v1/devices", &completing(&signed, &own)).await.problem(404, "NOT_FOUND");
        assert_eq!(refused(&alice.api.post("/v1/devices", &change(&signed)).await).0, "/list");
        // Who asked two accounts gets into one of them.
        ask(&fixture.api, &link, &tablet).await.expect(200);
        alice.signed = signed.clone();
        alice.api.post("/v1/devices", &completing(&signed, &link)).await.expect(201);
        let second = sign(&bob.with(tablet.entry(Role::Linked)), &bob.keys);
        bob.api.post("/v1/devices", &completing(&second, &own)).await.problem(409, "CONFLICT");
        assert_eq!(state(&fixture.api, &own).await, "asked", "the list was not taken, so the link is not used");
    }

    async fn a_machine_of_another_computer_is_linked(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let runner = Keys::new();
        alice.link(&fixture, &runner, Role::Machine).await;
        fixture.client(&runner).await.get("/v1/account").await.problem(403, "FORBIDDEN");
        // A machine on a device's computer names that device, and signs it.
        let link = alice.open_link().await;
        let request = json!(Keys::new().asks(&link, ORIGIN, DeviceKind::Runner, Some(&alice.keys)));
        let at = format!("{}/request", path(&link));
        for by in [json!(runner.public()), Value::Null] {
            let mut other = request.clone();
            other["by"] = by;
            assert_eq!(fixture.api.post(&at, &other).await.bad_fields(), ["/signature"]);
        }
        fixture.api.post(&at, &request).await.expect(200);
        assert_eq!(alice.api.get(&path(&link)).await.expect(200)["request"]["by"], alice.keys.public());
    }

    async fn a_link_is_refused_by_its_account(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        let bob = Owner::new(&fixture).await;
        let link = alice.open_link().await;
        let phone = Keys::new();
        ask(&fixture.api, &link, &phone).await.expect(200);
        let refusal = format!("{}/refusal", path(&link));
        bob.api.post(&refusal, &json!({})).await.problem(404, "NOT_FOUND");
        for _ in 0..2 {
            assert_eq!(alice.api.post(&refusal, &json!({})).await.expect(200)["state"], "refused");
        }
        assert_eq!(state(&fixture.api, &link).await, "refused");
        let signed = sign(&alice.with(phone.entry(Role::Linked)), &alice.keys);
        alice.api.post("/v1/devices", &completing(&signed, &link)).await.problem(409, "CONFLICT");
        ask(&fixture.api, &link, &Keys::new()).await.problem(409, "CONFLICT");
        let unknown = format!("{}/refusal", path("AAAAAAAAAAAAAAAAAAAAAA"));
        alice.api.post(&unknown, &json!({})).await.problem(404, "NOT_FOUND");
    }

    async fn an_account_has_five_open_links(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        let mut together = Vec::new();
        for _ in 0..12 {
            let alice = alice.api.clone();
            together.push(tokio::spawn(async move { alice.post("/v1/auth/links", &json!({})).await }));
        }
        let mut open = Vec::new();
        for one in together {
            let answer = one.await.unwrap();
            match answer.status {
                201 => open.push(answer.expect(201)["id"].as_str().unwrap().to_owned()),
                _ => drop(answer.problem(409, "CONFLICT")),
            }
        }
        assert_eq!(open.len(), 5);
        let refusal = format!("{}/refusal", path(&open[0]));
        alice.api.post(&refusal, &json!({})).await.expect(200);
        alice.open_link().await;
        Owner::new(&fixture).await.open_link().await;
    }

    async fn a_reader_waits_for_the_next_step(on: Backend) {
        in_time(Duration::from_secs(15), async || {
            let fixture = Fixture::new(on).await;
            let alice = Owner::new(&fixture).await;
            let link = alice.open_link().await;
            let wait = |api: &Api, ms: u32| {
                let (api, path) = (api.clone(), format!("{}?waitMs={ms}", path(&link)));
                tokio::spawn(async move { api.get(&path).await.expect(200) })
            };
            let begun = std::time::Instant::now();
            assert_eq!(wait(&fixture.api, 100).await.unwrap()["state"], "waiting");
            assert!(begun.elapsed() >= Duration::from_millis(100));
            let (maker, anybody) = (wait(&alice.api, 30_000), wait(&fixture.api, 30_000));
            ask(&fixture.api, &link, &Keys::new()).await.expect(200);
            assert!(maker.await.unwrap()["request"].is_object(), "the maker learns who asks");
            assert_eq!(wait(&alice.api, 30_000).await.unwrap()["state"], "asked", "and gets it again at once");
            let late = wait(&fixture.api, 30_000);
            assert!(!anybody.is_finished() && !late.is_finished(), "the new device waits for the end");
            alice.api.post(&format!("{}/refusal", path(&link)), &json!({})).await.expect(200);
            for waiting in [anybody, late] {
                assert_eq!(waiting.await.unwrap()["state"], "refused");
            }
            assert!(begun.elapsed() < Duration::from_secs(15), "a change ends the wait");
            for bad in ["30001", "x", "-1"] {
                assert_eq!(fixture.api.get(&format!("{}?waitMs={bad}", path(&link))).await.bad_fields(), ["?waitMs"]);
            }
        })
        .await;
    }

    async fn links_end_and_are_deleted_afterwards(on: Backend) {
        in_time(Duration::from_secs(3), async || {
            let fixture = Fixture::with(on, &[("DEVICE_LINK_MS", "300"), ("SWEEP_MS", "50")]).await;
            let alice = Owner::new(&fixture).await;
            let (link, phone) = (alice.open_link().await, Keys::new());
            ask(&fixture.api, &link, &phone).await.expect(200);
            let ended = fixture.api.get(&format!("{}?waitMs=30000", path(&link))).await;
            // It is deleted as long after its end as it lived.
            assert_eq!(ended.expect(200)["state"], "expired");
            let signed = sign(&alice.with(phone.entry(Role::Linked)), &alice.keys);
            let late = alice.api.post("/v1/devices", &completing(&signed, &link)).await;
            assert!(matches!(late.status, 409 | 404), "{}", late.text);
            eventually(SOON, async || fixture.api.get(&path(&link)).await.status == 404).await;
        })
        .await;
    }
}
