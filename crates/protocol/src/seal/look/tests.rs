//! Checks the format of looks: fixed vectors, both directions against WebCrypto, and what is refused.

use std::path::Path;

use ensemble_types::devices::Role;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::encoding::{decode_array, encode};
use super::super::tests::{RUNNERS, through_webcrypto};
use super::*;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors {
    /// Of a linked device of the owner, a device of a guest, and the machine.
    asker_seed: String,
    guest_seed: String,
    machine_seed: String,
    asker_box_key: String,
    machine_box_key: String,
    owner: UserId,
    guest: UserId,
    machine: MachineId,
    machine_key: String,
    /// By the machine's clock.
    now: Timestamp,
    question_aad: String,
    looks: Vec<Vector>,
    bad_questions: Vec<BadQuestion>,
    bad_answers: Vec<BadAnswer>,
}

#[derive(Serialize, Deserialize)]
struct Vector {
    look: String,
    /// The least right with which it is answered.
    needs: String,
    question: Sealed,
    /// Of the question's body.
    digest: String,
    answer: Sealed,
}

#[derive(Clone, Serialize, Deserialize)]
struct Sealed {
    body: String,
    blob: String,
}

/// A question that is not answered as it was asked.
#[derive(Serialize, Deserialize)]
struct BadQuestion {
    why: String,
    blob: String,
    /// Of the key in the newest list of its user.
    role: Option<Role>,
    right: String,
    /// `closed` when it does not open, `silence`, or the code of the answer.
    verdict: String,
}

/// An answer that does not open as one to the first question.
#[derive(Serialize, Deserialize)]
struct BadAnswer {
    why: String,
    blob: String,
}

const RIGHTS: [(&str, Right); 5] = [
    ("nothing", Right::Nothing),
    ("prompt", Right::Prompt),
    ("approve", Right::Approve),
    ("linked", Right::Linked),
    ("primary", Right::Primary),
];

fn right(word: &str) -> Right {
    RIGHTS.into_iter().find(|(name, _)| *name == word).unwrap().1
}

fn word(of: Right) -> String {
    RIGHTS.into_iter().find(|(_, right)| *right == of).unwrap().0.to_owned()
}

fn key(first: u8) -> AccountKey {
    AccountKey::from_seed(&[first; 32])
}

fn of_seed(seed: &str) -> AccountKey {
    AccountKey::from_seed(&decode_array(seed).unwrap())
}

fn boxed(key: &AccountKey) -> BoxKeyPair {
    BoxKeyPair::of_device(key).unwrap()
}

const NOW: &str = "2026-11-30T14:05:00.000Z";
const SESSION: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

fn body(session: bool, at: &str, look: Value) -> String {
    let head = json!({
        "v": 1, "nonce": "AAECAwQFBgcICQoLDA0ODw", "at": at,
        "list": {"version": 7, "digest": encode(&[4; 32])},
    });
    let Value::Object(mut all) = head else { unreachable!() };
    all.extend(session.then(|| ("session".to_owned(), json!(SESSION))));
    all.extend(look.as_object().unwrap().clone());
    Value::Object(all).to_string()
}

