//! The service from outside: started on free ports, spoken to over HTTP, on both databases.

#![cfg(test)]

mod world;

mod bad_input;
mod crash;
mod history;
mod links;
mod matrix;
mod messages;
mod peers;
mod races;
mod sessions;
mod shares;
mod stream;
