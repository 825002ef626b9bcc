//! Signed messages of every type with fixed keys: this code makes and opens them, and so does WebCrypto.
//!
//! `WRITE_VECTORS=1 cargo test -p ensemble-protocol --all-features` writes them again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ed25519_dalek::SigningKey;
use ensemble_protocol::transcript::body::Writer;
use ensemble_protocol::transcript::{Envelope, Message, NotSigned, digest};
use ensemble_types::ids::{SessionId, UserId};
use serde::{Deserialize, Serialize};

use crate::samples;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors {
    session_id: SessionId,
    other_session_id: SessionId,
    /// Base64url of 32 bytes: of the host and of the owner's device.
    host_seed: String,
    device_seed: String,
    messages: Vec<Vector>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Vector {
    r#type: String,
    digest: String,
    /// As it is sealed.
    signed: Envelope,
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/messages.json")
}

fn made() -> Vectors {
    let (host, device) = ([7; 32], [9; 32]);
    let session_id: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let user: UserId = "01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap();
    let vector = |message: Message| {
        let seed = if message.content.writer() == Writer::Host { host } else { device };
        let signed =
            Envelope::sign(session_id, user, message.write().unwrap(), &SigningKey::from_bytes(&seed)).unwrap();
        Vector { r#type: message.content.type_name().to_owned(), digest: signed.digest(), signed }
    };
    Vectors {
        session_id,
        other_session_id: "01890a5d-ac96-774b-bcce-b302099a8061".parse().unwrap(),
        host_seed: ensemble_protocol::lists::encode(&host),
        device_seed: ensemble_protocol::lists::encode(&device),
        messages: samples::messages().into_iter().map(vector).collect(),
    }
}

#[test]
fn the_vectors_are_what_this_code_signs_and_opens() {
    if std::env::vars().any(|(name, _)| name == "WRITE_VECTORS") {
        std::fs::write(path(), serde_json::to_string_pretty(&made()).unwrap() + "\n").unwrap();
    }
    let kept: Vectors = serde_json::from_str(&std::fs::read_to_string(path()).unwrap()).unwrap();
    assert_eq!(kept, made());
    for (vector, message) in kept.messages.iter().zip(samples::messages()) {
        let sealed = vector.signed.write().unwrap();
        let opened = Envelope::open(kept.session_id, &sealed).unwrap();
        assert_eq!(opened.message(), Ok(message));
        assert_eq!(vector.digest, digest(&opened.body));
        assert_eq!(Envelope::open(kept.other_session_id, &sealed), Err(NotSigned::Signature));
    }
}

#[test]
fn a_browser_signs_and_checks_the_same() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/webcrypto/messages.mjs");
    let node = Command::new("node").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut node = node.expect("this test needs Node.js, as the README of tests/provider-clis says");
    let vectors = made();
    node.stdin.take().unwrap().write_all(&serde_json::to_vec(&vectors).unwrap()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "WebCrypto does not agree with the vectors");
    let answered: Vectors = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answered, vectors, "Ed25519 makes one signature for a key and a text");
}
