//! Tests through the edge with all real services.

#![cfg(test)]

mod answers;
mod bounds;
mod examples;
mod first_steps;
mod matrix;
mod openapi;
mod peers;
