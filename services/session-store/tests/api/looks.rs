//! Looks: a question reaches one machine once, and its answer the asker, and nothing keeps them.

use std::time::{Duration, Instant};

use ensemble_testkit::{Answer, Api, Backend, Events, SOON, eventually, in_time, on_both_databases, run};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, NO_SWEEP};

const LOOKS: &str = "/v1/looks";
/// Longer than any of these tests.
const PATIENT: (&str, &str) = ("LOOK_WAIT_MS", "60000");
const IMPATIENT: (&str, &str) = ("LOOK_WAIT_MS", "2000");

/// A machine that hosts a session of its owner, and reads what it is asked.
struct Host {
    owner: Client,
    machine: Api,
    session: String,
    asked: Events,
}

impl Host {
    async fn new(fixture: &Fixture) -> Self {
        let owner = fixture.client();
        let token = fixture.peers.issuer().machine(owner.id, &owner.machine);
        let machine = fixture.anonymous().with_token(&token);
        let made = machine.post("/v1/sessions", &owner.draft()).await.expect(201);
        let asked = follow(&machine).await;
        Self { session: made["id"].as_str().unwrap().to_owned(), owner, machine, asked }
    }

    fn in_session(&self, question: &str) -> Value {
        json!({ "sessionId": self.session, "question": question })
    }

    fn at_machine(&self, question: &str) -> Value {
        json!({ "machineId": self.owner.machine, "question": question })
    }

    /// Answers the next question, which is this one.
    async fn answers(&mut self, question: &str, answer: &str) -> Value {
        let asked = next(&mut self.asked).await;
        assert_eq!(asked["question"], question);
        self.machine.post(&answer_of(&asked), &json!({ "answer": answer })).await.expect(200);
        asked
    }
}

async fn follow(api: &Api) -> Events {
    let events = Events::open(api.request("GET", "/v1/events")).await;
    assert_eq!(events.status, 200);
    events
}

/// The next question. Hints are left out.
async fn next(events: &mut Events) -> Value {
    loop {
        let event = events.expect().await;
        if event.name == "look" {
            assert_eq!(event.id, None);
            return serde_json::from_str(&event.data).unwrap();
        }
    }
}

async fn is_quiet(events: &mut Events) -> bool {
    loop {
        match events.next_within(Duration::from_millis(300)).await {
            Ok(Some(event)) if event.name == "hint" => {}
            next => return next.is_err(),
        }
    }
}

fn answer_of(asked: &Value) -> String {
    format!("{LOOKS}/{}/answer", asked["id"].as_str().unwrap())
}

/// Asks in the background.
fn ask(api: &Api, body: &Value) -> tokio::task::JoinHandle<Answer> {
    let (api, body) = (api.clone(), body.clone());
    tokio::spawn(async move { api.post(LOOKS, &body).await })
}

