//! Checks the format of sealed tasks: fixed vectors, and both directions against WebCrypto.

use std::path::Path;

use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::runs::Signed;
use serde::{Deserialize, Serialize};

use super::encoding::{decode_array, encode};
use super::tests::{RUNNERS, through_webcrypto};
use super::*;
use crate::account_key::AccountKey;

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

/// A task in the clear, signed for `machine` and for any machine.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Clear {
    body: String,
    for_machine: Signed,
    for_any: Signed,
}

const CLEAR: &str = r#"{"prompt":"naïve 🙂 {{tasks.a.output}}","provider":"codex","workingDirectory":"/home/me/Größe","allowedTools":["Read"],"isolation":"worktree","base":"a","baseIsTask":true,"machineId":null,"nonce":"AAECAwQFBgcICQoLDA0ODw","at":"2026-11-23T14:05:00.000Z","expires":"2026-11-24T14:05:00.000Z"}"#;

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
    let body = r#"{"session":"start","sessionId":"0193a1b2-0000-7000-8000-000000000001","provider":"claude","workingDirectory":"/home/me/Größe","mode":"ask","title":"naïve 🙂","nonce":"AAECAwQFBgcICQoLDA0ODw","at":"2026-11-23T14:05:00.000Z","expires":"2026-11-24T14:05:00.000Z"}"#;
    let boxed = BoxKeyPair::of_device(&runner).unwrap().public();
    Vectors {
        device_seed: encode(device.seed().as_ref()),
        machine_seed: encode(runner.seed().as_ref()),
        machine_box_key: boxed.to_text(),
        aad: format!("ensemble-task-v1\n{owner}\n{machine}"),
        sealed: seal_task(body, &boxed, (owner, &machine), &device).unwrap(),
        clear: Clear {
            body: CLEAR.to_owned(),
            for_machine: sign_clear(CLEAR, Some(&machine), &device).unwrap(),
            for_any: sign_clear(CLEAR, None, &device).unwrap(),
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
    let Clear { body, for_machine, for_any } = &vectors.clear;
    let wanted = SignedTask { body: body.clone(), key };
    let other: MachineId = "another".parse().unwrap();
    for machine in [&vectors.machine, &other] {
        let of_machine = open_clear(for_machine, machine);
        assert_eq!(of_machine.as_ref().ok(), Some(&wanted).filter(|_| machine == &vectors.machine));
        assert_eq!(open_clear(for_any, machine).as_ref(), Ok(&wanted));
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
