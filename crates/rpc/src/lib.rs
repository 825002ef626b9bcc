//! rpc: being built.
