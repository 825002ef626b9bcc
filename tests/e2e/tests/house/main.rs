//! Stories through the edge, with every real service behind it.

#![cfg(test)]

mod first_steps;
mod matrix;
mod openapi;
mod peers;
