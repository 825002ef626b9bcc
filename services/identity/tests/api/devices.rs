//! The device list: POST and GET /v1/devices, the content ring, lists of users, names.

use ensemble_testkit::on_both_databases;
use ensemble_types::devices::{DeviceList, Role};
use ensemble_types::ids::UserId;
use serde_json::{Value, json};

use crate::Fixture;
use crate::listing::{Keys, Owner, after, change, first, named, new_epoch, proven, refused, sign, sign_text};

on_both_databases! {
    async fn the_first_list_is_the_account_keys(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, alice, user) = fixture.account().await;
        let keys = Keys::of(key);
        assert_eq!(
            alice.get("/v1/devices").await.expect(200),
            json!({ "list": null, "devices": [], "nextCursor": null })
        );
        alice.get("/v1/devices/content-ring").await.problem(404, "NOT_FOUND");
        let (entry, name) = named(keys.entry(Role::Primary), "my laptop");
        let signed = sign(&DeviceList { devices: vec![entry], ..first(&keys) }, &keys);
        let mut body = change(&signed);
        body["names"] = json!({ keys.public(): name });
        let made = alice.post("/v1/devices", &body).await.expect(201);
        assert_eq!(made["list"], json!(signed));
        assert_eq!(made["devices"].as_array().unwrap().len(), 1);
        let device = &made["devices"][0];
        for (field, value) in [
            ("name", json!("my laptop")), ("nameSalt", json!(name.salt)), ("kind", json!("cli")), ("role", json!("primary")),
            ("publicKey", json!(keys.public())), ("boxKey", json!(keys.box_key)), ("machineId", Value::Null),
            ("current", json!(true)),
        ] {
            assert_eq!(device[field], value, "{field}");
        }
        assert_eq!(alice.get("/v1/devices").await.expect(200), made);
        // The answer was lost, and the client sends the list again. What was sealed first stays.
        let mut again = body.clone();
        again["sealed"][keys.public()] = json!("sealed again");
        assert_eq!(alice.post("/v1/devices", &again).await.expect(200), made);
        let ring = alice.get("/v1/devices/content-ring").await.expect(200);
        let expected = format!("ring 1 of {}", keys.public());
        assert_eq!(ring, json!({ "version": 1, "contentEpoch": 1, "sealed": expected }));
        let lists = alice.get(&format!("/v1/users/{user}/devices")).await.expect(200);
        assert_eq!(lists, json!({ "lists": [signed], "nextCursor": null }));
        let beyond = alice.get(&format!("/v1/users/{user}/devices?after=10001")).await;
        beyond.problem(400, "INVALID_ARGUMENT");
        let (key, alone, _) = fixture.account().await;
        let keys = Keys::of(key);
        let second = DeviceList { version: 2, ..first(&keys) };
        let early = alone.post("/v1/devices", &change(&sign(&second, &keys))).await;
        assert_eq!(early.problem(409, "DEVICE_LIST_CONFLICT")["current"], Value::Null);
        assert!(early.text.contains("has no device list yet"), "{}", early.text);
    }

    async fn a_list_follows_the_newest_one(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (first, version_one) = (alice.signed.clone(), alice.list.clone());
        let words = Keys::new();
        alice.put_with(alice.with(words.entry(Role::Recovery)), &[&words]).await;
        let conflict = async |list: DeviceList| {
            let answer = alice.api.post("/v1/devices", &change(&sign(&list, &alice.keys))).await;
            assert_eq!(answer.problem(409, "DEVICE_LIST_CONFLICT")["current"], json!(alice.signed), "{}", answer.text);
        };
        conflict(version_one).await;
        conflict(new_epoch(after(&first))).await;
        conflict(DeviceList { version: 4, ..alice.next() }).await;
        conflict(DeviceList { prev: after(&first).prev, ..alice.next() }).await;
        conflict(DeviceList { version: 2, ..alice.next() }).await;
        let old = alice.api.post("/v1/devices", &change(&first)).await;
        old.problem(409, "DEVICE_LIST_CONFLICT");
        assert_eq!(alice.api.get("/v1/devices").await.expect(200)["list"], json!(alice.signed));
        alice.put(alice.next()).await;

        let fresh = fixture.account().await;
        let keys = Keys::of(fresh.0);
        let late = DeviceList { version: 2, prev: alice.next().prev, ..crate::listing::first(&keys) };
        let none = fresh.1.post("/v1/devices", &change(&sign(&late, &keys))).await;
        assert_eq!(none.problem(409, "DEVICE_LIST_CONFLICT")["current"], Value::Null);
    }

    async fn of_two_lists_at_once_one_is_taken(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        let mut together = Vec::new();
        for _ in 0..8 {
            let (api, body) = (alice.api.clone(), change(&sign(&new_epoch(alice.next()), &alice.keys)));
            together.push(tokio::spawn(async move { api.post("/v1/devices", &body).await.status }));
        }
        let mut taken = 0;
        for one in together {
            match one.await.unwrap() {
                201 => taken += 1,
                status => assert_eq!(status, 409),
            }
        }
        assert_eq!(taken, 1);
    }

    async fn bad_lists_are_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (bob, tablet) = (Owner::new(&fixture).await, Keys::new());
        alice.link(&fixture, &tablet, Role::Linked).await;
        let send = async |body: Value| refused(&alice.api.post("/v1/devices", &body).await);
        let list = async |list: &DeviceList, by: &Keys| send(change(&sign(list, by))).await;
        let is_list = |(place, why): (String, String), what: &str| {
            assert_eq!(place, "/list", "{why}");
            assert!(why.contains(what), "{why}");
        };
        is_list(list(&alice.next(), &tablet).await, "may not sign");
        is_list(list(&alice.next(), &bob.keys).await, "may not sign");
        is_list(list(&after(&bob.signed), &bob.keys).await, "another account");
        is_list(list(&DeviceList { account: bob.keys.public(), ..alice.next() }, &alice.keys).await, "another account");
        let mut forged = change(&sign(&alice.next(), &alice.keys));
        forged["list"]["signature"] = json!(sign(&alice.next(), &tablet).signature);
        is_list(send(forged).await, "not signed");
        let mut same_epoch = alice.without(&tablet);
        (same_epoch.content_epoch, same_epoch.content_public_key) = (1, alice.list.content_public_key.clone());
        is_list(list(&same_epoch, &alice.keys).await, "content epoch");
        let mut empty = alice.without(&tablet);
        empty.devices.clear();
        is_list(list(&empty, &alice.keys).await, "1 to 64");
        let mut weak = [0; 32];
        weak[0] = 1;
        for small in [crate::base64url(&weak), crate::base64url(&[0; 32])] {
            let (mut signs, mut boxed) = (alice.next(), alice.next());
            signs.devices[1].key = small.clone();
            boxed.devices[1].box_key = small;
            is_list(list(&new_epoch(signs), &alice.keys).await, "small order");
            is_list(list(&new_epoch(boxed), &alice.keys).await, "small order");
        }
        let text = serde_json::to_string(&alice.next()).unwrap();
        for (from, to) in [("\"linked\"", "\"owner\""), ("{", "["), ("\"version\":3", "\"version\":3,\"version\":3")] {
            let body = sign_text(&text.replacen(from, to, 1), &alice.keys);
            let mut changed = change(&alice.signed);
            changed["list"] = json!(body);
            is_list(send(changed).await, "form");
        }
        let wide = sign_text(&text.replacen('{', &format!("{{\"later\":\"{}\",", "€".repeat(11_000)), 1), &alice.keys);
        is_list(send(change(&wide)).await, "32768 bytes");
        assert_eq!(alice.api.get("/v1/devices").await.expect(200)["list"], json!(alice.signed), "none changed anything");
    }

    async fn rings_and_names_are_of_the_devices_in_the_list(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (words, runner) = (Keys::new(), Keys::new());
        alice.put_with(alice.with(words.entry(Role::Recovery)), &[&words]).await;
        let list = alice.with(runner.entry(Role::Machine));
        let good = proven(&sign(&list, &alice.keys), &[&runner]);
        assert_eq!(good["sealed"].as_object().unwrap().len(), 2, "a machine opens nothing");
        let send = async |change: &dyn Fn(&mut Value)| {
            let mut body = good.clone();
            change(&mut body);
            refused(&alice.api.post("/v1/devices", &body).await).0
        };
        assert_eq!(send(&|body| body["sealed"] = json!({})).await, "/sealed");
        assert_eq!(send(&|body| drop(body["sealed"].as_object_mut().unwrap().remove(&words.public()))).await, "/sealed");
        assert_eq!(send(&|body| body["sealed"][runner.public()] = json!("ring")).await, "/sealed");
        assert_eq!(send(&|body| body["sealed"][Keys::new().public()] = json!("ring")).await, "/sealed");
        let (_, name) = named(runner.entry(Role::Machine), "x");
        assert_eq!(send(&|body| body["names"] = json!({ Keys::new().public(): name })).await, "/names");
        for bad in ["", &"x".repeat(8_193)] {
            let mut body = good.clone();
            body["sealed"][words.public()] = json!(bad);
            alice.api.post("/v1/devices", &body).await.problem(400, "INVALID_ARGUMENT");
        }
        let made = alice.api.post("/v1/devices", &good).await.expect(201);
        let kinds: Vec<&Value> = made["devices"].as_array().unwrap().iter().map(|device| &device["kind"]).collect();
        assert_eq!(kinds, ["cli", "recovery", "runner"]);
        assert_eq!(made["devices"][2]["machineId"], "laptop");
    }

    async fn a_key_is_listed_by_who_holds_it(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (mut alice, bob) = (Owner::new(&fixture).await, Owner::new(&fixture).await);
        for role in Role::ALL {
            let keys = Keys::new();
            let signed = sign(&alice.with(keys.entry(role)), &alice.keys);
            let send = async |body: &Value| {
                let (place, why) = refused(&alice.api.post("/v1/devices", body).await);
                assert_eq!(place, "/list");
                assert!(why.contains("link the device"), "{why}");
            };
            send(&change(&signed)).await;
            // A proof for another account, by another key, for another role or box.
            let mut foreign = change(&signed);
            let for_bob = sign(&bob.with(keys.entry(role)), &bob.keys);
            foreign["proofs"] = proven(&for_bob, &[&keys])["proofs"].clone();
            send(&foreign).await;
            let by_other = Keys { key: Keys::new().key, ..keys.clone() };
            let mut forged = change(&signed);
            let of_other = sign(&alice.with(by_other.entry(role)), &alice.keys);
            forged["proofs"] = json!({ keys.public(): proven(&of_other, &[&by_other])["proofs"][by_other.public()] });
            send(&forged).await;
            let boxed = Keys { box_key: crate::listing::random_box(), ..keys.clone() };
            let mut swapped = change(&signed);
            let with_box = sign(&alice.with(boxed.entry(role)), &alice.keys);
            swapped["proofs"] = proven(&with_box, &[&boxed])["proofs"].clone();
            send(&swapped).await;
            alice.put_with(alice.with(keys.entry(role)), &[&keys]).await;
        }
    }

    async fn a_key_belongs_to_one_account_for_ever(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (mut alice, mut bob) = (Owner::new(&fixture).await, Owner::new(&fixture).await);
        let (runner, words) = (Keys::new(), Keys::new());
        let (unlisted, _, carol) = fixture.account().await;
        bob.put_with(bob.with(runner.entry(Role::Machine)), &[&runner]).await;
        bob.put_with(bob.with(words.entry(Role::Recovery)), &[&words]).await;
        let taken = async |alice: &Owner, keys: &Keys, role: Role| {
            let signed = sign(&alice.with(keys.entry(role)), &alice.keys);
            let answer = alice.api.post("/v1/devices", &proven(&signed, &[keys])).await;
            answer.problem(409, "CONFLICT");
        };
        for (foreign, role) in [
            (&runner, Role::Machine), (&runner, Role::Recovery), (&bob.keys, Role::Machine), (&words, Role::Recovery),
            (&Keys::of(unlisted.clone()), Role::Machine),
        ] {
            taken(&alice, foreign, role).await;
        }
        assert_eq!(fixture.sign_in(&unlisted).await.expect(200)["userId"], carol.as_str());
        // Not after it was removed either, and not in the account that had it.
        bob.put(bob.without(&words)).await;
        bob.put(bob.without(&runner)).await;
        taken(&alice, &words, Role::Recovery).await;
        taken(&bob, &words, Role::Recovery).await;
        taken(&bob, &runner, Role::Machine).await;
        let fresh = Keys::new();
        alice.put_with(alice.with(fresh.entry(Role::Recovery)), &[&fresh]).await;
    }

    async fn machines_and_words_stay_what_they_are(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (runner, words, tablet) = (Keys::new(), Keys::new(), Keys::new());
        alice.put_with(alice.with(runner.entry(Role::Machine)), &[&runner]).await;
        alice.put_with(alice.with(words.entry(Role::Recovery)), &[&words]).await;
        alice.link(&fixture, &tablet, Role::Linked).await;
        for (keys, role) in [(&runner, Role::Primary), (&words, Role::Linked), (&tablet, Role::Machine)] {
            let mut list = new_epoch(alice.next());
            list.devices.retain(|device| device.key != keys.public());
            list.devices.push(keys.entry(role));
            let answer = alice.api.post("/v1/devices", &change(&sign(&list, &alice.keys))).await;
            assert_eq!(refused(&answer).0, "/list");
        }
        let mut moved = alice.next();
        moved.devices[1].machine_id = Some("other".parse().unwrap());
        assert_eq!(refused(&alice.api.post("/v1/devices", &change(&sign(&moved, &alice.keys))).await).0, "/list");
        // A linked device becomes a primary one, and has another box from then on.
        let mut promoted = new_epoch(alice.next());
        promoted.devices[3] = Keys { box_key: crate::listing::random_box(), ..tablet.clone() }.entry(Role::Primary);
        let after = alice.put(promoted.clone()).await;
        assert_eq!(after["devices"][3]["role"], "primary");
        assert_eq!(after["devices"][3]["boxKey"], json!(promoted.devices[3].box_key));
        let second = fixture.client(&tablet).await;
        second.post("/v1/auth/links", &json!({})).await.expect(201);
    }

    async fn lists_of_users_are_read_in_pages_from_a_version_on(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (_, bob, _) = fixture.account().await;
        let mut lists = vec![json!(alice.signed)];
        for _ in 0..33 {
            alice.put(alice.next()).await;
            lists.push(json!(alice.signed));
        }
        let path = format!("/v1/users/{}/devices", alice.user);
        let page = bob.get(&path).await.expect(200);
        assert_eq!((&page["lists"], &page["nextCursor"]), (&json!(lists[..32]), &json!("32")));
        let page = bob.get(&format!("{path}?after=32")).await.expect(200);
        assert_eq!(page, json!({ "lists": lists[32..], "nextCursor": null }));
        assert_eq!(bob.get(&format!("{path}?after=34")).await.expect(200)["lists"], json!([]));
        for bad in ["-1", "x", "", "70000", "1.5"] {
            assert_eq!(bob.get(&format!("{path}?after={bad}")).await.bad_fields(), ["?after"], "{bad}");
        }
        for unknown in [UserId::generate().to_string(), "x".to_owned()] {
            bob.get(&format!("/v1/users/{unknown}/devices")).await.problem(404, "NOT_FOUND");
        }
    }

    async fn an_account_makes_at_most_200_lists_a_day(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (mut alice, mut bob) = (Owner::new(&fixture).await, Owner::new(&fixture).await);
        for _ in 1..200 {
            alice.put(alice.next()).await;
        }
        let one_more = change(&sign(&alice.next(), &alice.keys));
        alice.api.post("/v1/devices", &one_more).await.problem(429, "QUOTA_EXCEEDED");
        bob.put(bob.next()).await;
    }

    async fn devices_have_the_names_to_which_the_list_commits(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let tablet = Keys::new();
        alice.link(&fixture, &tablet, Role::Linked).await;
        let (desk, desk_name) = named(alice.keys.entry(Role::Primary), "Desk");
        let (own, tablet_name) = named(tablet.entry(Role::Linked), "tablet");
        let list = DeviceList { devices: vec![desk.clone(), own], ..alice.next() };
        let (keys, other) = (alice.keys.public(), tablet.public());
        let send = async |list: &DeviceList, names: Value| {
            let mut body = change(&sign(list, &alice.keys));
            body["names"] = names;
            alice.api.post("/v1/devices", &body).await
        };
        for (why, names) in [
            ("none", json!({})),
            ("one is missing", json!({ keys.as_str(): desk_name })),
            ("one more", json!({ keys.as_str(): desk_name, other.as_str(): tablet_name, Keys::new().public(): desk_name })),
            ("swapped", json!({ keys.as_str(): tablet_name, other.as_str(): desk_name })),
        ] {
            assert_eq!(refused(&send(&list, names).await).0, "/names", "{why}");
        }
        let names = json!({ keys.as_str(): desk_name, other.as_str(): tablet_name });
        for (text, why) in [("DESK", "two devices"), ("tab\u{202e}let", "direction"), (" x", "NFC"), (&"ä".repeat(33), "64 bytes")] {
            let (entry, name) = named(tablet.entry(Role::Linked), text);
            let list = DeviceList { devices: vec![desk.clone(), entry], ..alice.next() };
            let mut names = names.clone();
            names[other.as_str()] = json!(name);
            let (place, said) = refused(&send(&list, names).await);
            assert!(place == "/names" && said.contains(why), "{said}");
        }
        let unnamed = alice.api.get("/v1/devices").await.expect(200);
        assert_eq!(unnamed["devices"][1]["name"], Value::Null, "a link's name is for the device that adds it");

        let made = send(&list, names).await.expect(201);
        assert_eq!((&made["devices"][0]["name"], &made["devices"][1]["name"]), (&json!("Desk"), &json!("tablet")));
        // The next list renames one, and takes the name of the other one.
        let (desk, desk_name) = named(desk, "Desk 2");
        let list = DeviceList { devices: vec![desk, tablet.entry(Role::Linked)], ..after(&sign(&list, &alice.keys)) };
        let made = send(&list, json!({ keys: desk_name })).await.expect(201);
        assert_eq!((&made["devices"][0]["name"], &made["devices"][1]["name"]), (&json!("Desk 2"), &Value::Null));
        assert_eq!(made["devices"][1]["nameSalt"], Value::Null);
        let path = format!("/v1/devices/{}", made["devices"][0]["id"].as_str().unwrap());
        assert_eq!(alice.api.patch(&path, &json!({})).await.bad_fields(), ["/notify"]);
        alice.api.patch(&path, &json!({ "name": "x" })).await.problem(400, "INVALID_ARGUMENT");
    }

    async fn a_machine_has_a_name_of_its_form_that_no_device_has(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        let runner = Keys::new();
        let (desk, desk_name) = named(alice.keys.entry(Role::Primary), "Desk");
        let send = async |text: &str| {
            let (entry, name) = named(runner.entry(Role::Machine), text);
            let list = DeviceList { devices: vec![desk.clone(), entry], ..alice.next() };
            let mut body = proven(&sign(&list, &alice.keys), &[&runner]);
            body["names"] = json!({ alice.keys.public(): desk_name, runner.public(): name });
            alice.api.post("/v1/devices", &body).await
        };
        for (text, why) in [
            ("Desk 2", "a-z 0-9"), ("-desk", "a-z 0-9"), ("büro", "a-z 0-9"), (&"x".repeat(64), "1 to 63"), ("desk", "two devices"),
        ] {
            let (place, said) = refused(&send(text).await);
            assert!(place == "/names" && said.contains(why), "{text}: {said}");
        }
        let made = send("desk-2.example").await.expect(201);
        assert_eq!((&made["devices"][0]["name"], &made["devices"][1]["name"]), (&json!("Desk"), &json!("desk-2.example")));
    }
}
