//! The format of messages: samples of every type against the schema, the vectors, and a reader that is not ours.

// `cfg(test)` is always set here. Naming it tells clippy that the helpers are test code.
#[cfg(test)]
mod samples;

#[cfg(test)]
mod schema;
#[cfg(test)]
mod vectors;
