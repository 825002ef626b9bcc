//! What devices see of a machine, with the real git.

mod changes;
mod hostile;
mod people;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::BoxKeyPair;
use ensemble_protocol::seal::look::{open_answer, seal_question};
use ensemble_protocol::transcript::body::AccessGrant;
use ensemble_protocol::transcript::words::May;
use ensemble_types::ids::UserId;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::deliver::double::Double;
use crate::kept::Kept;
use crate::tasks::Ends;

/// A session in a directory, and its owner's device.
struct Machine {
    double: Double,
    folder: TempDir,
    session: SessionId,
    grants: watch::Sender<Vec<AccessGrant>>,
    _hosted: Ends,
}

impl Machine {
    /// A session in a repository with a commit of `a`, `folder/b` and a file that ignores `secret*`.
    async fn new() -> Self {
        let machine = Self::before().await;
        machine.make_repository();
        machine.begin("").await;
        machine
    }

    /// Nothing is in the directory, and the session has not begun.
    async fn before() -> Self {
        let double = Double::new().await;
        let grants = watch::Sender::default();
        let session = SessionId::generate();
        let hosted = double.host.hosted.add(session, grants.subscribe());
        fs::create_dir_all(&double.host.sessions).unwrap();
        Self { double, folder: tempfile::tempdir().unwrap(), session, grants, _hosted: hosted }
    }

    fn make_repository(&self) {
        self.git(&["init", "--quiet", "--initial-branch=main", "."]);
        self.write("a", "one\ntwo\n");
        self.write("folder/b", "b\n");
        self.write(".gitignore", "secret*\n");
        self.commit("first");
    }

    /// The session begins in this directory below the folder.
    async fn begin(&self, below: &str) {
        let (host, directory) = (&self.double.host, self.path(below).canonicalize().unwrap());
        let kept = Kept::new(self.session, "claude".to_owned(), directory.clone(), "key".to_owned());
        drop(Spool::create(&host.sessions, &kept).unwrap());
        host.looks.begin(&self.own(), &directory).await;
    }

    /// The folder of the session.
    fn own(&self) -> PathBuf {
        self.double.host.sessions.join(self.session.to_string())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// git as a person uses it.
    fn git(&self, args: &[&str]) {
        git_in(self.folder.path(), args);
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "-m", message]);
    }

    /// What the owner's device sees.
    async fn look(&self, look: Value) -> Value {
        self.look_as(self.double.host.owner, &self.double.primary, look).await.unwrap()
    }

    /// The same of a guest. The server of this test has one list for all.
    async fn look_as_guest(&self, may: May, look: Value) -> Value {
        let account = self.double.primary.public_key();
        let account = ensemble_protocol::transcript::account_digest(&account).unwrap();
        let user = UserId::generate();
        let (version, removed, key_epoch, key) = (1, false, None, None);
        self.grants.send_replace(vec![AccessGrant { user, account, may, version, removed, key_epoch, key }]);
        self.look_as(user, &self.double.primary, look).await.unwrap()
    }

    async fn question(&self, look: Value) -> Question {
        let look = serde_json::from_value(look).unwrap();
        let list = self.double.host.lists.known().await;
        Question::new(Some(self.session), list, look, self.double.host.now())
    }

    async fn look_as(&self, user: UserId, key: &AccountKey, look: Value) -> Option<Value> {
        self.ask((user, key), &self.question(look).await).await
    }

    async fn ask(&self, who: (UserId, &AccountKey), question: &Question) -> Option<Value> {
        let host = &self.double.host;
        let (body, machine) = (question.write().unwrap(), &host.settings.machine);
        let sealed = seal_question(&body, &host.boxed.public(), (host.owner, machine), who).unwrap();
        let answer = answer(host, &sealed).await?;
        let (boxed, asked) = (BoxKeyPair::of_device(who.1).unwrap(), ensemble_types::signatures::digest(&body));
        let body = open_answer(&answer, &boxed, (machine, &host.key.public_key()), &asked).unwrap();
        Some(serde_json::from_str(&body).unwrap())
    }

    async fn paths(&self, below: &str) -> Vec<String> {
        let found = self.look(json!({"look": "names", "below": below, "depth": "all"})).await;
        paths(&found)
    }
}

fn paths(found: &Value) -> Vec<String> {
    let names = found["names"].as_array().unwrap_or_else(|| panic!("{found}"));
    names.iter().map(|name| name["path"].as_str().unwrap().to_owned()).collect()
}

fn git_in(directory: &Path, args: &[&str]) {
    let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    let mut command = Command::new("git");
    command.args(args).current_dir(directory).envs(names.map(|name| (name, "anna")));
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let done = command.output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn file(path: &str) -> Value {
    json!({"look": "file", "path": path})
}

fn state(since: &str) -> Value {
    json!({"look": "git", "what": "state", "since": since})
}

fn diff(since: &str, path: &str) -> Value {
    json!({"look": "git", "what": "diff", "since": since, "path": path})
}
