//! The edge from outside: raw sockets on one side, a service made of raw sockets on the other.

#![cfg(test)]

mod answers;
mod compression;
mod cors;
mod deadlines;
mod drain;
mod entrances;
mod forwarding;
mod limits;
mod log;
mod mutations;
mod pages;
mod raw;
mod refusals;
mod restarts;
mod retries;
mod streams;
mod stub;
mod web;

use ensemble_chassis::{Clock, Listeners, Running, Vars, start};
use ensemble_edge_proxy::EdgeProxy;

use raw::Raw;
use stub::Stub;

/// A running edge whose services all are one stub.
struct Edge {
    running: Running,
}

impl Edge {
    async fn before(stub: &Stub) -> Self {
        Self::with(stub, &[]).await
    }

    async fn with(stub: &Stub, variables: &[(&str, &str)]) -> Self {
        Self::at(&format!("http://{}", stub.address), variables).await
    }

    async fn at(service: &str, variables: &[(&str, &str)]) -> Self {
        Self::on(Listeners::loopback().unwrap(), service, variables).await
    }

    async fn on(listeners: Listeners, service: &str, variables: &[(&str, &str)]) -> Self {
        let mut all = vec![
            ("INTERNAL_TOKEN", "internal"),
            ("DRAIN_DELAY_MS", "0"),
            ("WORKERS", "1"),
            ("KEYS_INTERVAL_MS", "100000"),
            // No test reaches these limits because the machine stands still, unless it sets them itself.
            ("HEAD_DEADLINE_MS", "60000"),
            ("BODY_TIMEOUT_MS", "60000"),
            ("SEND_STALL_MS", "60000"),
            ("UPSTREAM_CONNECT_MS", "60000"),
            ("UPSTREAM_TIMEOUT_MS", "60000"),
            ("UPSTREAM_STALL_MS", "60000"),
            ("DRAIN_GRACE_MS", "600000"),
        ];
        for name in
            ["IDENTITY_URL", "MACHINE_REGISTRY_URL", "SESSION_STORE_URL", "ORCHESTRATOR_URL", "VOICE_GATEWAY_URL"]
        {
            all.push((name, service));
        }
        all.retain(|(name, _)| variables.iter().all(|(other, _)| other != name));
        all.extend_from_slice(variables);
        Self { running: start::<EdgeProxy>(Vars::from_pairs(all), listeners, Clock::system()).await.unwrap() }
    }

    async fn connect(&self) -> Raw {
        Raw::connect(self.running.public_addr).await
    }

    /// One request on a connection of its own.
    async fn ask(&self, request: &str) -> raw::Answer {
        let mut raw = self.connect().await;
        raw.send(request.as_bytes()).await;
        raw.answer().await
    }

    async fn get(&self, path: &str) -> raw::Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: edge\r\n\r\n")).await
    }
}
