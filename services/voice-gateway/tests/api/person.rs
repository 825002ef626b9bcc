//! A signed-in person with the voice key, and the agent of their session.

use ensemble_testkit::{Answer, Api, Events};
use ensemble_types::ids::UserId;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Started, VOICE_KEY};

pub(crate) struct Person<'a> {
    pub(crate) fixture: &'a Fixture,
    api: Api,
    pub(crate) id: UserId,
}

impl<'a> Person<'a> {
    pub(crate) fn new(fixture: &'a Fixture) -> Self {
        let id = fixture.peers.new_user();
        let api = Api::new(&fixture.gateway.public_url()).with_token(&fixture.peers.issuer().user(id));
        Self { fixture, api, id }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let ask = async || Api::send(self.api.request("GET", path).header("x-voice-key", VOICE_KEY)).await;
        self.fixture.retry(ask).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.fixture.as_user(self.id, path, body).await
    }

    pub(crate) async fn start(&self, session: &str) -> Started {
        let body = json!({ "userId": self.id, "sessionId": session });
        Started::of(&self.post("/v1/voice/session/start", &body).await)
    }

    pub(crate) async fn talk(&self, session: &str) -> Started {
        let started = self.start(session).await;
        self.fixture.double.join(&started.token).unwrap();
        self.fixture.status_becomes(&started.id, |status| status["state"] == "active").await;
        started
    }

    /// The stream of a session, after the event with this id.
    pub(crate) async fn events(&self, started: &Started, last: Option<&str>) -> Events {
        self.events_with(&self.fixture.peers.issuer().user(self.id), started, last).await
    }

    pub(crate) async fn events_with(&self, token: &str, started: &Started, last: Option<&str>) -> Events {
        let path = format!("/v1/voice/session/{}/events", started.id);
        let request = self.api.with_token(token).request("GET", &path).header("x-voice-key", VOICE_KEY);
        Events::open(match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        })
        .await
    }
}

/// What the dispatch of the session's agent says.
pub(crate) fn metadata(fixture: &Fixture, started: &Started) -> Value {
    serde_json::from_str(&fixture.double.dispatch_metadata(&started.room).unwrap()).unwrap()
}

/// Reports as the session's agent does.
pub(crate) async fn report(fixture: &Fixture, started: &Started, event: &Value) -> Answer {
    let metadata = metadata(fixture, started);
    let agent = fixture.api.with_token(metadata["gateway"]["token"].as_str().unwrap());
    let path = format!("/agent/v1/sessions/{}/events", started.id);
    fixture.retry(async || agent.post(&path, event).await).await
}

/// Reports an utterance.
pub(crate) async fn said(fixture: &Fixture, started: &Started, role: &str, text: &str, id: &str) {
    let event = json!({ "type": "transcript", "role": role, "text": text, "id": id });
    report(fixture, started, &event).await.expect(200);
}
