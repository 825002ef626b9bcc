//! How calls behave against a server that misbehaves: what is sent again, what is not, and what streams survive.

#![cfg(test)]

mod live;
mod retries;
mod scripted;
mod signing_in;
