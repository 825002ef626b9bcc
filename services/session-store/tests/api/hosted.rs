//! Sessions that a machine makes with its own token: what it may do there and nowhere else, and the epochs of keys.

use ensemble_testkit::{Api, Backend, Events, on_both_databases};
use ensemble_types::ids::SessionId;
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, batch, messages, seqs};

/// An owner with a machine, and a session that the machine hosts.
struct Host {
    owner: Client,
    machine: Api,
    session: String,
}

impl Host {
    async fn new(fixture: &Fixture) -> Self {
        let owner = fixture.client();
        let machine = machine(fixture, &owner, &owner.machine);
        let made = machine.post("/v1/sessions", &owner.draft()).await.expect(201);
        assert_eq!((&made["hosted"], &made["machineId"]), (&json!(true), &json!(owner.machine)));
        Self { session: made["id"].as_str().unwrap().to_owned(), owner, machine }
    }

    fn path(&self) -> String {
        format!("/v1/sessions/{}", self.session)
    }
}

fn machine(fixture: &Fixture, owner: &Client, id: &ensemble_types::ids::MachineId) -> Api {
    fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, id))
}

fn host_id(number: u8) -> uuid::Uuid {
    uuid::Uuid::from_bytes([number; 16])
}

fn message(local_id: &str, epoch: i64) -> Value {
    json!({ "content": format!("content of {local_id}"), "localId": local_id, "keyEpoch": epoch })
}