on_both_databases! {
    async fn an_answer_reaches_who_has_asked(on: Backend) {
        in_time(Duration::from_secs(30), async || {
            let fixture = Fixture::start_with(on, &[PATIENT]).await;
            let mut host = Host::new(&fixture).await;
            let mut others = Host::new(&fixture).await;
            let guest = fixture.guest(&host.owner, &host.session, "edit").await;
            let admin = fixture.guest(&host.owner, &host.session, "admin").await;
            for api in [&host.owner.api, &guest.api, &admin.api].map(Api::clone) {
                let answer = ask(&api, &host.in_session("where"));
                let asked = host.answers("where", "here").await;
                assert_eq!(asked["sessionId"], json!(host.session));
                assert_eq!(answer.await.unwrap().expect(200), json!({ "answer": "here" }));
                // Again, and too late.
                host.machine.post(&answer_of(&asked), &json!({ "answer": "there" })).await.problem(404, "NOT_FOUND");
            }
            let answer = ask(&host.owner.api, &host.at_machine("where"));
            let asked = host.answers("where", "here").await;
            assert!(asked.get("sessionId").is_none());
            answer.await.unwrap().expect(200);
            // At their largest.
            let (question, long) = ("q".repeat(16_384), "a".repeat(1 << 20));
            let answer = ask(&host.owner.api, &host.in_session(&question));
            host.answers(&question, &long).await;
            assert_eq!(answer.await.unwrap().expect(200)["answer"], long);
            assert!(is_quiet(&mut others.asked).await && is_quiet(&mut host.asked).await);
        })
        .await;
    }

    async fn a_question_comes_once_and_is_never_merged(on: Backend) {
        in_time(Duration::from_secs(30), async || {
            let fixture = Fixture::start_with(on, &[PATIENT]).await;
            let mut host = Host::new(&fixture).await;
            // As after a connection that has died: the newest stream is the one that is read.
            let mut old = std::mem::replace(&mut host.asked, follow(&host.machine).await);
            let answers = ["same"; 3].map(|question| ask(&host.owner.api, &host.in_session(question)));
            let mut ids = Vec::new();
            for _ in 0..3 {
                ids.push(host.answers("same", "yes").await["id"].clone());
            }
            ids.dedup();
            assert_eq!(ids.len(), 3);
            for answer in answers {
                answer.await.unwrap().expect(200);
            }
            assert!(is_quiet(&mut old).await && is_quiet(&mut host.asked).await);
        })
        .await;
    }

    async fn only_who_may_write_in_a_hosted_session_asks_its_machine(on: Backend) {
        let fixture = Fixture::start(on).await;
        let mut host = Host::new(&fixture).await;
        let (owner, stranger) = (&host.owner, fixture.client());
        let viewer = fixture.guest(owner, &host.session, "view").await;
        let (in_session, at_machine) = (host.in_session("q"), host.at_machine("q"));
        viewer.api.post(LOOKS, &in_session).await.problem(403, "FORBIDDEN");
        stranger.api.post(LOOKS, &in_session).await.problem(404, "NOT_FOUND");
        host.machine.post(LOOKS, &in_session).await.problem(403, "FORBIDDEN");
        host.machine.post(LOOKS, &at_machine).await.problem(403, "FORBIDDEN");
        for other in [&viewer, &stranger] {
            other.api.post(LOOKS, &at_machine).await.problem(404, "MACHINE_NOT_FOUND");
        }
        fixture.anonymous().post(LOOKS, &in_session).await.problem(401, "UNAUTHENTICATED");
        let by_people = json!({ "sessionId": owner.session().await, "question": "q" });
        for (body, pointer) in [
            (by_people, "/sessionId"),
            (json!({ "question": "q" }), "/sessionId"),
            (json!({ "sessionId": host.session, "machineId": owner.machine, "question": "q" }), "/sessionId"),
            (host.in_session(""), "/question"),
            (host.in_session(&"q".repeat(16_385)), "/question"),
            (json!({ "sessionId": host.session, "question": "q", "wait": 1 }), "/wait"),
        ] {
            assert_eq!(owner.api.post(LOOKS, &body).await.bad_fields(), [pointer]);
        }
        owner.api.post(LOOKS, &host.in_session(&"q".repeat(200_000))).await.problem(413, "PAYLOAD_TOO_LARGE");
        assert!(is_quiet(&mut host.asked).await);
    }

    async fn only_the_machine_that_was_asked_answers(on: Backend) {
        in_time(Duration::from_secs(30), async || {
            let fixture = Fixture::start_with(on, &[PATIENT]).await;
            let mut host = Host::new(&fixture).await;
            let viewer = fixture.guest(&host.owner, &host.session, "view").await;
            let elsewhere = fixture.peers.issuer().machine(host.owner.id, &fixture.peers.new_machine(host.owner.id));
            let elsewhere = fixture.anonymous().with_token(&elsewhere);
            // A machine of another account may have the same id.
            let stranger = fixture.client();
            let namesake = fixture.anonymous().with_token(&fixture.peers.issuer().machine(stranger.id, &host.owner.machine));
            let answer = ask(&host.owner.api, &host.in_session("q"));
            let asked = next(&mut host.asked).await;
            let (path, body) = (answer_of(&asked), json!({ "answer": "forged" }));
            for machine in [&elsewhere, &namesake] {
                machine.post(&path, &body).await.problem(404, "NOT_FOUND");
            }
            for person in [&host.owner, &viewer] {
                person.api.post(&path, &body).await.problem(403, "FORBIDDEN");
            }
            stranger.api.post(&path, &body).await.problem(404, "NOT_FOUND");
            fixture.anonymous().post(&path, &body).await.problem(401, "UNAUTHENTICATED");
            assert_eq!(host.machine.post(&path, &json!({ "answer": "a".repeat((1 << 20) + 1) })).await.bad_fields(), ["/answer"]);
            host.machine.post(&path, &json!({ "answer": "a".repeat(1_400_000) })).await.problem(413, "PAYLOAD_TOO_LARGE");
            assert_eq!(host.machine.post(&path, &json!({ "answer": "good" })).await.expect(200), json!({ "taken": true }));
            assert_eq!(answer.await.unwrap().expect(200)["answer"], "good");
            host.owner.api.post(&path, &body).await.problem(404, "NOT_FOUND");
        })
        .await;
    }

    async fn a_machine_that_does_not_answer_is_away(on: Backend) {
        in_time(Duration::from_secs(30), async || {
            let fixture = Fixture::start_with(on, &[IMPATIENT]).await;
            let mut host = Host::new(&fixture).await;
            let begun = Instant::now();
            let answer = ask(&host.owner.api, &host.in_session("q"));
            let asked = next(&mut host.asked).await;
            answer.await.unwrap().problem(409, "MACHINE_AWAY");
            assert!(begun.elapsed() >= Duration::from_secs(2), "it had its time");
            host.machine.post(&answer_of(&asked), &json!({ "answer": "late" })).await.problem(404, "NOT_FOUND");
            let silent = fixture.client();
            let body = json!({ "machineId": silent.machine, "question": "q" });
            silent.api.post(LOOKS, &body).await.problem(409, "MACHINE_AWAY");
            // A person who reads hints of the account is no machine.
            let mut events = follow(&silent.api).await;
            silent.api.post(LOOKS, &body).await.problem(409, "MACHINE_AWAY");
            // It was not kept for a stream that comes later.
            let token = fixture.peers.issuer().machine(silent.id, &silent.machine);
            let mut asked = follow(&fixture.anonymous().with_token(&token)).await;
            assert!(is_quiet(&mut events).await && is_quiet(&mut asked).await);
        })
        .await;
    }

    async fn an_account_has_eight_looks_at_once(on: Backend) {
        in_time(Duration::from_secs(30), async || {
            let fixture = Fixture::start_with(on, &[PATIENT]).await;
            let mut host = Host::new(&fixture).await;
            let guest = fixture.guest(&host.owner, &host.session, "edit").await;
            let waiting: Vec<_> = (0..8).map(|_| ask(&host.owner.api, &host.in_session("q"))).collect();
            let mut asked = Vec::new();
            for _ in 0..8 {
                asked.push(next(&mut host.asked).await);
            }
            host.owner.api.post(LOOKS, &host.in_session("ninth")).await.problem(503, "UNAVAILABLE");
            let of_guest = ask(&guest.api, &host.in_session("of a guest"));
            host.answers("of a guest", "a").await;
            of_guest.await.unwrap().expect(200);
            for asked in &asked {
                host.machine.post(&answer_of(asked), &json!({ "answer": "a" })).await.expect(200);
            }
            for answer in waiting {
                answer.await.unwrap().expect(200);
            }
        })
        .await;
    }
}

