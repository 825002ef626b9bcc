//! Examples of answers, for the document of the interface. What a page or a larger answer has in it is the example of that.

use serde_json::{Value, json};

const AT: &str = "2026-03-26T00:00:00.000Z";
pub(crate) const LATER: &str = "2026-03-26T01:00:00.000Z";
const SESSION: &str = "01932b5e-7b1a-7c3e-8f00-000000000001";
const USER: &str = "01932b5e-7b1a-7c3e-8f00-000000000002";
const GUEST: &str = "01932b5e-7b1a-7c3e-8f00-000000000004";
const RUN: &str = "01932b5e-7b1a-7c3e-8f00-000000000005";
const TASK: &str = "01932b5e-7b1a-7c3e-8f00-000000000006";
const OTHER: &str = "01932b5e-7b1a-7c3e-8f00-000000000007";
const SEALED: &str = "AQAAAAFzZWFsZWQ";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const SIGNATURE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0-Pw";
const JWT: &str = "eyJhbGciOiJFZERTQSJ9.e30.c2ln";

pub(crate) fn message() -> Value {
    json!({
        "id": "01932b5e-7b1a-7c3e-8f00-000000000003", "seq": 1, "localId": "c0ffee", "content": SEALED, "senderId": USER,
        "keyEpoch": 1, "createdAt": AT,
    })
}

pub(crate) fn message_page() -> Value {
    json!({ "messages": [message()], "hasMore": false, "nextBefore": null, "nextAfter": 1, "lastSeq": 1 })
}

pub(crate) fn session() -> Value {
    json!({
        "id": SESSION, "ref": "7g3k9m2p", "ownerId": USER, "machineId": "laptop", "hosted": false, "metadata": SEALED,
        "metadataVersion": 1, "encryptionKey": SEALED, "agentState": null, "agentStateVersion": 0, "status": "active",
        "archived": false, "online": true, "thinking": false, "lastActiveAt": AT, "lastSeq": 1,
        "accessLevel": "owner", "contentEpoch": 1, "keyEpoch": 1, "rekeyNeeded": false, "createdAt": AT, "updatedAt": AT,
    })
}

pub(crate) fn share() -> Value {
    json!({
        "sessionId": SESSION, "userId": GUEST, "accessLevel": "view", "encryptedKey": SEALED, "contentEpoch": 1,
        "listVersion": 2, "sharedBy": USER, "createdAt": AT, "updatedAt": AT,
    })
}

pub(crate) fn link() -> Value {
    json!({
        "token": KEY, "url": format!("https://ensemble.example.com/share/{KEY}"), "expiresAt": LATER, "maxUses": 10,
        "uses": 0, "createdAt": AT,
    })
}

pub(crate) fn link_state() -> Value {
    json!({ "expiresAt": LATER, "maxUses": 10, "uses": 1, "createdAt": AT, "keyEpoch": 1 })
}

pub(crate) fn public_view() -> Value {
    json!({
        "session": {
            "id": SESSION, "metadata": SEALED, "metadataVersion": 1, "status": "active", "lastSeq": 1, "createdAt": AT,
            "updatedAt": AT,
        },
        "accessLevel": "view", "encryptedKey": SEALED,
        "messages": [{
            "id": "01932b5e-7b1a-7c3e-8f00-000000000003", "seq": 1, "content": SEALED, "keyEpoch": 1, "createdAt": AT,
        }],
        "hasMore": false, "nextBefore": null, "nextAfter": 1, "expiresAt": LATER, "remainingUses": 9, "viewToken": KEY,
    })
}

pub(crate) fn machine() -> Value {
    json!({
        "id": "laptop", "ref": "2m4n6p8q", "metadata": SEALED, "metadataVersion": 1, "encryptionKey": SEALED,
        "contentEpoch": 1, "daemonState": null, "daemonStateVersion": 0, "activity": { "load": 0.2 }, "seen": seen_list(), "online": true,
        "lastActiveAt": AT, "createdAt": AT, "updatedAt": AT,
    })
}

pub(crate) fn seen_list() -> Value {
    json!({ "version": 3, "digest": KEY, "sig": SIGNATURE })
}

pub(crate) fn account() -> Value {
    json!({ "id": USER, "publicKey": KEY, "displayName": "Ada", "createdAt": AT })
}

pub(crate) fn public_user() -> Value {
    json!({ "id": GUEST, "publicKey": KEY, "displayName": "Grace" })
}

pub(crate) fn machine_token() -> Value {
    json!({ "id": OTHER, "machineId": "laptop", "createdAt": AT, "expiresAt": LATER })
}

pub(crate) fn created_machine_token() -> Value {
    json!({ "id": OTHER, "machineId": "laptop", "token": JWT, "expiresAt": LATER })
}

pub(crate) fn jwks() -> Value {
    json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "2026-03", "x": KEY }] })
}

