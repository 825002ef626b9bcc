//! What every test starts with: peers, a database, the service, and clients with accounts.

use ensemble_chassis::Running;
use ensemble_session_store::SessionStore;
use ensemble_store_kit::Db;
use ensemble_testkit::{Api, Backend, Peers, TestDatabase, sql, start_service};
use ensemble_types::ids::{MachineId, UserId};
use serde_json::{Value, json};

/// Only notifications tell a service of changes.
pub(crate) const NO_SWEEP: [(&str, &str); 1] = [("SWEEP_MS", "86400000")];

pub(crate) struct Fixture {
    pub(crate) peers: Peers,
    pub(crate) database: TestDatabase,
    pub(crate) service: Running,
}

/// A user with an account, a machine and a token.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) id: UserId,
    pub(crate) machine: MachineId,
    pub(crate) api: Api,
}

impl Fixture {
    pub(crate) async fn start(on: Backend) -> Self {
        Self::start_with(on, &[]).await
    }

    /// With these variables set, too.
    pub(crate) async fn start_with(on: Backend, variables: &[(&str, &str)]) -> Self {
        let peers = Peers::start().await;
        let database = TestDatabase::new(on, "session-store", ensemble_session_store::migrations()).await;
        let service = start_service::<SessionStore>(vars(&peers, &database, variables)).await;
        Self { peers, database, service }
    }

    /// Another replica on the same database, with these variables set, too.
    pub(crate) async fn replica_with(&self, variables: &[(&str, &str)]) -> Running {
        start_service::<SessionStore>(vars(&self.peers, &self.database, variables)).await
    }

    pub(crate) fn vars(&self, variables: &[(&str, &str)]) -> Vec<(String, String)> {
        vars(&self.peers, &self.database, variables)
    }

    pub(crate) fn anonymous(&self) -> Api {
        Api::new(&self.service.public_url())
    }

    pub(crate) fn client(&self) -> Client {
        let id = self.peers.new_user();
        let token = self.peers.issuer().user(id);
        Client { id, machine: self.peers.new_machine(id), api: self.anonymous().with_token(&token) }
    }

    /// A client that `owner` shares the session with.
    pub(crate) async fn guest(&self, owner: &Client, session: &str, level: &str) -> Client {
        let guest = self.client();
        owner.share(session, &guest, level).await;
        guest
    }
}

impl Client {
    pub(crate) fn draft(&self) -> Value {
        json!({ "machineId": self.machine, "metadata": "sealed metadata", "encryptionKey": "sealed key" })
    }

    /// Creates a session and returns its id.
    pub(crate) async fn session(&self) -> String {
        let made = self.api.post("/v1/sessions", &self.draft()).await.expect(201);
        made["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn share(&self, session: &str, with: &Client, level: &str) {
        let body = json!({ "userId": with.id, "accessLevel": level, "encryptedKey": format!("key of {}", with.id) });
        let shared = self.api.post(&format!("/v1/sessions/{session}/shares"), &body).await;
        assert!(matches!(shared.status, 200 | 201), "{shared:?}");
    }

    pub(crate) async fn append(&self, session: &str, local_id: &str, content: &str) -> Value {
        let body = json!({ "content": content, "localId": local_id });
        self.api.post(&messages(session), &body).await.expect(201)
    }

    /// Appends `count` messages, 200 at a time.
    pub(crate) async fn fill(&self, session: &str, count: usize) {
        for start in (0..count).step_by(200) {
            let drafts: Vec<Value> = (start..count.min(start + 200))
                .map(|n| json!({ "content": format!("content {n}"), "localId": format!("fill-{n}") }))
                .collect();
            self.api.post(&batch(session), &json!({ "messages": drafts })).await.expect(201);
        }
    }

    /// Reads the whole history, oldest first.
    pub(crate) async fn history(&self, session: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let page = self.api.get(&format!("{}?after={after}&limit=500", messages(session))).await.expect(200);
            all.extend(page["messages"].as_array().unwrap().iter().cloned());
            after = page["nextAfter"].as_i64().unwrap();
            if page["hasMore"] == false {
                return all;
            }
        }
    }
}

pub(crate) fn messages(session: &str) -> String {
    format!("/v3/sessions/{session}/messages")
}

/// For several messages.
pub(crate) fn batch(session: &str) -> String {
    format!("/v3/sessions/{session}/messages/batch")
}

/// The `seq`s of a page or a list.
pub(crate) fn seqs(messages: &Value) -> Vec<i64> {
    messages.as_array().unwrap().iter().map(|message| message["seq"].as_i64().unwrap()).collect()
}

fn vars(peers: &Peers, database: &TestDatabase, variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut vars = peers.vars();
    vars.push(("DATABASE_URL".to_owned(), database.url.clone()));
    vars.push(("SHARE_BASE_URL".to_owned(), "https://share.example".to_owned()));
    vars.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    vars
}

impl Fixture {
    /// The number of rows in all tables of the service.
    pub(crate) async fn rows(&self) -> i64 {
        const TABLES: [&str; 6] = ["sessions", "session_contents", "messages", "shares", "links", "viewings"];
        let counts = TABLES.map(|table| format!("(SELECT count(*) FROM {table})")).join(" + ");
        self.number(&format!("SELECT {counts}")).await
    }

    /// Runs a query for one number on the database.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        sql::number(&self.database.url, sql).await
    }

    /// Runs statements on the database.
    pub(crate) async fn execute(&self, sql: &str) {
        sql::execute(&self.database.url, sql).await;
    }

    /// Stops the service, runs statements on its database, and starts it again with these variables.
    pub(crate) async fn restart(self, sql: &str, variables: &[(&str, &str)]) -> Self {
        self.stopped(sql).await.start_again(variables).await
    }

    /// The same with this migration once more after the statements.
    pub(crate) async fn migrated_again(self, sql: &str, migration: &str) -> Self {
        let stopped = self.stopped(sql).await;
        sql::forget_migration(&stopped.database.url, migration).await;
        let migrated = Db::migrate(&stopped.database.config(), ensemble_session_store::migrations()).await;
        migrated.unwrap_or_else(|error| panic!("{migration}: {error}"));
        stopped.start_again(&[]).await
    }

    async fn stopped(self, sql: &str) -> Stopped {
        let Self { peers, database, service } = self;
        service.stop().await;
        sql::closed(&database.url).await;
        sql::execute(&database.url, sql).await;
        Stopped { peers, database }
    }
}

struct Stopped {
    peers: Peers,
    database: TestDatabase,
}

impl Stopped {
    async fn start_again(self, variables: &[(&str, &str)]) -> Fixture {
        let Self { peers, database } = self;
        let vars = vars(&peers, &database, variables);
        Fixture { service: start_service::<SessionStore>(vars).await, peers, database }
    }
}
