//! Checks the format of sealed tasks: fixed vectors, and both directions against WebCrypto.

use std::path::Path;

use ensemble_types::changes::{ChangedFile, FileChange, ReportedChanges};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::runs::Signed;
use ensemble_types::signatures::digest;
use ensemble_types::text::Text;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::encoding::{decode_array, encode};
use super::tests::{RUNNERS, through_webcrypto};
use super::*;
use crate::AccountKey;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors {
    device_seed: String,
    machine_seed: String,
    machine_box_key: String,
    owner: UserId,
    machine: MachineId,
    aad: String,
    body: String,
    sealed: String,
    clear: Clear,
}

/// A task in the clear, signed for `machine` and for any machine, and what is said about it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Clear {
    body: String,
    /// SHA-256 of `body`, as orders name it.
    digest: String,
    for_machine: Signed,
    for_any: Signed,
    message: Signed,
    order: Signed,
    /// A list of changed files, and its digest.
    list: Value,
    list_digest: String,
}

const CLEAR: &str = r#"{"runId":"01932b5e-7b1a-7c3e-8f00-000000000005","taskId":"01932b5e-7b1a-7c3e-8f00-000000000006","runTitle":"Größe","title":"naïve 🙂","taskKey":"b","position":1,"prompt":"naïve 🙂 {{tasks.a.output}}","provider":"codex","workingDirectory":"/home/me/Größe","allowedTools":["Read"],"isolation":"worktree","dependsOn":["01932b5e-7b1a-7c3e-8f00-000000000007"],"base":{"task":"01932b5e-7b1a-7c3e-8f00-000000000007"},"machineId":null,"nonce":"AAECAwQFBgcICQoLDA0ODw","at":"2026-11-23T14:05:00.000Z","expires":"2026-11-24T14:05:00.000Z"}"#;

/// The two orders about that task.
fn orders(seen: &str) -> [TaskOrder; 2] {
    [TaskAction::Message, TaskAction::Apply].map(|action| TaskOrder {
        action,
        task_id: "01932b5e-7b1a-7c3e-8f00-000000000006".parse().unwrap(),
        task_digest: digest(CLEAR),
        text: (action == TaskAction::Message).then(|| "and the tests 🙂".to_owned()),
        seen: (action == TaskAction::Apply).then(|| seen.to_owned()),
        unseen: false,
        machine_id: Some("laptop_1".parse().unwrap()),
        nonce: "AAECAwQFBgcICQoLDA0ODw".to_owned(),
        at: "2026-11-23T14:05:00.000Z".parse().unwrap(),
        expires: "2026-11-24T14:05:00.000Z".parse().unwrap(),
    })
}

fn changes() -> ReportedChanges {
    let file = |path: &str, kind, added, removed| ChangedFile { path: Text::new(path).unwrap(), kind, added, removed };
    ReportedChanges {
        files: vec![
            file("Größe/a \"b\"\t\u{1}\u{7f}", FileChange::Added, Some(3), Some(0)),
            file("picture.png", FileChange::Modified, None, None),
        ],
        file_count: 2,
        added: 3,
        removed: 0,
        ..ReportedChanges::default()
    }
}

fn key(first: u8) -> AccountKey {
    let mut seed = [first; 32];
    for (at, byte) in seed.iter_mut().enumerate() {
        *byte = byte.wrapping_add(u8::try_from(at).unwrap());
    }
    AccountKey::from_seed(&seed)
}

