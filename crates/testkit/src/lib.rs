//! Support for tests of services: a private PostgreSQL, a database for each test, services on free ports, tokens of
//! every kind, peers, clients. For `dev-dependencies` only.
//!
//! ```text
//! on_both_databases! {
//!     async fn a_machine_is_registered_once(on: Backend) {
//!         let peers = Peers::start().await;
//!         let database = TestDatabase::new(on, "machine-registry", ensemble_machine_registry::store::MIGRATIONS).await;
//!         let mut vars = peers.vars();
//!         vars.push(("DATABASE_URL".into(), database.url.clone()));
//!         let service = start_service::<MachineRegistry>(vars).await;
//!         let user = peers.new_user();
//!         let api = Api::new(&service.public_url()).with_token(&peers.issuer().user(user));
//!         let machine = api.post("/v1/machines", &json!({ "metadata": "m", "encryptionKey": "k" })).await.expect(201);
//!         …
//!     }
//! }
//! ```
//!
//! Tests that need PostgreSQL use the server of `TEST_DATABASE_URL`, or start one that ends with the test process. The
//! program `with-postgres` starts one for several test programs. Without PostgreSQL such tests fail and say so.

pub mod costs;
pub mod database;
pub mod document;
pub mod http;
pub mod peers;
pub mod plans;
pub mod ports;
pub mod postgres;
pub mod push_service;
pub mod service;
pub mod sql;
pub mod sse;
pub mod statements;
pub mod tokens;
pub mod wait;

pub use costs::Costs;
pub use database::{Backend, TestDatabase, run};
pub use http::{Answer, Api};
pub use peers::Peers;
pub use plans::explained;
pub use ports::{free_address, free_port};
pub use service::{Program, start_service, start_service_at};
pub use sse::{Events, SseEvent};
pub use statements::{statement_texts, statements};
pub use tokens::Issuer;
pub use wait::{SOON, eventually, eventually_some, in_time, poll};
