//! What all services have in common: start, configure, listen, route, authenticate, answer, log, drain.
//!
//! A service defines its variables, its table of routes and its state through [`Service`]. The chassis does the rest, so
//! that all services behave alike. Reading order: [`service`], [`routes`], [`http`], [`auth`], [`process`].
//! The chassis knows nothing about any particular service.

pub mod auth;
pub mod clock;
pub mod config;
pub mod entrance;
pub mod http;
mod http_client;
pub mod live;
pub mod metrics;
pub mod openapi;
pub mod outward;
pub mod places;
pub mod process;
pub mod routes;
pub mod service;
pub mod shares;

pub use auth::{Access, Caller, Gate, KeySet, KeySource, KeysUnavailable};
pub use clock::Clock;
pub use config::Vars;
pub use http::{
    ApiError, Created, DeferredJson, HandlerResult, Heavy, IdempotencyKey, IdempotentJson, IntoProblem, Json,
    LargeAnswer, OptionalJson, Path, Query, State, Upserted,
};
pub use http_client::http_client;
pub use process::{Drain, Listeners, Running, run, start};
pub use routes::{Required, Routes, Tag, delete, get, patch, post};
pub use service::{RpcCall, RpcMount, RpcStatus, Service, ServiceContext, StartError, Worker};
