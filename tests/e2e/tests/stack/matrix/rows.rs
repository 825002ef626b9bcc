//! The rows of the access matrix.

use serde_json::{Value, json};

use super::{Fixture, UNKNOWN_ID};

/// One route and the status for each caller.
pub(super) struct Row {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) body: fn(&Fixture) -> Value,
    /// In the order of [`CALLERS`]; 0 where any status but 401, 403 and 5xx is right.
    pub(super) answers: [u16; 10],
    /// Whether the call changes resources, so that each caller needs new ones.
    pub(super) changes: bool,
}

const fn row(method: &'static str, path: &'static str, answers: [u16; 10]) -> Row {
    Row { method, path, body: |_| Value::Null, answers, changes: false }
}

impl Row {
    const fn with(mut self, body: fn(&Fixture) -> Value) -> Self {
        self.body = body;
        self
    }

    const fn changing(mut self) -> Self {
        self.changes = true;
        self
    }
}

/// A route of a session that people have made: owner, admin, edit, view. A machine does not see it; session-store's own tests have the
/// rows of a session that a machine hosts.
const fn of_session(method: &'static str, path: &'static str, may: [u16; 4]) -> Row {
    row(method, path, [may[0], may[1], may[2], may[3], 404, 404, 401, 404, 401, 401])
}

/// A route that every user may call, and machines may not.
const fn of_user(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [status, status, status, status, status, status, 401, 403, 401, 401])
}

/// A route to a resource that only its owner can see.
const fn of_owner(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [status, 404, 404, 404, 404, 404, 401, 403, 401, 401])
}

/// A route for machine tokens.
const fn of_machine(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [403, 403, 403, 403, 403, 403, 401, status, 401, 401])
}

/// A route without authentication, which also ignores invalid credentials.
const fn of_anyone(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [status; 10])
}

