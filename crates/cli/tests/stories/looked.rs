//! A device looks at what an agent has changed on another computer.

use std::path::Path;
use std::process::Command;

use ensemble_account::{Account, Computer, Home, Notices};
use ensemble_client::{Client, Known};
use ensemble_protocol::seal::look::{Question, open_answer, seal_question};
use ensemble_protocol::seal::{BoxKeyPair, BoxPublicKey};
use ensemble_protocol::transcript::body::KnownList;
use ensemble_types::devices::Role;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::text::Blob;
use serde_json::{Value, json};

use crate::ensemble::{User, up};
use crate::live::{guest, seen, turns, until};
use crate::scripted;

/// A device of a person, which looks at the machine of an owner.
struct Looker {
    account: Account,
    owner: UserId,
    owner_key: String,
    session: SessionId,
}

impl Looker {
    async fn look(&self, look: &Value) -> Result<Value, ensemble_client::Error> {
        let Self { account, owner, owner_key, session } = self;
        let list = account.client.newest_list(*owner, Known::Account(owner_key)).await?.unwrap();
        let device = list.body().devices.iter().find(|device| device.role == Role::Machine).unwrap();
        let machine = device.machine_id.as_ref().unwrap();
        let known = KnownList { version: list.version(), digest: list.digest_text() };
        let look = serde_json::from_value(look.clone()).unwrap();
        let body = Question::new(Some(*session), known, look, ensemble_host::clock()).write().unwrap();
        let to = BoxPublicKey::from_text(&device.box_key).unwrap();
        let question = seal_question(&body, &to, (*owner, machine), (account.id, &account.key)).unwrap();
        let answer = account.client.look_in_session(*session, Blob::new(question).unwrap()).await?;
        let boxed = BoxKeyPair::of_device(&account.key).unwrap();
        let digest = ensemble_types::signatures::digest(&body);
        let answered = open_answer(answer.as_ref(), &boxed, (machine, &device.key), &digest).unwrap();
        Ok(serde_json::from_str(&answered).unwrap())
    }
}

fn git(directory: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=Anna", "-c", "user.email=anna@example.org"];
    let done = Command::new("git").args(identity).args(arguments).current_dir(directory).output().unwrap();
    assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn state() -> Value {
    json!({"look": "git", "what": "state", "since": "begin"})
}

#[test]
fn people_who_may_see_what_an_agent_has_changed() {
    let (user, _programs) = scripted::user();
    let (_up, url) = up(&user, &[]);
    let project = user.home().join("project");
    std::fs::create_dir(&project).unwrap();
    git(&project, &["init", "--quiet", "."]);
    std::fs::write(project.join(".gitignore"), "secret\n").unwrap();
    git(&project, &["add", "--all"]);
    git(&project, &["commit", "--quiet", "-m", "first"]);
    let started = user.succeed(&["claude", "write hello.txt", "--dir", "project", "--detach"]);
    let session = started.trim();
    let said = turns(&user, session, 1);
    let does = said.iter().find_map(|body| body["does"].as_array()).unwrap();
    assert!(does.contains(&json!("look.git")), "{does:?}");
    std::fs::write(project.join("secret"), "hunter2").unwrap();

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let open = |who: &User| {
        let home = Home::new(who.files(), Computer::named("a phone"), Notices::none());
        let client = Client::builder(&url).build().unwrap();
        runtime.block_on(Account::open(&home, client)).unwrap()
    };
    let id = user.json(&["session", "show", session])["session"]["id"].as_str().unwrap().parse().unwrap();
    let owner = open(&user);
    let (owner_id, owner_key) = (owner.id, owner.owner().account.to_owned());
    let looker = |account| Looker { account, owner: owner_id, owner_key: owner_key.clone(), session: id };
    let owner = looker(owner);
    // The machine may not have its stream yet, and a busy one may need longer than a look may take.
    let look = |looker: &Looker, look: Value| {
        until("an answer", || runtime.block_on(looker.look(&look)).ok().filter(|answer| answer["error"] != "busy"))
    };
    let seen_state = look(&owner, state());
    assert_eq!(
        seen_state["files"],
        json!([{"path": "hello.txt", "kind": "added", "added": 1, "removed": 0}]),
        "{seen_state}"
    );
    let diff = look(&owner, json!({"look": "git", "what": "diff", "since": "begin", "path": "hello.txt"}));
    assert!(diff["text"].as_str().unwrap().ends_with("\n+written\n"), "{diff}");
    assert_eq!(look(&owner, json!({"look": "file", "path": "secret"}))["data"], "aHVudGVyMg");

    // A guest sees it when the owner has signed that they may approve.
    let (other, other_id) = guest(&url);
    user.succeed(&["share", "add", session, &other_id, "--level", "edit"]);
    let has = |may: &'static str| {
        let other_id = other_id.clone();
        move |log: &[Value]| (crate::live::right_of(log, &other_id)?["may"] == may).then_some(())
    };
    seen(&user, session, "the right to prompt", has("prompt"));
    let other = looker(open(&other));
    assert_eq!(look(&other, state())["error"], "not_allowed");
    user.succeed(&["share", "change", session, &other_id, "--level", "edit", "--approve"]);
    seen(&user, session, "the right to approve", has("approve"));
    assert_eq!(look(&other, state())["files"], seen_state["files"]);
    assert_eq!(look(&other, json!({"look": "file", "path": "secret"}))["error"], "not_allowed");
    let names = look(&other, json!({"look": "names", "depth": "all"}));
    let paths: Vec<&str> =
        names["names"].as_array().unwrap().iter().map(|name| name["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [".gitignore", "hello.txt"]);
}