/// Each look with its answer.
fn samples() -> Vec<(Value, Value)> {
    let digest = digest("x");
    let part = json!({"text": "+ naïve 🙂\n", "bytes": 14, "digest": digest, "cut": 3});
    vec![
        (json!({"look": "request", "requestId": "r-1", "what": "diff", "from": 262_144}), part.clone()),
        (
            json!({"look": "names", "below": "src", "depth": 1}),
            json!({
                "names": [{"path": "src/Größe.rs", "kind": "file", "bytes": 12},
                    {"path": "src/.env", "kind": "file", "bytes": 1, "ignored": true},
                    {"path": "src/a", "kind": "directory"}, {"path": "src/b", "kind": "link"}, {"path": "src/p", "kind": "other"}],
                "more": true,
            }),
        ),
        (json!({"look": "names", "depth": "all"}), json!({"names": []})),
        (
            json!({"look": "file", "path": "src/Größe.rs"}),
            json!({"bytes": 3, "at": NOW, "digest": digest, "kind": "text", "data": "Zm4K"}),
        ),
        (
            json!({"look": "git", "what": "state", "since": "begin"}),
            json!({
                "seen": digest, "head": "a".repeat(40), "branch": "main", "upstream": "origin/main", "ahead": 1, "behind": 0,
                "remotes": [{"name": "origin", "url": "https://example.org/a.git"}],
                "files": [{"path": "a.rs", "kind": "modified", "added": 1, "removed": null}],
                "fileCount": 1, "added": 1, "removed": 0, "notes": ["Compared with the last commit."],
            }),
        ),
        (json!({"look": "git", "what": "diff", "since": "now", "path": "a.rs"}), part),
        (
            json!({"look": "git", "what": "log", "since": "now"}),
            json!({"commits": [{"id": "a".repeat(40), "author": "Anna", "at": NOW, "subject": "Fix it"}]}),
        ),
        (
            json!({"look": "directories", "below": "/srv"}),
            json!({"directories": [{"path": "/srv/a", "recent": true}, {"path": "/srv/b"}]}),
        ),
        (
            json!({"look": "conversations", "directory": "/srv/a"}),
            json!({"conversations": [
                {"agent": "claude", "id": "c-1", "firstPrompt": "hello", "changedAt": NOW, "inUse": "open"}]}),
        ),
        (
            json!({"look": "conversations", "directory": "/srv/a", "id": "c-1", "from": 40}),
            json!({"turns": [{"by": "person", "text": "hello", "at": NOW}, {"by": "agent", "text": "🙂"}], "count": 42}),
        ),
        (json!({"look": "file", "path": "gone"}), json!({"error": "superseded", "text": "There is no such file now."})),
    ]
}

fn generate() -> Vectors {
    let (asker, guest_key, runner) = (key(3), key(5), key(90));
    let owner: UserId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let guest: UserId = "01890a5d-ac96-774b-bcce-b302099a8059".parse().unwrap();
    let machine: MachineId = "laptop_1".parse().unwrap();
    let (to_machine, to_asker) = (boxed(&runner).public(), boxed(&asker).public());
    let ask = |body: &str, of: (UserId, &AccountKey)| seal_question(body, &to_machine, (owner, &machine), of).unwrap();
    let looks: Vec<Vector> = samples()
        .into_iter()
        .map(|(asked, answered)| {
            let look: Look = serde_json::from_value(asked.clone()).unwrap();
            let question = body(look.is_of_session(), NOW, asked);
            let (digest, answer) = (digest(&question), answered.to_string());
            Vector {
                look: answered["error"].as_str().map_or(look.does().unwrap(), |_| "refused").to_owned(),
                needs: word(look.needs()),
                question: Sealed { blob: ask(&question, (owner, &asker)), body: question },
                answer: Sealed {
                    blob: seal_answer(&answer, &to_asker, (&machine, &digest), &runner).unwrap(),
                    body: answer,
                },
                digest,
            }
        })
        .collect();
    let (first, second) = (&looks[0], &looks[1]);
    let other: MachineId = "laptop_2".parse().unwrap();
    let at_other = seal_question(&first.question.body, &to_machine, (owner, &other), (owner, &asker)).unwrap();
    let forged = {
        let mut question = open_question(&first.question.blob, &boxed(&runner), (owner, &machine)).unwrap();
        question.user = guest;
        let text = serde_json::to_vec(&question).unwrap();
        seal_for(QUESTION.as_bytes(), &text, &to_machine, &question_aad(owner, &machine)).unwrap()
    };
    let (early, late) = ("2026-11-30T13:59:59.999Z", "2026-11-30T14:10:00.001Z");
    let at = |at: &str| ask(&body(true, at, samples()[0].0.clone()), (owner, &asker));
    let by_guest =
        |look: usize, session: bool| ask(&body(session, NOW, samples()[look].0.clone()), (guest, &guest_key));
    let unknown = ask(&body(true, NOW, json!({"look": "weather"})), (owner, &asker));
    let nowhere = ask(&body(false, NOW, samples()[3].0.clone()), (owner, &asker));
    let bad = |why: &str, blob: &str, role, right: &str, verdict: &str| BadQuestion {
        why: why.to_owned(),
        blob: blob.to_owned(),
        role,
        right: right.to_owned(),
        verdict: verdict.to_owned(),
    };
    let linked = Some(Role::Linked);
    let bad_questions = vec![
        bad("for another machine", &at_other, linked, "linked", "closed"),
        bad("signed as another user", &forged, linked, "approve", "closed"),
        bad("by a removed key", &first.question.blob, None, "nothing", "silence"),
        bad("by a machine", &first.question.blob, Some(Role::Machine), "nothing", "silence"),
        bad("too old", &at(early), linked, "linked", "stale"),
        bad("of the future", &at(late), linked, "linked", "stale"),
        bad("by a guest who may prompt", &by_guest(3, true), Some(Role::Primary), "prompt", "not_allowed"),
        bad("at the machine by a guest who may approve", &by_guest(7, false), linked, "approve", "not_allowed"),
        bad("of a look that is not known", &unknown, linked, "primary", "unsupported"),
        bad("of a session without one", &nowhere, linked, "primary", "unsupported"),
    ];
    let answer = |to: &AccountKey, machine: &MachineId, digest: &str, signer: &AccountKey| {
        seal_answer(&first.answer.body, &boxed(to).public(), (machine, digest), signer).unwrap()
    };
    let bad_answers = [
        ("to another asker", answer(&guest_key, &machine, &first.digest, &runner)),
        ("to another question", answer(&asker, &machine, &second.digest, &runner)),
        ("of another machine", answer(&asker, &other, &first.digest, &runner)),
        ("by another machine's key", answer(&asker, &machine, &first.digest, &key(91))),
    ];
    Vectors {
        asker_seed: encode(asker.seed().as_ref()),
        guest_seed: encode(guest_key.seed().as_ref()),
        machine_seed: encode(runner.seed().as_ref()),
        asker_box_key: to_asker.to_text(),
        machine_box_key: to_machine.to_text(),
        machine_key: runner.public_key(),
        now: NOW.parse().unwrap(),
        question_aad: question_aad(owner, &machine),
        bad_answers: bad_answers.map(|(why, blob)| BadAnswer { why: why.to_owned(), blob }).into(),
        bad_questions,
        looks,
        owner,
        guest,
        machine,
    }
}