/// A route for the voice key.
const fn of_voice(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [401, 401, 401, 401, 401, 401, 401, 401, status, 401])
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // identity
    of_anyone("POST", "/v1/auth/challenge", 200),
    of_anyone("POST", "/v1/auth", 401).with(|_| json!({ "publicKey": "A".repeat(43), "challenge": "x", "signature": "A".repeat(86), "origin": "http://x" })),
    of_user("GET", "/v1/account", 200),
    of_user("PATCH", "/v1/account", 200).with(|_| json!({ "displayName": "Someone" })),
    of_user("GET", "/v1/users/{id}", 200),
    of_user("POST", "/v1/auth/tokens", 201).with(|_| json!({ "machineId": "m" })),
    of_user("GET", "/v1/auth/tokens", 200),
    of_owner("DELETE", "/v1/auth/tokens/{id}", 200).changing(),
    of_anyone("GET", "/.well-known/jwks.json", 200),
    // No account here has a device list; identity/tests/api/device_access.rs has the rows of each role.
    of_user("GET", "/v1/devices", 200),
    of_user("POST", "/v1/devices", 400).with(|_| json!({})),
    of_user("GET", "/v1/devices/content-ring", 404),
    of_user("GET", "/v1/devices/push", 200),
    of_user("PATCH", "/v1/devices/{id}", 404).with(|_| json!({ "notify": [] })),
    row("GET", "/v1/users/{id}/devices", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    of_user("POST", "/v1/auth/links", 201),
    of_user("POST", "/v1/auth/links/{id}/refusal", 404),
    of_anyone("GET", "/v1/auth/links/{id}", 404),
    of_anyone("POST", "/v1/auth/links/{id}/request", 400).with(|_| json!({})),
    of_user("POST", "/v1/invites", 400).with(|_| json!({})),
    of_user("GET", "/v1/invites", 200),
    of_anyone("GET", "/v1/invites/{id}", 404),
    of_user("POST", "/v1/invites/{id}/claim", 400).with(|_| json!({})),
    of_user("POST", "/v1/invites/{id}/answer", 404).with(|_| json!({ "answer": "x" })),
    of_user("DELETE", "/v1/invites/{id}", 404),
    // machine-registry
    of_user("POST", "/v1/machines", 0).with(|_| json!({ "id": "another", "metadata": "x", "encryptionKey": "x" })),
    of_user("GET", "/v1/machines", 200),
    row("GET", "/v1/machines/{id}", [200, 404, 404, 404, 404, 404, 401, 200, 401, 401]),
    row("PATCH", "/v1/machines/{id}", [200, 404, 404, 404, 404, 404, 401, 200, 401, 401]).with(|_| json!({ "activity": {} })),
    of_owner("DELETE", "/v1/machines/{id}", 200).changing(),
    // session-store
    row("POST", "/v1/sessions", [201, 404, 404, 404, 404, 404, 401, 201, 401, 401]).with(|_| json!({ "machineId": "m", "metadata": "x", "encryptionKey": "x" })),
    row("GET", "/v1/sessions", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    row("GET", "/v2/sessions/active", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    of_session("GET", "/v1/sessions/{id}", [200, 200, 200, 200]),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 403, 403]).with(|_| json!({ "metadata": "new" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 403, 403]).with(|_| json!({ "agentState": "new" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 200, 403]).with(|_| json!({ "heartbeat": { "thinking": true } })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "archived": true })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "status": "ended" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "encryptionKey": "new", "expectedKeyEpoch": 1 })).changing(),
    of_session("DELETE", "/v1/sessions/{id}", [200, 403, 403, 403]).changing(),
    of_session("POST", "/v3/sessions/{id}/messages", [201, 201, 201, 403]).with(|_| json!({ "content": "x", "localId": "1" })),
    of_session("POST", "/v3/sessions/{id}/messages/batch", [201, 201, 201, 403]).with(|_| json!({ "messages": [{ "content": "x", "localId": "2" }] })),
    of_session("GET", "/v3/sessions/{id}/messages", [200, 200, 200, 200]),
    of_session("GET", "/v3/sessions/{id}/messages/stream", [200, 200, 200, 200]),
    of_session("POST", "/v3/sessions/{id}/messages/stream", [200, 200, 200, 200]),
    row("GET", "/v1/events", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    row("POST", "/v1/events", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    of_session("POST", "/v3/sessions/live", [403, 403, 403, 403]).with(|w| json!({ "frames": [{ "sessionId": w.session, "content": "x" }] })),
    // No machine hosts the session, and none reads.
    row("POST", "/v1/looks", [400, 400, 400, 403, 404, 404, 401, 403, 401, 401]).with(|w| json!({ "sessionId": w.session, "question": "x" })),
    row("POST", "/v1/looks", [409, 404, 404, 404, 404, 404, 401, 403, 401, 401]).with(|_| json!({ "machineId": "m", "question": "x" })),
    of_session("POST", "/v1/looks/{id}/answer", [404, 404, 404, 404]).with(|_| json!({ "answer": "x" })),
    of_session("GET", "/v1/sessions/{id}/shares", [200, 403, 403, 403]),
    of_session("POST", "/v1/sessions/{id}/shares", [0, 0, 403, 403]).with(|w| json!({ "userId": w.stranger.id, "accessLevel": "view", "encryptedKey": "x" })).changing(),
    of_session("POST", "/v1/sessions/{id}/shares", [0, 403, 403, 403]).with(|w| json!({ "userId": w.stranger.id, "accessLevel": "admin", "encryptedKey": "x" })).changing(),
    of_session("PATCH", "/v1/sessions/{id}/shares/{userId}", [200, 200, 403, 403]).with(|_| json!({ "accessLevel": "edit" })).changing(),
    of_session("PATCH", "/v1/sessions/{id}/shares/{userId}", [200, 403, 403, 403]).with(|_| json!({ "accessLevel": "admin" })).changing(),
    // {userId} is the viewer, who may leave.
    of_session("DELETE", "/v1/sessions/{id}/shares/{userId}", [200, 200, 403, 200]).changing(),
    of_session("GET", "/v1/sessions/{id}/public-share", [200, 200, 403, 403]),
    of_session("POST", "/v1/sessions/{id}/public-share", [0, 403, 403, 403]).with(|_| json!({})).changing(),
    of_session("DELETE", "/v1/sessions/{id}/public-share", [200, 403, 403, 403]).changing(),
    of_anyone("GET", "/v1/public-sessions/{token}", 200),
    of_anyone("GET", "/v1/public-sessions/{token}/stream", 0),
    of_anyone("POST", "/v1/public-sessions/{token}/stream", 0),
    // orchestrator
    of_user("POST", "/v1/orchestrator/runs", 201).with(|_| json!({ "tasks": [{ "prompt": "x", "provider": "claude", "dependsOn": [] }] })),
    of_user("GET", "/v1/orchestrator/runs", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}", 200),
    of_owner("POST", "/v1/orchestrator/runs/{id}/pend", 200).with(|_| json!({ "timeoutMs": 0 })),
    of_owner("GET", "/v1/orchestrator/runs/{id}/pend", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}/events", 200),
    of_owner("POST", "/v1/orchestrator/runs/{id}/events", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}/tasks/{taskId}/output", 200),
    of_owner("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/output", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}/tasks/{taskId}/diff", 200),
    // The task is not over.
    of_owner("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/apply", 409),
    of_owner("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/discard", 409),
    of_owner("POST", "/v1/orchestrator/runs/{id}/cancel", 200).changing(),
    of_owner("POST", "/v1/orchestrator/runs/{id}/retry", 409).changing(),
    // The run has not ended, nor has its task.
    of_owner("DELETE", "/v1/orchestrator/runs/{id}", 409),
    of_owner("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/messages", 409).with(|_| json!({ "text": "x", "messageId": "1" })),
    of_user("GET", "/v1/orchestrator/usage", 200),
    of_machine("POST", "/v1/orchestrator/leases", 200).with(|_| json!({ "machineId": "m", "providers": ["gemini"], "capacity": 1, "waitMs": 0 })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/heartbeat", 404).with(|_| json!({ "fence": 1 })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/output", 404).with(|_| json!({ "fence": 1, "offset": 0, "data": "x" })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/diff", 404).with(|_| json!({ "fence": 1, "data": "x" })),
    of_machine("POST", "/v1/orchestrator/orders/{id}/result", 404).with(|_| json!({ "outcome": "applied" })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/finish", 404).with(|_| json!({ "fence": 1, "status": "completed" })),
    // voice-gateway: there is no LiveKit in this stack
    of_user("GET", "/v1/voice/key", 200),
    of_voice("POST", "/v1/voice/session/start", 503).with(|w| json!({ "userId": w.owner.id, "sessionId": w.session })),
    of_voice("POST", "/v1/voice/session/stop", 200).with(|_| json!({ "gatewaySessionId": UNKNOWN_ID })),
    of_voice("GET", "/v1/voice/session/{gatewaySessionId}/status", 404),
    // The voice key alone is not enough for these.
    of_voice("POST", "/v1/voice/session/say", 401).with(|_| json!({ "gatewaySessionId": UNKNOWN_ID, "text": "x" })),
    of_voice("GET", "/v1/voice/session/{gatewaySessionId}/events", 401),
    of_voice("POST", "/v1/voice/session/{gatewaySessionId}/events", 401),
    of_voice("GET", "/v1/voice/session/{gatewaySessionId}/transcript", 401),
    of_voice("GET", "/v1/voice/sessions", 401),
    of_voice("POST", "/v1/voice/session/text", 404).with(|_| json!({ "gatewaySessionId": UNKNOWN_ID, "text": "x" })),
    of_voice("POST", "/v1/voice/session/context", 404).with(|_| json!({ "gatewaySessionId": UNKNOWN_ID, "payload": {} })),
    of_anyone("POST", "/hooks/livekit", 401),
    of_anyone("GET", "/agent/v1/sessions/{id}/context", 401),
    of_anyone("POST", "/agent/v1/sessions/{id}/events", 401).with(|_| json!({ "kind": "ready" })),
    of_anyone("GET", "/agent/v1/sessions/{id}/texts/{seq}", 401),
    of_anyone("GET", "/v1/voice/tools/runs.list", 401),
    of_anyone("GET", "/v1/voice/tools/runs.show", 401),
    of_anyone("GET", "/v1/voice/tools/sessions.list", 401),
    // edge-proxy
    of_anyone("GET", "/", 0),
    of_anyone("GET", "/openapi.json", 200),
    of_anyone("GET", "/openapi-3.0.json", 200),
    of_anyone("GET", "/docs", 0),
    of_anyone("GET", "/docs/", 200),
    of_anyone("GET", "/docs/{file}", 404),
    of_anyone("GET", "/v1/version", 200),
    of_anyone("GET", "/share/{token}", 200),
    of_anyone("GET", "/healthz", 200),
    of_anyone("GET", "/readyz", 200),
];
