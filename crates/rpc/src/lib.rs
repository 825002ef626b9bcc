//! Calls between services: protobuf over HTTP, `POST /rpc/<package>.<Service>/<Method>` on the internal listener.
//!
//! The contracts are in `proto/`, and `make proto` writes `src/generated/` from them. Each service has one trait. A server
//! implements it and passes it to `mount_…`. A caller takes an `Arc<dyn …>`: the generated `…Client` in production, an
//! implementation in memory in tests:
//!
//! ```text
//! let machines: Arc<dyn MachineDirectory> = Arc::new(MachineDirectoryClient::new(Channel::new(&context, &config.machines)));
//! match machines.get(GetMachineRequest { user_id: user.to_string(), machine_id: id.to_string() }).await {
//!     Err(RpcError::NotFound(_)) => …,
//! ```
//!
//! Every call has a deadline and carries the internal token and the trace context. A call that changes nothing is
//! repeated once when it did not arrive. This crate knows nothing about the public interface.

mod channel;
mod error;
mod hints;
mod peer;
mod pushes;
mod remote_keys;
pub mod server;

pub use channel::{CallKind, Channel};
pub use error::RpcError;
pub use hints::HintSender;
pub use peer::Peer;
pub use pushes::{MOST_EVENTS, PushGiver};
pub use remote_keys::{KeyRefresh, RemoteKeys, key_set};

/// Keys and accounts, served by identity.
#[path = "generated/identity.rs"]
pub mod identity;

/// Machines, served by machine-registry.
#[path = "generated/machines.rs"]
pub mod machines;

/// Sessions and the events of accounts, served by session-store.
#[path = "generated/sessions.rs"]
pub mod sessions;

/// The work of machines, served by orchestrator.
#[path = "generated/orchestrator.rs"]
pub mod orchestrator;