on_both_databases! {
    async fn a_machine_reads_and_writes_what_it_hosts(on: Backend) {
        let fixture = Fixture::start(on).await;
        let host = Host::new(&fixture).await;
        let (path, texts) = (host.path(), messages(&host.session));
        let seen = host.machine.get(&path).await.expect(200);
        assert_eq!((&seen["accessLevel"], &seen["encryptionKey"]), (&json!("edit"), &Value::Null));
        assert!(seen.get("hostKey").is_none_or(Value::is_null));
        let beat = |id: u8| json!({ "heartbeat": { "thinking": true, "hostId": host_id(id) } });
        host.machine.patch(&path, &beat(1)).await.expect(200);
        host.machine.patch(&path, &json!({ "metadata": "m" })).await.expect(200);
        host.machine.patch(&path, &json!({ "agentState": "a" })).await.expect(200);
        let sent = host.machine.post(&texts, &message("1", 1)).await.expect(201);
        assert_eq!((&sent["senderId"], &sent["senderMachineId"]), (&json!(host.owner.id), &json!(host.owner.machine)));
        // Its local ids are apart from the owner's.
        let own = host.owner.api.post(&texts, &message("1", 1)).await.expect(201);
        assert_eq!((&own["seq"], &own["senderMachineId"]), (&json!(2), &Value::Null));
        assert_eq!(host.machine.post(&texts, &message("1", 1)).await.expect(200)["seq"], 1);
        assert_eq!(host.owner.api.post(&texts, &message("1", 1)).await.expect(200)["seq"], 2);
        let page = host.machine.get(&texts).await.expect(200);
        assert_eq!(seqs(&page["messages"]), [2, 1]);
        assert_eq!(page["messages"][1]["senderMachineId"], json!(host.owner.machine));
        // What only people decide.
        let guest = fixture.client();
        let share = json!({ "userId": guest.id, "accessLevel": "view", "encryptedKey": "k" });
        for (method, path, body) in [
            ("PATCH", path.clone(), json!({ "status": "ended" })),
            ("PATCH", path.clone(), json!({ "archived": true })),
            ("PATCH", path.clone(), json!({ "encryptionKey": "k", "expectedKeyEpoch": 1 })),
            ("DELETE", path.clone(), Value::Null),
            ("GET", format!("{path}/shares"), Value::Null),
            ("POST", format!("{path}/shares"), share),
            ("DELETE", format!("{path}/shares/{}", host.owner.id), Value::Null),
            ("GET", format!("{path}/public-share"), Value::Null),
            ("POST", format!("{path}/public-share"), json!({})),
            ("DELETE", format!("{path}/public-share"), Value::Null),
        ] {
            let answer = match method {
                "PATCH" => host.machine.patch(&path, &body).await,
                "POST" => host.machine.post(&path, &body).await,
                "GET" => host.machine.get(&path).await,
                _ => host.machine.delete(&path).await,
            };
            assert_eq!(answer.status, 403, "{method} {path} {body}: {answer:?}");
        }
    }

    async fn a_heartbeat_says_why_the_machine_cannot_write(on: Backend) {
        let fixture = Fixture::start(on).await;
        let host = Host::new(&fixture).await;
        let path = host.path();
        let guest = fixture.client();
        host.owner.share(&host.session, &guest, "view").await;
        let beat = async |why: Value| {
            let beat = json!({ "heartbeat": { "hostId": host_id(1), "cannotWrite": why } });
            host.machine.patch(&path, &beat).await
        };
        let seen = async |by: &Api| by.get(&path).await.expect(200)["cannotWrite"].clone();
        beat(Value::Null).await.expect(200);
        assert_eq!(beat(json!("other")).await.bad_fields(), ["/heartbeat/cannotWrite"]);
        let mut events = Events::open(host.owner.api.request("GET", &format!("{}/stream", messages(&host.session)))).await;
        for why in ["key_refused", "key_not_given", "key_of_stranger", "list_unread"] {
            assert_eq!(beat(json!(why)).await.expect(200)["cannotWrite"], why);
            let event = events.expect().await;
            assert_eq!(event.name, "session", "an open screen reads it again");
            assert_eq!((seen(&host.owner.api).await, seen(&guest.api).await), (json!(why), json!(why)));
            let list = guest.api.get("/v1/sessions?include=shared").await.expect(200);
            assert_eq!(list["sessions"][0]["cannotWrite"], why);
        }
        // Of an offline machine nothing is known.
        let before = if on == Backend::Sqlite { "3600000000" } else { "interval '1 hour'" };
        fixture.execute(&format!("UPDATE sessions SET last_active_at = last_active_at - {before}")).await;
        assert_eq!(seen(&host.owner.api).await, Value::Null);
        beat(json!("list_unread")).await.expect(200);
        assert_eq!(seen(&host.owner.api).await, "list_unread");
        host.machine.patch(&path, &json!({ "heartbeat": { "hostId": host_id(1) } })).await.expect(200);
        assert_eq!(seen(&host.owner.api).await, Value::Null);
        // Only the machine knows it.
        let own = host.owner.session().await;
        let person = json!({ "heartbeat": { "cannotWrite": "key_refused" } });
        let answer = host.owner.api.patch(&format!("/v1/sessions/{own}"), &person).await;
        assert_eq!(answer.bad_fields(), ["/heartbeat/cannotWrite"]);
    }

    async fn one_process_hosts_a_session(on: Backend) {
        let fixture = Fixture::start_with(on, &[("SESSION_ONLINE_MS", "3600000")]).await;
        let host = Host::new(&fixture).await;
        let beat = async |id: Value| host.machine.patch(&host.path(), &json!({ "heartbeat": { "hostId": id } })).await;
        assert_eq!(beat(Value::Null).await.bad_fields(), ["/heartbeat/hostId"]);
        assert_eq!(beat(json!("x")).await.bad_fields(), ["/heartbeat/hostId"]);
        beat(json!(host_id(1))).await.expect(200);
        beat(json!(host_id(2))).await.problem(409, "LEASE_LOST");
        beat(json!(host_id(1))).await.expect(200);
        // A person's beat has no host, and does not count as one.
        let person = host.owner.api.patch(&host.path(), &json!({ "heartbeat": { "hostId": host_id(1) } })).await;
        assert_eq!(person.bad_fields(), ["/heartbeat/hostId"]);
        host.owner.api.patch(&host.path(), &json!({ "heartbeat": {} })).await.problem(403, "FORBIDDEN");
        // When the first one is silent, the next one takes over, and the first has to end.
        let hours = if on == Backend::Sqlite { "2 * 3600000000" } else { "interval '2 hours'" };
        fixture.execute(&format!("UPDATE sessions SET last_active_at = last_active_at - {hours}")).await;
        beat(json!(host_id(2))).await.expect(200);
        beat(json!(host_id(1))).await.problem(409, "LEASE_LOST");
    }

    async fn a_process_continues_the_previous_one(on: Backend) {
        let fixture = Fixture::start(on).await;
        let host = Host::new(&fixture).await;
        let beat = async |id: u8, previous: Value| {
            let beat = json!({ "hostId": host_id(id), "previousHostId": previous });
            host.machine.patch(&host.path(), &json!({ "heartbeat": beat })).await
        };
        assert_eq!(beat(1, json!("x")).await.bad_fields(), ["/heartbeat/previousHostId"]);
        beat(1, Value::Null).await.expect(200);
        beat(2, json!(host_id(9))).await.problem(409, "LEASE_LOST");
        // A restart, and two copies of the same machine: the one that starts last has the session.
        beat(2, json!(host_id(1))).await.expect(200);
        beat(3, json!(host_id(2))).await.expect(200);
        for _ in 0..2 {
            beat(2, json!(host_id(1))).await.problem(409, "LEASE_LOST");
            beat(4, json!(host_id(2))).await.problem(409, "LEASE_LOST");
            beat(3, json!(host_id(2))).await.expect(200);
        }
        let beat = json!({ "heartbeat": { "previousHostId": host_id(3) } });
        assert_eq!(host.machine.patch(&host.path(), &beat).await.bad_fields(), ["/heartbeat/hostId"]);
        host.owner.api.patch(&host.path(), &beat).await.problem(403, "FORBIDDEN");
    }

    async fn a_process_learns_at_once_that_another_one_hosts_its_session(on: Backend) {
        let fixture = Fixture::start(on).await;
        let host = Host::new(&fixture).await;
        let beat = |id: u8| json!({ "heartbeat": { "hostId": host_id(id), "previousHostId": host_id(1) } });
        host.machine.patch(&host.path(), &beat(1)).await.expect(200);
        let mut events = Events::open(host.machine.request("GET", &format!("{}/stream", messages(&host.session)))).await;
        host.machine.patch(&host.path(), &beat(1)).await.expect(200);
        host.machine.post(&messages(&host.session), &message("1", 1)).await.expect(201);
        assert_eq!(events.expect().await.name, "message", "a beat like the one before is not an event");
        host.machine.patch(&host.path(), &beat(2)).await.expect(200);
        assert_eq!(events.expect().await.name, "session");
    }

    async fn a_session_says_what_it_wants(on: Backend) {
        let fixture = Fixture::start(on).await;
        let host = Host::new(&fixture).await;
        let (path, other) = (host.path(), host.owner.session().await);
        let admin = fixture.guest(&host.owner, &host.session, "admin").await;
        let before = host.owner.api.get(&path).await.expect(200);
        let nothing = json!({ "kind": "none", "open": 0, "since": null, "id": null });
        assert_eq!((&before["attention"], &before["attentionVersion"]), (&nothing, &json!(0)));
        let asks = json!({ "attention": { "kind": "permission", "open": 1, "id": "AAAAAAAAAAA" } });
        let wants = host.machine.patch(&path, &asks).await.expect(200);
        assert_eq!((&wants["attention"]["kind"], &wants["attentionVersion"]), (&json!("permission"), &json!(1)));
        assert!(wants["attention"]["since"].is_string());
        let seen = host.owner.api.get(&path).await.expect(200);
        assert_eq!((&seen["attention"], &seen["updatedAt"]), (&wants["attention"], &before["updatedAt"]));
        let listed = async |api: &Api| -> Vec<Value> {
            let page = api.get("/v1/sessions?attention=any&include=shared").await.expect(200);
            page["sessions"].as_array().unwrap().iter().map(|session| session["id"].clone()).collect()
        };
        assert_eq!(listed(&host.owner.api).await, [json!(host.session)]);
        assert_eq!(listed(&admin.api).await, [json!(host.session)]);
        // A question is ended by an answer; what has ended is ended by looking at it.
        let none = |version: i64| json!({ "attention": { "kind": "none" }, "expectedVersion": version });
        assert_eq!(host.owner.api.patch(&path, &none(1)).await.bad_fields(), ["/attention"]);
        let finished = json!({ "attention": { "kind": "finished", "id": "BBBBBBBBBBB" } });
        host.machine.patch(&path, &finished).await.expect(200);
        let late = host.owner.api.patch(&path, &none(1)).await;
        assert_eq!(late.problem(409, "VERSION_MISMATCH")["current"]["version"], 2);
        admin.api.patch(&path, &none(2)).await.problem(403, "FORBIDDEN");
        let any = host.owner.api.patch(&path, &json!({ "attention": { "kind": "none" } })).await;
        assert_eq!(any.bad_fields(), ["/attention"]);
        let done = host.owner.api.patch(&path, &none(2)).await.expect(200);
        assert_eq!((&done["attention"], &done["attentionVersion"]), (&nothing, &json!(3)));
        assert!(listed(&host.owner.api).await.is_empty());
        for bad in [json!({ "kind": "permission" }), json!({ "kind": "sleepy" }), json!({}),
            json!({ "kind": "failed", "id": "short" })] {
            let answer = host.machine.patch(&path, &json!({ "attention": bad })).await;
            answer.problem(400, "INVALID_ARGUMENT");
        }
        let of_people = host.owner.api.patch(&format!("/v1/sessions/{other}"), &none(0)).await;
        assert_eq!(of_people.bad_fields(), ["/attention"]);
    }

    async fn other_machines_and_sessions_of_people_stay_closed(on: Backend) {
        let fixture = Fixture::start(on).await;
        let host = Host::new(&fixture).await;
        let by_owner = host.owner.session().await;
        let elsewhere = fixture.peers.new_machine(host.owner.id);
        let other = machine(&fixture, &host.owner, &elsewhere);
        for (api, session) in [(&host.machine, &by_owner), (&other, &host.session), (&other, &by_owner)] {
            let path = format!("/v1/sessions/{session}");
            api.get(&path).await.problem(404, "NOT_FOUND");
            api.patch(&path, &json!({ "archived": true })).await.problem(404, "NOT_FOUND");
            api.delete(&path).await.problem(404, "NOT_FOUND");
            api.get(&messages(session)).await.problem(404, "NOT_FOUND");
            api.post(&messages(session), &message("x", 1)).await.problem(404, "NOT_FOUND");
            api.get(&format!("{}/stream", messages(session))).await.problem(404, "NOT_FOUND");
            api.get(&format!("{path}/shares")).await.problem(404, "NOT_FOUND");
        }
        for list in ["/v1/sessions?include=shared", "/v2/sessions/active"] {
            let ids = async |api: &Api| -> Vec<String> {
                let page = api.get(list).await.expect(200);
                page["sessions"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
            };
            assert_eq!(ids(&host.machine).await, [host.session.as_str()]);
            assert!(ids(&other).await.is_empty());
            assert_eq!(ids(&host.owner.api).await.len(), 2);
        }
        // It creates sessions of its own only.
        for draft in [json!({ "machineId": elsewhere, "metadata": "m", "encryptionKey": "k" }),
            json!({ "metadata": "m", "encryptionKey": "k" })] {
            host.machine.post("/v1/sessions", &draft).await.problem(403, "FORBIDDEN");
        }
        let mut tagged = host.owner.draft();
        tagged["tag"] = json!("nightly");
        assert_eq!(host.machine.post("/v1/sessions", &tagged).await.bad_fields(), ["/tag"]);
        let made = host.owner.api.get(&format!("/v1/sessions/{by_owner}")).await.expect(200);
        assert_eq!(made["hosted"], false, "people's sessions are not hosted, also on a machine");
    }

    async fn the_owner_gives_the_machine_a_new_key(on: Backend) {
        let fixture = Fixture::start(on).await;
        let host = Host::new(&fixture).await;
        let (path, texts) = (host.path(), messages(&host.session));
        let without = host.machine.post(&texts, &json!({ "content": "c", "localId": "l" })).await;
        assert_eq!(without.bad_fields(), ["/keyEpoch"]);
        let several = json!({ "messages": [message("a", 1), { "content": "c", "localId": "b" }] });
        assert_eq!(host.machine.post(&batch(&host.session), &several).await.bad_fields(), ["/messages/1/keyEpoch"]);
        host.machine.post(&texts, &message("first", 1)).await.expect(201);
        let change = json!({ "encryptionKey": "k2", "hostKey": "h2", "expectedKeyEpoch": 1, "contentEpoch": 3 });
        let changed = host.owner.api.patch(&path, &change).await.expect(200);
        assert_eq!((&changed["keyEpoch"], &changed["contentEpoch"]), (&json!(2), &json!(3)));
        assert!(changed.get("hostKey").is_none_or(Value::is_null), "only the machine reads it");
        let seen = host.machine.get(&path).await.expect(200);
        assert_eq!((&seen["hostKey"], &seen["encryptionKey"]), (&json!("h2"), &Value::Null));
        for sender in [&host.machine, &host.owner.api] {
            let old = sender.post(&texts, &message("late", 1)).await;
            assert_eq!(old.problem(409, "KEY_EPOCH_OLD")["current"], 2);
        }
        host.machine.post(&texts, &message("late", 2)).await.expect(201);
        // As after a restore of older data, when the machine has a newer key than the service.
        host.machine.post(&texts, &message("newer", 3)).await.expect(201);
        // A key without one for the machine leaves it none.
        let alone = json!({ "encryptionKey": "k3", "expectedKeyEpoch": 2 });
        assert_eq!(host.owner.api.patch(&path, &alone).await.expect(200)["contentEpoch"], Value::Null);
        assert!(host.machine.get(&path).await.expect(200).get("hostKey").is_none_or(Value::is_null));
        // Sessions of people have no such rules, and no such key.
        let by_people = host.owner.session().await;
        host.owner.append(&by_people, "l", "c").await;
        let key = json!({ "encryptionKey": "k", "hostKey": "h", "expectedKeyEpoch": 1 });
        assert_eq!(host.owner.api.patch(&format!("/v1/sessions/{by_people}"), &key).await.bad_fields(), ["/hostKey"]);
    }

    async fn a_machine_gives_its_own_session_a_new_key(on: Backend) {
        let fixture = Fixture::start(on).await;
        let host = Host::new(&fixture).await;
        let path = host.path();
        let key = |epoch: i64| json!({ "encryptionKey": "k", "hostKey": "h", "expectedKeyEpoch": epoch, "contentEpoch": 2 });
        let changed = host.machine.patch(&path, &key(1)).await.expect(200);
        assert_eq!((&changed["keyEpoch"], &changed["hostKey"]), (&json!(2), &json!("h")));
        assert_eq!(host.machine.patch(&path, &key(1)).await.problem(409, "VERSION_MISMATCH")["current"]["version"], 2);
        let seen = host.owner.api.get(&path).await.expect(200);
        assert_eq!((&seen["encryptionKey"], &seen["contentEpoch"], &seen["rekeyNeeded"]), (&json!("k"), &json!(2), &json!(false)));
        // People get theirs from the owner's program.
        let guest = fixture.client();
        let share = json!({ "userId": guest.id, "accessLevel": "view", "encryptedKey": "k" });
        host.owner.api.post(&format!("{path}/shares"), &share).await.expect(201);
        assert_eq!(host.machine.patch(&path, &key(2)).await.expect(200)["rekeyNeeded"], true);
        assert_eq!(host.machine.patch(&path, &key(3)).await.expect(200)["rekeyNeeded"], true, "it stays set");
        assert_eq!(host.owner.api.patch(&path, &key(4)).await.expect(200)["rekeyNeeded"], false);
        // A guest's machine, and one that hosts another session, have nothing here.
        let other = Host::new(&fixture).await;
        assert_eq!(other.machine.patch(&path, &key(5)).await.status, 404);
    }

    async fn a_session_has_the_id_that_its_client_chose(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, other) = (fixture.client(), fixture.client());
        let id = SessionId::generate();
        let draft = |client: &Client| {
            let mut draft = client.draft();
            draft["id"] = json!(id);
            draft
        };
        let made = owner.api.post("/v1/sessions", &draft(&owner)).await.expect(201);
        assert_eq!(made["id"], json!(id));
        for client in [&owner, &other] {
            client.api.post("/v1/sessions", &draft(client)).await.problem(409, "CONFLICT");
        }
        let mut old = owner.draft();
        old["id"] = json!("01890a5d-ac96-474b-bcce-b302099a8057");
        assert_eq!(owner.api.post("/v1/sessions", &old).await.bad_fields(), ["/id"]);
    }

    async fn epochs_go_with_their_keys(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, guest) = (fixture.client(), fixture.client());
        let mut draft = owner.draft();
        draft["contentEpoch"] = json!(2);
        let made = owner.api.post("/v1/sessions", &draft).await.expect(201);
        assert_eq!(made["contentEpoch"], 2);
        let path = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
        let share = json!({ "userId": guest.id, "accessLevel": "view", "encryptedKey": "k", "contentEpoch": 5 });
        let shared = owner.api.post(&format!("{path}/shares"), &share).await.expect(201);
        assert_eq!(shared["contentEpoch"], 5);
        assert_eq!(guest.api.get(&path).await.expect(200)["contentEpoch"], 5, "that of the guest's key");
        let of_guest = format!("{path}/shares/{}", guest.id);
        let alone = owner.api.patch(&of_guest, &json!({ "accessLevel": "edit", "contentEpoch": 6 })).await;
        assert_eq!(alone.bad_fields(), ["/contentEpoch"]);
        assert_eq!(owner.api.patch(&of_guest, &json!({ "accessLevel": "edit" })).await.expect(200)["contentEpoch"], 5);
        let key = json!({ "encryptedKey": "k2", "contentEpoch": 6 });
        assert_eq!(owner.api.patch(&of_guest, &key).await.expect(200)["contentEpoch"], 6);
        let without = owner.api.patch(&of_guest, &json!({ "encryptedKey": "k3" })).await.expect(200);
        assert_eq!(without["contentEpoch"], Value::Null);
        assert_eq!(owner.api.patch(&path, &json!({ "archived": true, "contentEpoch": 3 })).await.bad_fields(), ["/contentEpoch"]);
        for bad in [json!(0), json!(-1), json!("1"), json!(1.5)] {
            draft["contentEpoch"] = bad;
            assert_eq!(owner.api.post("/v1/sessions", &draft).await.bad_fields(), ["/contentEpoch"]);
        }
    }
}
