//! What an account can store, and the answers when that is used up.

use ensemble_testkit::{Answer, Backend, SOON, eventually, on_both_databases};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, batch, messages};

/// What a message counts in addition to its content.
const ROW: i64 = 256;

async fn send(client: &Client, session: &str, local_id: &str, length: usize) -> Answer {
    client.api.post(&messages(session), &json!({ "content": "x".repeat(length), "localId": local_id })).await
}

/// How many of twenty simultaneous requests stored something, and how many were refused because of a quota.
async fn together(request: impl AsyncFn() -> u16) -> (usize, usize) {
    let statuses = join_all((0..20).map(|_| request())).await;
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    (count(201), count(429))
}

/// The members of a refusal.
fn members(answer: &Answer) -> (Value, Value, Value) {
    let problem = answer.problem(429, "QUOTA_EXCEEDED");
    assert!(answer.header("retry-after").is_none(), "waiting does not help");
    (problem["quota"].clone(), problem["limit"].clone(), problem["used"].clone())
}

on_both_databases! {
    async fn a_session_that_is_over_is_kept_for_as_long_as_the_operator_says(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let (ended, archived, live) = (owner.session().await, owner.session().await, owner.session().await);
        owner.fill(&ended, 3).await;
        let path = |id: &str| format!("/v1/sessions/{id}");
        owner.api.patch(&path(&ended), &json!({ "status": "ended" })).await.expect(200);
        owner.api.patch(&path(&archived), &json!({ "archived": true })).await.expect(200);
        let before = match on {
            Backend::Postgres => "updated_at - interval '8 days'",
            Backend::Sqlite => "updated_at - 691200000000",
        };
        fixture.execute(&format!("UPDATE sessions SET updated_at = {before}")).await;
        let recent = owner.session().await;
        owner.api.patch(&path(&recent), &json!({ "status": "ended" })).await.expect(200);
        // By default everything is kept.
        let fixture = fixture.restart("SELECT 1", &[]).await;
        let api = owner.api.at(&fixture.service.public_url());
        api.get(&path(&ended)).await.expect(200);
        let fixture = fixture.restart("SELECT 1", &[("SESSION_RETENTION_DAYS", "7")]).await;
        let api = owner.api.at(&fixture.service.public_url());
        for gone in [&ended, &archived] {
            eventually(SOON, async || api.get(&path(gone)).await.status == 404).await;
        }
        let rows = async |table: &str| fixture.number(&format!("SELECT count(*) FROM {table}")).await;
        eventually(SOON, async || rows("sessions").await == 2 && rows("messages").await == 0).await;
        for kept in [&live, &recent] {
            api.get(&path(kept)).await.expect(200);
        }
    }

    async fn an_account_has_a_limit_of_sessions(on: Backend) {
        let fixture = Fixture::start_with(on, &[("QUOTA_SESSIONS", "2")]).await;
        let (owner, other) = (fixture.client(), fixture.client());
        let mut tagged = owner.draft();
        tagged["tag"] = json!("first");
        let first = owner.api.post("/v1/sessions", &tagged).await.expect(201);
        let second = owner.session().await;
        let path = format!("/v1/sessions/{second}");
        owner.api.patch(&path, &json!({ "status": "ended", "archived": true })).await.expect(200);
        let refused = owner.api.post("/v1/sessions", &owner.draft()).await;
        assert_eq!(members(&refused), (json!("sessions"), json!(2), json!(2)));
        assert_eq!(owner.api.post("/v1/sessions", &tagged).await.expect(200)["id"], first["id"], "the tag has its session");
        other.session().await;
        owner.api.delete(&path).await.expect(200);
        owner.session().await;
        members(&owner.api.post("/v1/sessions", &owner.draft()).await);
    }

    async fn sessions_that_are_created_together_stay_within_the_quota(on: Backend) {
        let fixture = Fixture::start_with(on, &[("QUOTA_SESSIONS", "3")]).await;
        let owner = fixture.client();
        for _ in 0..3 {
            let draft = owner.draft();
            let statuses = together(async || owner.api.post("/v1/sessions", &draft).await.status).await;
            assert_eq!(statuses, (3, 17), "stored and refused");
            assert_eq!(fixture.number("SELECT count(*) FROM sessions WHERE deleted_at IS NULL").await, 3);
            for session in owner.api.get("/v1/sessions").await.expect(200)["sessions"].as_array().unwrap() {
                owner.api.delete(&format!("/v1/sessions/{}", session["id"].as_str().unwrap())).await.expect(200);
            }
        }
    }

    async fn messages_that_are_sent_together_stay_within_the_quota(on: Backend) {
        let quota = (3 * (ROW + 100)).to_string();
        let fixture = Fixture::start_with(on, &[("QUOTA_MESSAGE_BYTES", &quota)]).await;
        let owner = fixture.client();
        let sessions = [owner.session().await, owner.session().await];
        let next = std::sync::atomic::AtomicUsize::new(0);
        let statuses = together(async || {
            let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            send(&owner, &sessions[n % 2], &format!("m{n}"), 100).await.status
        });
        assert_eq!(statuses.await, (3, 17), "stored and refused");
        assert_eq!(fixture.number("SELECT count(*) FROM messages").await, 3);
    }

    async fn a_refused_session_spends_no_idempotency_key(on: Backend) {
        let fixture = Fixture::start_with(on, &[("QUOTA_SESSIONS", "1")]).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let (key, draft) = ("0123456789abcdef", owner.draft());
        members(&owner.api.post_keyed("/v1/sessions", key, &draft).await);
        owner.api.delete(&format!("/v1/sessions/{id}")).await.expect(200);
        let made = owner.api.post_keyed("/v1/sessions", key, &draft).await.expect(201);
        assert_eq!(owner.api.post_keyed("/v1/sessions", key, &draft).await.expect(200)["id"], made["id"]);
    }

    async fn messages_count_for_the_owner_in_all_sessions(on: Backend) {
        let fixture = Fixture::start_with(on, &[("QUOTA_MESSAGE_BYTES", "2000")]).await;
        let (owner, other) = (fixture.client(), fixture.client());
        let (one, two) = (owner.session().await, owner.session().await);
        let guest = fixture.guest(&owner, &one, "edit").await;
        send(&owner, &one, "a", 600).await.expect(201);
        send(&guest, &one, "b", 400).await.expect(201);
        let used = 600 + 400 + 2 * ROW;
        let refused = send(&owner, &two, "c", 500).await;
        assert_eq!(members(&refused), (json!("messageBytes"), json!(2000), json!(used)));
        members(&send(&guest, &one, "c", 500).await);
        assert_eq!(owner.history(&two).await.len(), 0, "nothing of a refused call is stored");
        // What the guest owns has a quota of its own, and so has everyone else.
        let of_guest = guest.session().await;
        send(&guest, &of_guest, "c", 1_700).await.expect(201);
        let of_other = other.session().await;
        send(&other, &of_other, "c", 1_700).await.expect(201);
        // Exactly as much as is left.
        send(&owner, &two, "d", (2_000 - used - ROW).try_into().unwrap()).await.expect(201);
        members(&send(&owner, &two, "e", 1).await);
        owner.api.delete(&format!("/v1/sessions/{one}")).await.expect(200);
        send(&owner, &two, "e", 500).await.expect(201);
    }

    async fn a_batch_is_stored_whole_or_not_at_all(on: Backend) {
        let fixture = Fixture::start_with(on, &[("QUOTA_MESSAGE_BYTES", "1000")]).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let drafts = |names: &[&str]| -> Value {
            names.iter().map(|name| json!({ "content": "x".repeat(100), "localId": name })).collect()
        };
        let three = json!({ "messages": drafts(&["a", "b", "c"]) });
        members(&owner.api.post(&batch(&id), &three).await);
        assert_eq!(owner.history(&id).await.len(), 0);
        owner.api.post(&batch(&id), &json!({ "messages": drafts(&["a", "b"]) })).await.expect(201);
        // 712 are used. One more message does not fit into the rest together with its row.
        members(&owner.api.post(&batch(&id), &three).await);
        let repeated = owner.api.post(&batch(&id), &json!({ "messages": drafts(&["b", "a", "b"]) })).await.expect(200);
        assert_eq!(repeated["messages"][0]["seq"], 2);
    }

    async fn a_repeated_local_id_is_answered_when_the_quota_is_used_up(on: Backend) {
        let fixture = Fixture::start_with(on, &[("QUOTA_MESSAGE_BYTES", "300")]).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let stored = send(&owner, &id, "a", 40).await.expect(201);
        members(&send(&owner, &id, "b", 40).await);
        assert_eq!(send(&owner, &id, "a", 40).await.expect(200)["id"], stored["id"]);
        // Also when the quota was made smaller, so that more is stored than may be.
        let fixture = fixture.restart("", &[("QUOTA_MESSAGE_BYTES", "100")]).await;
        let owner = Client { api: owner.api.at(&fixture.service.public_url()), ..owner };
        assert_eq!(send(&owner, &id, "a", 40).await.expect(200)["id"], stored["id"]);
        assert_eq!(members(&send(&owner, &id, "b", 1).await).2, json!(296));
    }

    async fn a_deletion_on_another_replica_is_seen(on: Backend) {
        // One process at a time can use a file of SQLite.
        if on == Backend::Sqlite {
            return;
        }
        let quota = [("QUOTA_MESSAGE_BYTES", "1000"), ("QUOTA_SESSIONS", "2")];
        let fixture = Fixture::start_with(on, &quota).await;
        let owner = fixture.client();
        let (one, two) = (owner.session().await, owner.session().await);
        send(&owner, &one, "a", 700).await.expect(201);
        members(&send(&owner, &two, "b", 700).await);
        members(&owner.api.post("/v1/sessions", &owner.draft()).await);
        let replica = fixture.replica_with(&quota).await;
        owner.api.at(&replica.public_url()).delete(&format!("/v1/sessions/{one}")).await.expect(200);
        eventually(SOON, async || send(&owner, &two, "b", 700).await.status == 201).await;
        eventually(SOON, async || owner.api.post("/v1/sessions", &owner.draft()).await.status == 201).await;
    }

    async fn zero_is_no_quota(on: Backend) {
        let fixture = Fixture::start_with(on, &[("QUOTA_MESSAGE_BYTES", "0"), ("QUOTA_SESSIONS", "0")]).await;
        let owner = fixture.client();
        let id = owner.session().await;
        send(&owner, &id, "a", 10_000).await.expect(201);
    }

    async fn the_counter_is_what_the_messages_hold(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let (one, two) = (owner.session().await, owner.session().await);
        owner.fill(&one, 450).await;
        owner.append(&two, "umlaut", "ä🦀").await;
        owner.append(&two, "second", "b").await;
        let counted = fixture.number("SELECT sum(content_bytes) FROM sessions").await;
        assert_eq!(counted, fixture.number("SELECT sum(octet_length(content)) FROM messages").await);
        assert_eq!(fixture.number("SELECT min(content_bytes) FROM sessions").await, 7);
    }

    async fn sessions_from_before_the_quotas_count(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let (one, two) = (owner.session().await, owner.session().await);
        owner.fill(&one, 300).await;
        owner.append(&two, "umlaut", "ä🦀").await;
        let empty = owner.session().await;
        let (sum, of_one) = ("SELECT sum(content_bytes) FROM sessions", "SELECT max(content_bytes) FROM sessions");
        let before = (fixture.number(sum).await, fixture.number(of_one).await);
        // Back to the schema without the column, and forward again.
        let undo = match on {
            Backend::Postgres => include_str!("../../migrations/postgres/2026-11-24-000000_content_bytes/down.sql"),
            Backend::Sqlite => include_str!("../../migrations/sqlite/2026-11-24-000000_content_bytes/down.sql"),
        };
        let undo = format!("{undo} DELETE FROM __diesel_schema_migrations WHERE version = '20261124000000';");
        let fixture = fixture.restart(&undo, &[("QUOTA_MESSAGE_BYTES", "1000")]).await;
        assert_eq!((fixture.number(sum).await, fixture.number(of_one).await), before);
        let owner = Client { api: owner.api.at(&fixture.service.public_url()), ..owner };
        let used = before.0 + 301 * ROW;
        assert_eq!(members(&send(&owner, &empty, "a", 1).await).2, json!(used));
    }
}