/// What is written again is what was read.
fn is_whole<T: DeserializeOwned + Serialize>(body: &str) {
    let answered: Answered<T> = serde_json::from_str(body).unwrap();
    assert_eq!(serde_json::to_value(answered).unwrap(), serde_json::from_str::<Value>(body).unwrap());
}

fn is_answer_to(look: &Look, body: &str) {
    match look {
        Look::Request { .. } | Look::Git { what: GitWhat::Diff, .. } => is_whole::<Part>(body),
        Look::Names { .. } => is_whole::<Names>(body),
        Look::File { .. } => is_whole::<FilePart>(body),
        Look::Git { what: GitWhat::State, .. } => is_whole::<GitState>(body),
        Look::Git { .. } => is_whole::<GitLog>(body),
        Look::Directories { .. } => is_whole::<Directories>(body),
        Look::Conversations { id: None, .. } => is_whole::<Conversations>(body),
        Look::Conversations { .. } => is_whole::<Turns>(body),
        Look::Unknown => panic!("no look"),
    }
}

fn check(vectors: &Vectors) {
    let (asker, runner) = (of_seed(&vectors.asker_seed), of_seed(&vectors.machine_seed));
    let of = (vectors.owner, &vectors.machine);
    let by = (&vectors.machine, vectors.machine_key.as_str());
    assert_eq!(boxed(&asker).public().to_text(), vectors.asker_box_key);
    assert_eq!(boxed(&runner).public().to_text(), vectors.machine_box_key);
    assert_eq!(question_aad(vectors.owner, &vectors.machine), vectors.question_aad);
    for Vector { look, needs, question, digest, answer } in &vectors.looks {
        let opened = open_question(&question.blob, &boxed(&runner), of).unwrap();
        assert_eq!((&opened.body, opened.user, &opened.key), (&question.body, vectors.owner, &asker.public_key()));
        assert_eq!(opened.digest(), *digest);
        let read = Question::read(&opened.body).unwrap();
        let written: Value = serde_json::from_str(&read.write().unwrap()).unwrap();
        assert_eq!(written, serde_json::from_str::<Value>(&question.body).unwrap());
        assert_eq!(word(read.look.needs()), *needs);
        let refused = serde_json::from_str::<Refusal>(&answer.body).is_ok();
        assert_eq!(if refused { "refused" } else { read.look.does().unwrap() }, look);
        for (name, right) in RIGHTS {
            let verdict = opened.judge(&read, (Some(Role::Linked), right), false, vectors.now);
            let is_enough = right >= read.look.needs();
            assert_eq!(verdict == Verdict::Answer, is_enough, "{look} with {name}");
        }
        let withheld = opened.judge(&read, (Some(Role::Primary), Right::Primary), true, vectors.now);
        assert_eq!(withheld, Verdict::Silence);
        assert_eq!(open_answer(&answer.blob, &boxed(&asker), by, digest), Ok(answer.body.clone()));
        is_answer_to(&read.look, &answer.body);
    }
    for BadQuestion { why, blob, role, right: may, verdict } in &vectors.bad_questions {
        let said = match open_question(blob, &boxed(&runner), of) {
            Err(_) => "closed".to_owned(),
            Ok(opened) => {
                let read = Question::read(&opened.body).unwrap();
                match opened.judge(&read, (*role, right(may)), false, vectors.now) {
                    Verdict::Answer => "answer".to_owned(),
                    Verdict::Silence => "silence".to_owned(),
                    Verdict::Refuse(code) => code.as_str().to_owned(),
                }
            }
        };
        assert_eq!(said, *verdict, "{why}");
    }
    for BadAnswer { why, blob } in &vectors.bad_answers {
        assert!(open_answer(blob, &boxed(&asker), by, &vectors.looks[0].digest).is_err(), "{why}");
    }
}