fn generate() -> Vectors {
    let (device, runner) = (key(3), key(90));
    let owner: UserId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let machine: MachineId = "laptop_1".parse().unwrap();
    let body = r#"{"runId":"01932b5e-7b1a-7c3e-8f00-000000000005","taskId":"01932b5e-7b1a-7c3e-8f00-000000000006","session":"start","sessionId":"0193a1b2-0000-7000-8000-000000000001","provider":"claude","workingDirectory":"/home/me/Größe","mode":"ask","title":"naïve 🙂","nonce":"AAECAwQFBgcICQoLDA0ODw","at":"2026-11-23T14:05:00.000Z","expires":"2026-11-24T14:05:00.000Z"}"#;
    let boxed = BoxKeyPair::of_device(&runner).unwrap().public();
    let [message, order] = orders(&changes().list_digest()).map(|order| serde_json::to_string(&order).unwrap());
    Vectors {
        device_seed: encode(device.seed().as_ref()),
        machine_seed: encode(runner.seed().as_ref()),
        machine_box_key: boxed.to_text(),
        aad: format!("ensemble-task-sealed-v2\n{owner}\n{machine}"),
        sealed: seal_task(body, &boxed, (owner, &machine), &device).unwrap(),
        clear: Clear {
            body: CLEAR.to_owned(),
            digest: digest(CLEAR),
            for_machine: sign_clear(SignedAs::Task, CLEAR, Some(&machine), &device).unwrap(),
            for_any: sign_clear(SignedAs::Task, CLEAR, None, &device).unwrap(),
            message: sign_clear(SignedAs::Message, &message, Some(&machine), &device).unwrap(),
            order: sign_clear(SignedAs::Order, &order, Some(&machine), &device).unwrap(),
            list: serde_json::to_value(changes()).unwrap(),
            list_digest: changes().list_digest(),
        },
        body: body.to_owned(),
        owner,
        machine,
    }
}

fn check(vectors: &Vectors) {
    let of_seed = |seed: &str| AccountKey::from_seed(&decode_array(seed).unwrap());
    let boxed = BoxKeyPair::of_device(&of_seed(&vectors.machine_seed)).unwrap();
    assert_eq!(boxed.public().to_text(), vectors.machine_box_key);
    let opened = open_task(&vectors.sealed, &boxed, (vectors.owner, &vectors.machine)).unwrap();
    let key = of_seed(&vectors.device_seed).public_key();
    assert_eq!(opened, SignedTask { body: vectors.body.clone(), key: key.clone() });
    let task: SessionTask = serde_json::from_str(&opened.body).unwrap();
    assert_eq!(serde_json::to_string(&task).unwrap(), vectors.body);
    let Clear { body, for_machine, for_any, .. } = &vectors.clear;
    assert_eq!(vectors.clear.digest, digest(body));
    let listed: ReportedChanges = serde_json::from_value(vectors.clear.list.clone()).unwrap();
    assert_eq!((listed.list_digest(), listed), (vectors.clear.list_digest.clone(), changes()));
    let said = orders(&vectors.clear.list_digest);
    let as_signed = [(&vectors.clear.message, SignedAs::Message), (&vectors.clear.order, SignedAs::Order)];
    for ((signed, what), order) in as_signed.into_iter().zip(said) {
        let opened = open_clear(what, signed, &vectors.machine).unwrap();
        assert_eq!(serde_json::from_str::<TaskOrder>(&opened.body).unwrap(), order);
        assert!(open_clear(SignedAs::Task, signed, &vectors.machine).is_err());
    }
    let wanted = SignedTask { body: body.clone(), key };
    let other: MachineId = "another".parse().unwrap();
    for machine in [&vectors.machine, &other] {
        let of_machine = open_clear(SignedAs::Task, for_machine, machine);
        assert_eq!(of_machine.as_ref().ok(), Some(&wanted).filter(|_| machine == &vectors.machine));
        assert_eq!(open_clear(SignedAs::Task, for_any, machine).as_ref(), Ok(&wanted));
    }
    let task: ClearTask = serde_json::from_str(body).unwrap();
    assert_eq!(serde_json::to_string(&task).unwrap(), *body);
}

fn recorded() -> Vectors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/tasks.json");
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&generate()).unwrap() + "\n").unwrap();
    }
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_task_that_was_sealed_by_an_earlier_version_opens() {
    check(&recorded());
}

#[test]
fn a_browser_seals_and_opens_the_same() {
    for runner in RUNNERS {
        check(&through_webcrypto(runner, "tasks.mjs", &recorded()));
        check(&through_webcrypto(runner, "tasks.mjs", &generate()));
    }
}
