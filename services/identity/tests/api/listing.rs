//! Device lists as clients make them.

use ed25519_dalek::SigningKey;
use ensemble_protocol::lists::{LinkText, List, commitment, encode, proof_text, signed_text};
use ensemble_testkit::{Answer, Api};
use ensemble_types::devices::{DeviceKind, DeviceLinkRequest, DeviceList, DeviceName, ListedDevice, Role, SignedList};
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use crate::{Fixture, ORIGIN, base64url, new_key};

/// The keys of a device.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) key: SigningKey,
    pub(crate) box_key: String,
}

/// An account with a list, as one of its clients has it.
pub(crate) struct Owner {
    pub(crate) keys: Keys,
    pub(crate) api: Api,
    pub(crate) user: String,
    pub(crate) list: DeviceList,
    pub(crate) signed: SignedList,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self::of(new_key())
    }

    pub(crate) fn of(key: SigningKey) -> Self {
        Self { key, box_key: random_box() }
    }

    pub(crate) fn public(&self) -> String {
        base64url(self.key.verifying_key().as_bytes())
    }

    pub(crate) fn entry(&self, role: Role) -> ListedDevice {
        let machine_id = (role == Role::Machine).then(|| "laptop".parse().unwrap());
        ListedDevice { key: self.public(), box_key: self.box_key.clone(), role, machine_id, name: None, by: None }
    }

    /// What this device sends to be linked.
    pub(crate) fn request(&self, link: &str, origin: &str) -> DeviceLinkRequest {
        self.asks(link, origin, DeviceKind::Web, None)
    }

    /// The same for another kind, and for a machine on another device's computer.
    pub(crate) fn asks(&self, link: &str, origin: &str, kind: DeviceKind, by: Option<&Self>) -> DeviceLinkRequest {
        let mut request = DeviceLinkRequest {
            public_key: Blob::new(self.public()).unwrap(),
            box_key: Blob::new(self.box_key.as_str()).unwrap(),
            name: Text::new("my \u{1b}phone").unwrap(),
            kind,
            by: by.map(|by| Blob::new(by.public()).unwrap()),
            mac: Blob::new("A".repeat(43)).unwrap(),
            signature: Blob::new("A".repeat(86)).unwrap(),
        };
        let text = LinkText::of(origin, link, &request);
        request.signature = Blob::new(signature(&self.key, text.as_bytes())).unwrap();
        request
    }
}

impl Owner {
    /// An account whose first list has its account key only.
    pub(crate) async fn new(fixture: &Fixture) -> Self {
        let (key, api, user) = fixture.account().await;
        let keys = Keys::of(key);
        let list = first(&keys);
        let signed = sign(&list, &keys);
        api.post("/v1/devices", &change(&signed)).await.expect(201);
        Self { keys, api, user, list, signed }
    }

    /// The next list, unchanged.
    pub(crate) fn next(&self) -> DeviceList {
        after(&self.signed)
    }

    pub(crate) fn with(&self, entry: ListedDevice) -> DeviceList {
        let mut next = self.next();
        next.devices.push(entry);
        next
    }

    pub(crate) fn without(&self, gone: &Keys) -> DeviceList {
        new_epoch(DeviceList {
            devices: self.next().devices.into_iter().filter(|device| device.key != gone.public()).collect(),
            ..self.next()
        })
    }

    /// Sends a list that is signed by the owner's device, and keeps it as the newest.
    pub(crate) async fn put(&mut self, list: DeviceList) -> Value {
        self.put_with(list, &[]).await
    }

    /// The same, with proofs of the keys that are added.
    pub(crate) async fn put_with(&mut self, list: DeviceList, added: &[&Keys]) -> Value {
        let signed = sign(&list, &self.keys);
        let answer = self.api.post("/v1/devices", &proven(&signed, added)).await.expect(201);
        (self.list, self.signed) = (list, signed);
        answer
    }

    /// Links a device through a link and its request.
    pub(crate) async fn link(&mut self, fixture: &Fixture, keys: &Keys, role: Role) {
        let link = self.open_link().await;
        let request = keys.request(&link, ORIGIN);
        fixture.api.post(&format!("/v1/auth/links/{link}/request"), &json!(request)).await.expect(200);
        let list = self.with(keys.entry(role));
        let signed = sign(&list, &self.keys);
        self.api.post("/v1/devices", &completing(&signed, &link)).await.expect(201);
        (self.list, self.signed) = (list, signed);
    }