fn recorded() -> Vectors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/looks.json");
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&generate()).unwrap() + "\n").unwrap();
    }
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_look_of_an_earlier_version_is_understood() {
    check(&recorded());
}

#[test]
fn a_browser_asks_and_answers_the_same() {
    for runner in RUNNERS {
        check(&through_webcrypto(runner, "looks.mjs", &recorded()));
        check(&through_webcrypto(runner, "looks.mjs", &generate()));
    }
}

#[test]
fn a_question_with_a_bad_head_is_none() {
    let good = body(true, NOW, json!({"look": "file", "path": "a", "later": 1}));
    assert!(matches!(Question::read(&good).unwrap().look, Look::File { .. }), "unknown members are ignored");
    let short = good.replace("AAECAwQFBgcICQoLDA0ODw", "AAECAwQFBgcICQoLDA0O");
    assert_eq!(Question::read(&short), Err(SealError::Format));
    assert_eq!(Question::read("[]"), Err(SealError::Format));
    for newer in [good.replace("\"v\":1", "\"v\":2"), good.replace("\"path\":\"a\"", "\"path\":1")] {
        assert_eq!(Question::read(&newer).unwrap().look, Look::Unknown);
    }
}

#[test]
fn what_no_server_takes_is_not_made() {
    let (owner, machine, device) = (UserId::generate(), MachineId::generate(), AccountKey::generate());
    let to = boxed(&device).public();
    let long = "x".repeat(MOST_QUESTION);
    assert_eq!(seal_question(&long, &to, (owner, &machine), (owner, &device)), Err(SealError::TooLong));
    let longest_part = "\u{1}".repeat(MOST_PART);
    let cut = part(&longest_part, 0).unwrap();
    assert!(!cut.is_empty());
    let answer = Part { text: cut.to_owned(), bytes: 0, digest: digest(""), cut: None };
    let answer = serde_json::to_string(&answer).unwrap();
    seal_answer(&answer, &to, (&machine, ""), &device).unwrap();
    let (long, by) = ("x".repeat(MOST_ANSWER), (&machine, ""));
    assert_eq!(seal_answer(&long, &to, by, &device), Err(SealError::TooLong));
}

#[test]
fn parts_are_the_text_and_cut_no_character() {
    let text = "é🙂\"\n".repeat(40_000);
    let (mut from, mut all) = (0, String::new());
    while from < text.len() {
        let next = part(&text, from).unwrap();
        assert!(!next.is_empty() && next.len() <= MOST_PART);
        all.push_str(next);
        from += next.len();
    }
    assert!(all == text);
    assert_eq!((part(&text, from), part(&text, 1), part(&text, from + 1)), (Some(""), None, None));
}
