//! How the client behaves against a faulty server: which calls are repeated, and which faults a stream survives.

#![cfg(test)]

mod clock;
mod held_back;
mod live;
mod other_records;
mod retries;
mod scripted;
mod signing_in;
