//! Lists that the service has lost since a backup, and gets again. A second service that knows nothing of them is one that was restored.

use ensemble_testkit::{Api, on_both_databases};
use ensemble_types::devices::{DeviceList, Role, SignedList};
use serde_json::{Value, json};

use crate::listing::{Keys, Owner, after, change, completing, named, new_epoch, proven, refused, sign};
use crate::{Fixture, ORIGIN};

/// An account, its lists, and what vouches for the devices in them.
struct Lost {
    owner: Owner,
    /// Was linked in the second list, as a primary device, and removed in the fourth.
    tablet: Keys,
    lists: Vec<SignedList>,
    proofs: Value,
    links: Value,
    /// The same account at a service that has none of the lists.
    restored: Fixture,
    api: Api,
    _service: Fixture,
}

impl Lost {
    async fn new(on: ensemble_testkit::Backend) -> Self {
        let service = Fixture::new(on).await;
        let mut owner = Owner::new(&service).await;
        let (tablet, words) = (Keys::new(), Keys::new());
        let mut lists = vec![owner.signed.clone()];
        let link = owner.open_link().await;
        let request = tablet.request(&link, ORIGIN);
        service.api.post(&format!("/v1/auth/links/{link}/request"), &json!(request)).await.expect(200);
        let list = owner.with(tablet.entry(Role::Primary));
        let signed = sign(&list, &owner.keys);
        owner.api.post("/v1/devices", &completing(&signed, &link)).await.expect(201);
        (owner.list, owner.signed) = (list, signed);
        lists.push(owner.signed.clone());
        owner.put_with(owner.with(words.entry(Role::Recovery)), &[&words]).await;
        lists.push(owner.signed.clone());
        let proofs = proven(&owner.signed, &[&words])["proofs"].clone();
        owner.put(owner.without(&tablet)).await;
        lists.push(owner.signed.clone());
        let restored = Fixture::new(on).await;
        let api = restored.client(&owner.keys).await;
        let links = json!([{ "id": link, "request": request }]);
        Self { owner, tablet, lists, proofs, links, restored, api, _service: service }
    }

    /// The call with these lists, and all that vouches for them.
    fn again(&self, lists: &[SignedList]) -> Value {
        let mut body = change(lists.last().unwrap());
        body.as_object_mut().unwrap().remove("list");
        body["lists"] = json!(lists);
        (body["proofs"], body["links"]) = (self.proofs.clone(), self.links.clone());
        body
    }

    async fn newest(&self) -> Value {
        self.api.get("/v1/devices").await.expect(200)["list"].clone()
    }
}

