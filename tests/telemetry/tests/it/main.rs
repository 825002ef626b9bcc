//! Traces across the services, and requests that do not wait for the collector.

#![cfg(test)]

mod dashboards;
mod metrics;
mod traces;
mod unavailable;
mod variables;
