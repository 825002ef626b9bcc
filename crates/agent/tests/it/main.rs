//! The drivers with recorded wires, with hostile ones, and with the real programs.

// `cfg(test)` is always set here. Naming it tells clippy that the helpers are test code.
#[cfg(test)]
mod live;
mod outliving;
#[cfg(test)]
mod summary;
#[cfg(test)]
mod wire;

#[cfg(test)]
mod codex_schema;
#[cfg(test)]
mod following;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod table;