#[test]
fn question_and_answer_pass_through_any_replica_and_leave_nothing() {
    run(async {
        let fixture = Fixture::start_with(Backend::Postgres, &[NO_SWEEP[0], PATIENT]).await;
        let there = fixture.replica_with(&[NO_SWEEP[0], PATIENT]).await;
        let elsewhere = fixture.replica_with(&[NO_SWEEP[0], PATIENT]).await;
        let mut host = Host::new(&fixture).await;
        host.asked = follow(&host.machine.at(&there.public_url())).await;
        let machine = host.machine.at(&elsewhere.public_url());
        // A replica may have to connect before it is notified.
        eventually(SOON, async || {
            let answer = ask(&host.owner.api, &host.in_session("a canary"));
            let Ok(asked) = tokio::time::timeout(Duration::from_secs(1), next(&mut host.asked)).await else {
                return false;
            };
            machine.post(&answer_of(&asked), &json!({ "answer": "another canary" })).await.expect(200);
            answer.await.unwrap().expect(200)["answer"] == "another canary"
        })
        .await;
        let unlogged = "SELECT count(*) FROM pg_class WHERE relname = 'looks' AND relpersistence = 'u'";
        assert_eq!(fixture.number(unlogged).await, 1);
        eventually(SOON, async || fixture.number("SELECT count(*) FROM looks").await == 0).await;
    });
}

#[test]
fn what_an_asker_has_left_behind_is_removed() {
    run(async {
        let fixture = Fixture::start_with(Backend::Postgres, &[IMPATIENT]).await;
        let mut host = Host::new(&fixture).await;
        // As a replica leaves it that has stopped.
        fixture
            .execute(&format!(
                "INSERT INTO looks (id, owner_id, machine_id, question, asked_at) VALUES \
                 ('01890a5d-ac96-774b-bcce-b302099a8057', '{}', '{}', 'left', now() - interval '20 seconds')",
                host.owner.id, host.owner.machine
            ))
            .await;
        eventually(Duration::from_secs(10), async || fixture.number("SELECT count(*) FROM looks").await == 0).await;
        assert!(is_quiet(&mut host.asked).await, "it was too old to be sent");
    });
}

#[test]
fn an_answer_for_which_no_one_waits_is_removed() {
    run(async {
        let fixture = Fixture::start_with(Backend::Postgres, &[NO_SWEEP[0], PATIENT]).await;
        let mut host = Host::new(&fixture).await;
        let gone = ask(&host.owner.api, &host.in_session("q"));
        let asked = next(&mut host.asked).await;
        gone.abort();
        host.machine.post(&answer_of(&asked), &json!({ "answer": "a" })).await.expect(200);
        eventually(SOON, async || fixture.number("SELECT count(*) FROM looks").await == 0).await;
    });
}