pub(crate) fn signed_list() -> Value {
    let entry = format!(r#"{{"key":"{KEY}","boxKey":"{KEY}","role":"primary"}}"#);
    let body = format!(
        r#"{{"account":"{KEY}","version":1,"prev":null,"created":"{AT}","contentEpoch":1,"contentPublicKey":"{KEY}","devices":[{entry}]}}"#
    );
    json!({ "body": body, "signer": KEY, "signature": SIGNATURE })
}

pub(crate) fn device() -> Value {
    json!({
        "id": OTHER, "publicKey": KEY, "boxKey": KEY, "role": "primary", "kind": "cli", "name": "laptop",
        "nameSalt": "AAECAwQFBgcICQoLDA0ODw", "current": true,
        "createdAt": AT, "lastSeenAt": AT,
    })
}

pub(crate) fn content_ring() -> Value {
    json!({ "version": 1, "contentEpoch": 1, "sealed": SEALED })
}

pub(crate) fn created_device_link() -> Value {
    json!({ "id": "AAECAwQFBgcICQoLDA0ODw", "expiresAt": LATER })
}

pub(crate) fn run() -> Value {
    json!({
        "id": RUN, "ref": "4d6f8h2j", "title": "Tidy up", "status": "running", "maxConcurrency": 4, "spread": false,
        "machineId": "laptop", "version": 3,
        "summary": { "total": 1, "queued": 0, "running": 1, "completed": 0, "failed": 0, "cancelled": 0 },
        "createdAt": AT, "startedAt": AT, "updatedAt": AT,
    })
}

pub(crate) fn whole_run() -> Value {
    let mut whole = run();
    if let Value::Object(whole) = &mut whole {
        whole.insert("tasks".to_owned(), json!([task()]));
    }
    whole
}

pub(crate) fn task() -> Value {
    json!({
        "id": TASK, "ref": "9s3t5v7w", "taskKey": "fix", "provider": "claude", "prompt": "Fix the failing test.",
        "workingDirectory": "/home/ada/project", "dependsOn": [], "status": "running", "attempt": 1, "machineId": "laptop",
        "createdAt": AT, "startedAt": AT,
    })
}

pub(crate) fn pended() -> Value {
    json!({
        "id": RUN, "ref": "4d6f8h2j", "status": "running", "terminal": false, "changed": true, "cursor": "Mw", "run": run(),
        "changedTasks": [{ "id": TASK, "ref": "9s3t5v7w", "status": "running", "attempt": 1, "machineId": "laptop" }],
    })
}

pub(crate) fn usage() -> Value {
    let sum = json!({ "attempts": 2, "inputTokens": 12_000, "outputTokens": 900, "costUsd": 0.06 });
    let mut item = sum.clone();
    if let Value::Object(item) = &mut item {
        item.insert("provider".to_owned(), json!("claude"));
    }
    json!({ "from": AT, "to": "2026-03-27T00:00:00.000Z", "by": "provider", "items": [item], "total": sum })
}

pub(crate) fn leases() -> Value {
    json!({
        "leases": [{
            "id": OTHER, "fence": 1, "runId": RUN, "taskId": TASK, "attempt": 1, "provider": "claude",
            "prompt": "Fix the failing test.", "workingDirectory": "/home/ada/project", "timeoutMs": 3_600_000,
            "expiresAt": LATER,
        }],
        "orders": [],
    })
}

pub(crate) fn voice_start() -> Value {
    json!({
        "allowed": true, "gatewaySessionId": OTHER, "roomName": format!("voice-{OTHER}"),
        "roomUrl": "wss://voice.example.com", "participantIdentity": format!("user-{USER}"), "agentIdentity": "agent",
        "participantToken": JWT, "expiresAt": LATER,
    })
}

pub(crate) fn voice_status() -> Value {
    json!({
        "found": true, "gatewaySessionId": OTHER, "sessionId": SESSION, "userId": USER, "roomName": format!("voice-{OTHER}"),
        "state": "active", "live": true, "agent": { "name": "ensemble", "joined": true, "ready": true },
        "participants": [{ "identity": format!("user-{USER}"), "kind": "human", "state": "active", "joinedAt": AT }],
        "pending": { "texts": 0, "contextVersion": 1, "deliveredContextVersion": 1 },
        "createdAt": AT, "activeAt": AT, "expiresAt": LATER, "durationSeconds": 60,
    })
}

pub(crate) fn voice_transcript() -> Value {
    json!({
        "utterances": [{ "seq": 1, "role": "user", "text": "How do the tests stand?", "cut": false, "at": AT }],
        "more": false, "toolCalls": [{ "seq": 1, "name": "list_runs", "at": AT }],
    })
}

pub(crate) fn voice_tool_run() -> Value {
    json!({
        "id": RUN, "ref": "4d6f8h2j", "title": "Tidy up", "status": "running",
        "summary": { "total": 1, "queued": 0, "running": 1, "completed": 0, "failed": 0, "cancelled": 0 }, "createdAt": AT,
    })
}

pub(crate) fn voice_tool_run_detail() -> Value {
    json!({
        "run": voice_tool_run(),
        "tasks": [{
            "ref": "9s3t5v7w", "taskKey": "fix", "status": "running", "provider": "claude", "attempt": 1, "sealed": false,
        }],
        "more": false,
    })
}

pub(crate) fn voice_tool_sessions() -> Value {
    json!({
        "sessions": [{
            "id": SESSION, "ref": "7g3k9m2p", "machineId": "laptop", "status": "active", "archived": false, "online": true,
            "thinking": false, "attention": "none", "open": 0, "updatedAt": AT,
        }],
        "more": false,
    })
}
