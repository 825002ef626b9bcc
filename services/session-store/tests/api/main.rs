//! Black-box tests: the service runs on free ports and is called over HTTP, on both databases.

#![cfg(test)]

mod fixture;

mod bad_input;
mod briefs;
mod costs;
mod crash;
mod hints;
mod history;
mod hosted;
mod hot_updates;
mod links;
mod lists;
mod live;
mod looks;
mod matrix;
mod messages;
mod one_caller;
mod peers;
mod pushes;
mod quotas;
mod races;
mod refs;
mod sessions;
mod shares;
mod stream;
