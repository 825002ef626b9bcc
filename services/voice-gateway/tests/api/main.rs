//! The voice gateway as its callers, LiveKit and agents meet it: over HTTP, on both databases.

#![cfg(test)]

mod access;
mod agent;
mod canary;
mod crash;
mod delivery;
mod faults;
mod limits;
mod one_call;
mod outage;
mod sessions;
mod stage;
mod webhooks;
