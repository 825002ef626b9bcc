//! The voice gateway over HTTP, as applications, LiveKit and agents use it, on both databases.

#![cfg(test)]

mod access;
mod agent;
mod canary;
mod clock;
mod costs;
mod crash;
mod delivery;
mod endpoints;
mod faults;
mod fixture;
mod heartbeats;
mod history;
mod limits;
mod outage;
mod person;
mod races;
mod receiver;
mod removed_devices;
mod sessions;
mod speech;
mod tools;
mod webhooks;
