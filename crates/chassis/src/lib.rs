//! How any service of ours behaves: start, configure, listen, route, authenticate, answer, log, drain.
//!
//! A service says what is its own (its variables, its table of routes, its state) through [`Service`] and gets the rest
//! from here, so that all of them behave alike. Reading order: [`service`], [`routes`], [`http`], [`auth`], [`process`].
//! Nothing here knows what any service is for.

pub mod auth;
pub mod clock;
pub mod config;
pub mod http;
pub mod live;
pub mod metrics;
pub mod openapi;
pub mod outgoing;
pub mod process;
pub mod routes;
pub mod service;

pub use auth::{Caller, Gate, KeySet, KeySource, KeysUnavailable};
pub use clock::Clock;
pub use config::Vars;
pub use http::{
    Answer, Created, Fail, IdempotencyKey, IntoProblem, Json, Keyed, OptionalJson, Path, Query, Reply, State, Unread,
    Upserted,
};
pub use outgoing::Outgoing;
pub use process::{Doors, Drain, Running, run, start};
pub use routes::{Routes, Who, delete, get, patch, post};
pub use service::{Kit, RpcCall, RpcMount, RpcStatus, Service, StartError, Worker};
