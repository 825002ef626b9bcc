//! Traces across the services, and requests that do not wait for the collector.

#![cfg(test)]

mod canaries;
mod collector;
mod dashboards;
mod metrics;
mod stack;
mod traces;
mod unavailable;
mod variables;
