//! Calls between services: protobuf over HTTP, `POST /rpc/<package>.<Service>/<Method>` on the internal door.
//!
//! The contracts are in `proto/`. For each service there is one trait; who offers it implements the trait and hands it
//! to `mount_…`, who calls it takes an `Arc<dyn …>` and gets a `…Client` in production and a peer of its own in
//! tests:
//!
//! ```ignore
//! let machines: Arc<dyn MachineDirectory> = Arc::new(MachineDirectoryClient::new(Channel::new(&kit, &config.machines)));
//! match machines.get(GetMachineRequest { user_id: user.to_string(), machine_id: id.to_string() }).await {
//!     Err(RpcError::NotFound(_)) => …,
//! ```
//!
//! Every call has a deadline, carries the internal token and the trace, and is sent again once when it changes nothing
//! and did not arrive. What the public interface looks like is none of this crate's business.

mod channel;
mod error;
mod peer;
mod remote_keys;
pub mod server;

pub use channel::{CallKind, Channel};
pub use error::RpcError;
pub use peer::Peer;
pub use remote_keys::{KeyRefresh, RemoteKeys, key_set};

/// Keys and accounts, offered by identity.
pub mod identity {
    include!(concat!(env!("OUT_DIR"), "/ensemble.identity.v1.rs"));
}

/// Machines, offered by machine-registry.
pub mod machines {
    include!(concat!(env!("OUT_DIR"), "/ensemble.machines.v1.rs"));
}

/// The work of machines, offered by orchestrator.
pub mod orchestrator {
    include!(concat!(env!("OUT_DIR"), "/ensemble.orchestrator.v1.rs"));
}