    pub(crate) async fn open_link(&self) -> String {
        let made = self.api.post("/v1/auth/links", &json!({})).await.expect(201);
        made["id"].as_str().unwrap().to_owned()
    }
}

impl Fixture {
    /// Signs in with a key and takes its token.
    pub(crate) async fn client(&self, keys: &Keys) -> Api {
        let signed_in = self.sign_in(&keys.key).await.expect(200);
        self.api.with_token(signed_in["token"].as_str().unwrap())
    }
}

pub(crate) fn first(keys: &Keys) -> DeviceList {
    DeviceList {
        account: keys.public(),
        version: 1,
        prev: None,
        created: Timestamp::from_unix_seconds(0),
        content_epoch: 1,
        content_public_key: random_box(),
        devices: vec![keys.entry(Role::Primary)],
    }
}

/// The list after this one, unchanged.
pub(crate) fn after(signed: &SignedList) -> DeviceList {
    let list = List::remembered(signed).unwrap();
    DeviceList { version: list.version() + 1, prev: Some(list.digest_text()), ..list.body().clone() }
}

pub(crate) fn new_epoch(list: DeviceList) -> DeviceList {
    DeviceList { content_epoch: list.content_epoch + 1, content_public_key: random_box(), ..list }
}

pub(crate) fn sign(list: &DeviceList, by: &Keys) -> SignedList {
    sign_text(&serde_json::to_string(list).unwrap(), by)
}

pub(crate) fn sign_text(body: &str, by: &Keys) -> SignedList {
    SignedList {
        body: Text::new(body).unwrap(),
        signer: Blob::new(by.public()).unwrap(),
        signature: Blob::new(signature(&by.key, &signed_text(body))).unwrap(),
    }
}

/// The entry with a commitment to a name, and what opens it.
pub(crate) fn named(entry: ListedDevice, name: &str) -> (ListedDevice, DeviceName) {
    let salt = Blob::new(base64url(&rand::random::<[u8; 16]>())).unwrap();
    let name = DeviceName { salt, name: Text::new(name).unwrap() };
    (ListedDevice { name: commitment(&name), ..entry }, name)
}

/// The body of the call, with a ring for each device that needs one.
pub(crate) fn change(signed: &SignedList) -> Value {
    let list: DeviceList = serde_json::from_str(&signed.body).unwrap();
    let opening = list.devices.iter().filter(|device| device.role != Role::Machine);
    let sealed: serde_json::Map<String, Value> =
        opening.map(|device| (device.key.clone(), json!(format!("ring {} of {}", list.version, device.key)))).collect();
    json!({ "list": signed, "sealed": sealed })
}

/// The same, with what these keys sign to be listed.
pub(crate) fn proven(signed: &SignedList, added: &[&Keys]) -> Value {
    let list: DeviceList = serde_json::from_str(&signed.body).unwrap();
    let proof = |keys: &&Keys| {
        let entry = list.devices.iter().find(|device| device.key == keys.public()).unwrap();
        (keys.public(), json!(signature(&keys.key, &proof_text(&list.account, entry))))
    };
    let mut body = change(signed);
    body["proofs"] = added.iter().map(proof).collect::<serde_json::Map<_, _>>().into();
    body
}

pub(crate) fn completing(signed: &SignedList, link: &str) -> Value {
    let mut body = change(signed);
    body["link"] = json!({ "id": link, "answer": "sealed answer" });
    body
}

/// The place of what was refused, and why.
pub(crate) fn refused(answer: &Answer) -> (String, String) {
    let problem = answer.problem(400, "INVALID_ARGUMENT");
    let text = |field: &str| problem["errors"][0][field].as_str().unwrap_or_default().to_owned();
    (text("pointer"), text("detail"))
}

pub(crate) fn signature(key: &SigningKey, text: &[u8]) -> String {
    use ed25519_dalek::Signer;
    base64url(&key.sign(text).to_bytes())
}

pub(crate) fn random_box() -> String {
    encode(&rand::random::<[u8; 32]>())
}
