//! The interface of machine-registry, on both databases.

#![cfg(test)]

mod access;
mod changes;
mod costs;
mod deletion;
mod directory;
mod listing;
mod one_caller;
mod refs;
mod registration;

use ensemble_chassis::Running;
use ensemble_machine_registry::MachineRegistry;
use ensemble_testkit::{Api, Backend, Peers, TestDatabase, start_service};
use ensemble_types::ids::UserId;
use serde_json::{Value, json};

/// A running service with its peers and its database.
struct Fixture {
    peers: Peers,
    service: Running,
    vars: Vec<(String, String)>,
    /// Removed when dropped.
    database: TestDatabase,
}

impl Fixture {
    async fn new(on: Backend) -> Self {
        Self::with(on, &[]).await
    }

    async fn with(on: Backend, settings: &[(&str, &str)]) -> Self {
        let peers = Peers::start().await;
        let database = TestDatabase::new(on, "machine-registry", ensemble_machine_registry::migrations()).await;
        let mut vars = peers.vars();
        vars.push(("DATABASE_URL".to_owned(), database.url.clone()));
        vars.push(("DATABASE_POOL_SIZE".to_owned(), "4".to_owned()));
        vars.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let service = start_service::<MachineRegistry>(vars.clone()).await;
        Self { peers, service, vars, database }
    }

    /// Another replica on the same database.
    async fn replica(&self) -> Running {
        start_service::<MachineRegistry>(self.vars.clone()).await
    }

    fn anonymous(&self) -> Api {
        Api::new(&self.service.public_url())
    }

    fn with_token(&self, token: &str) -> Api {
        self.anonymous().with_token(token)
    }

    fn user(&self) -> (UserId, Api) {
        let user = self.peers.new_user();
        (user, self.with_token(&self.peers.issuer().user(user)))
    }
}

fn draft(id: &str) -> Value {
    json!({ "id": id, "metadata": "sealed metadata", "encryptionKey": "sealed key" })
}