on_both_databases! {
    async fn lists_that_were_lost_are_taken_again(on: Backend) {
        let lost = Lost::new(on).await;
        let body = lost.again(&lost.lists[..2]);
        let made = lost.api.post("/v1/devices", &body).await.expect(201);
        assert_eq!(made["list"], json!(lost.lists[1]));
        assert_eq!(made["devices"][1]["kind"], "web");
        let tablet = lost.restored.client(&lost.tablet).await;
        tablet.get("/v1/account").await.expect(200);

        // The first two are there, as when another device was faster.
        let body = lost.again(&lost.lists);
        let made = lost.api.post("/v1/devices", &body).await.expect(201);
        assert_eq!((&made["list"], lost.newest().await), (&json!(lost.lists[3]), json!(lost.lists[3])));
        assert_eq!(made["devices"].as_array().unwrap().len(), 2);
        tablet.get("/v1/account").await.problem(401, "DEVICE_REMOVED");
        lost.restored.sign_in(&lost.tablet.key).await.problem(401, "DEVICE_REMOVED");
        let ring = lost.api.get("/v1/devices/content-ring").await.expect(200);
        let sealed = format!("ring 4 of {}", lost.owner.keys.public());
        assert_eq!(ring, json!({ "version": 4, "contentEpoch": 2, "sealed": sealed }));
        let user = lost.api.get("/v1/account").await.expect(200)["id"].as_str().unwrap().to_owned();
        let all = lost.api.get(&format!("/v1/users/{user}/devices")).await.expect(200);
        assert_eq!(all["lists"], json!(lost.lists));
        assert_eq!(lost.api.post("/v1/devices", &body).await.expect(200), made, "the answer was lost");
        // A device that was taken back and removed in one call stays out too.
        let other = Lost::new(on).await;
        other.api.post("/v1/devices", &other.again(&other.lists)).await.expect(201);
        other.restored.sign_in(&other.tablet.key).await.problem(401, "DEVICE_REMOVED");
    }

    async fn each_list_is_checked_as_if_it_came_alone(on: Backend) {
        let lost = Lost::new(on).await;
        let send = async |body: Value| refused(&lost.api.post("/v1/devices", &body).await);
        let at = async |body: Value, place: &str, what: &str| {
            let (found, why) = send(body).await;
            assert!(found == place && why.contains(what), "{found}: {why}");
        };
        let with = |name: &str, value: Value| {
            let mut body = lost.again(&lost.lists);
            body[name] = value;
            body
        };
        at(with("links", json!([])), "/lists/1", "has no proof of possession").await;
        at(with("proofs", json!({})), "/lists/2", "has no proof of possession").await;
        let mut elsewhere = lost.links.clone();
        elsewhere[0]["request"] = json!(lost.tablet.request(elsewhere[0]["id"].as_str().unwrap(), "https://other.example.com"));
        at(with("links", elsewhere), "/lists/1", "has no proof of possession").await;
        let gap = [lost.lists[0].clone(), lost.lists[2].clone()];
        at(lost.again(&gap), "/lists/1", "does not follow").await;
        let mut forged = lost.lists.clone();
        forged[3].signature = forged[2].signature.clone();
        at(lost.again(&forged), "/lists/3", "not signed").await;
        at(with("sealed", json!({})), "/sealed", "exactly").await;
        at(with("lists", json!([])), "/lists", "1 to 64").await;
        at(with("lists", json!(vec![&lost.lists[0]; 65])), "/lists", "1 to 64").await;
        at(with("list", json!(lost.lists[0])), "/lists", "without `list`").await;
        let mut alone = change(&lost.lists[0]);
        alone["links"] = lost.links.clone();
        at(alone, "/links", "`lists`").await;
        assert_eq!(lost.newest().await, Value::Null, "all are taken or none");
        lost.api.post("/v1/devices", &lost.again(&lost.lists)).await.expect(201);
    }

    async fn a_link_of_another_account_vouches_for_nothing(on: Backend) {
        let lost = Lost::new(on).await;
        // A device that was removed from the account has seen the request, and begins an account of its own.
        let eve = Owner::new(&lost.restored).await;
        let list = sign(&eve.with(lost.tablet.entry(Role::Linked)), &eve.keys);
        let (place, why) = refused(&eve.api.post("/v1/devices", &lost.again(&[eve.signed.clone(), list])).await);
        assert!(place == "/lists/1" && why.contains("has no proof of possession"), "{place}: {why}");
        lost.api.post("/v1/devices", &lost.again(&lost.lists)).await.expect(201);
    }

    async fn no_list_is_taken_back(on: Backend) {
        let lost = Lost::new(on).await;
        lost.api.post("/v1/devices", &lost.again(&lost.lists[..2])).await.expect(201);
        let tablet = lost.restored.client(&lost.tablet).await;
        lost.api.post("/v1/devices", &lost.again(&lost.lists)).await.expect(201);
        // The lists of a primary device that was removed, on top of the last one in which it was one.
        let branch = {
            let mut next = new_epoch(after(&lost.lists[1]));
            next.devices.retain(|device| device.key != lost.owner.keys.public());
            sign(&next, &lost.tablet)
        };
        let lists = [lost.lists[1].clone(), branch];
        tablet.post("/v1/devices", &lost.again(&lists)).await.problem(401, "DEVICE_REMOVED");
        for lists in [&lists[..], &lists[1..], &lost.lists[..2]] {
            let answer = lost.api.post("/v1/devices", &lost.again(lists)).await;
            assert_eq!(answer.problem(409, "DEVICE_LIST_CONFLICT")["current"], json!(lost.lists[3]));
        }
        assert_eq!(lost.newest().await, json!(lost.lists[3]));
    }

    async fn names_that_the_sender_does_not_know_may_be_missing(on: Backend) {
        let lost = Lost::new(on).await;
        let next = lost.owner.next();
        let named: Vec<_> = next.devices.iter().zip(["desk", "paper"]).map(|(entry, name)| named(entry.clone(), name)).collect();
        let keys = [named[0].0.key.as_str(), named[1].0.key.as_str()];
        let devices = named.iter().map(|(entry, _)| entry.clone()).collect();
        let signed = sign(&DeviceList { devices, ..next }, &lost.owner.keys);
        let mut body = lost.again(&[&lost.lists[..], std::slice::from_ref(&signed)].concat());
        body["names"] = json!({ keys[0]: named[1].1 });
        assert_eq!(refused(&lost.api.post("/v1/devices", &body).await).0, "/names", "it is the name of another one");
        body["names"] = json!({ keys[0]: named[0].1 });
        let made = lost.api.post("/v1/devices", &body).await.expect(201);
        assert_eq!((&made["devices"][0]["name"], &made["devices"][1]["name"]), (&json!("desk"), &Value::Null));
        let mut later = change(&sign(&after(&signed), &lost.owner.keys));
        later["names"] = json!({ keys[0]: named[0].1 });
        assert_eq!(refused(&lost.api.post("/v1/devices", &later).await).0, "/names", "a new list has all");
        later["names"][keys[1]] = json!(named[1].1);
        let made = lost.api.post("/v1/devices", &later).await.expect(201);
        assert_eq!((&made["devices"][0]["name"], &made["devices"][1]["name"]), (&json!("desk"), &json!("paper")));
    }
}
