//! A browser that is closed is notified of what a real agent asks, and of a run that fails.

use std::time::Duration;

use ensemble_testkit::push_service::{PushService, Subscriber};
use ensemble_testkit::{Api, eventually};
use serde_json::{Value, json};

use crate::ensemble::up;
use crate::live::{request, turns};
use crate::place::Place;

const SOON: Duration = Duration::from_secs(120);

/// The payload of each notification, when there are `count`.
async fn pushed(browser: &Subscriber, count: usize) -> Vec<Value> {
    eventually(SOON, async || browser.calls() >= count).await;
    browser.pushed().into_iter().map(|one| one.payload).collect()
}

#[test]
fn a_closed_browser_is_notified_of_what_the_agent_asks() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let push = runtime.block_on(PushService::start());
    let origin: &'static str = push.origin().to_owned().leak();
    let place = Place::with(&[("PUSH_TRUSTED_ORIGINS", origin), ("PUSH_AFTER_MS", "1")]);
    let user = &place.user;
    let (_up, url) = up(user, &[]);
    let api = Api::new(&url).with_token(user.succeed(&["token"]).trim());
    let browser = push.subscriber("browser");
    runtime.block_on(async {
        let devices = api.get("/v1/devices").await.expect(200);
        let own = devices["devices"].as_array().unwrap().iter().find(|device| device["current"] == true).unwrap();
        let body = json!({ "pushSubscription": browser.subscription() });
        api.patch(&format!("/v1/devices/{}", own["id"].as_str().unwrap()), &body).await.expect(200);
    });

    let session = place.start(&["claude", "[[run touch made]]"]);
    let given = runtime.block_on(pushed(&browser, 1));
    let attention = given[0]["attention"].as_str().unwrap();
    let named = given[0]["sessionId"].as_str().unwrap();
    assert_eq!(given[0], json!({ "kind": "permission", "sessionId": named, "attention": attention }));
    // The notification leads to the request.
    let asked = request(user, named);
    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    turns(user, &session, 1);
    assert!(place.file("made").exists());
    user.succeed(&["stop", &session]);

    // A run that fails.
    let task = json!({ "provider": "claude", "prompt": "x", "workingDirectory": "/no/such/directory" });
    let given = runtime.block_on(async {
        api.post("/v1/orchestrator/runs", &json!({ "tasks": [task] })).await.expect(201);
        pushed(&browser, 2).await
    });
    let failed = given.iter().find(|one| one["kind"] == "failed").unwrap_or_else(|| panic!("{given:?}"));
    assert!(failed["runId"].is_string(), "{failed}");
}
