//! Tests of the whole runner with a scripted server and real programs.

// `cfg(test)` is always set here. Naming it tells clippy that the helpers are test code.
#[cfg(test)]
mod support;

#[cfg(test)]
mod agents;
#[cfg(test)]
mod delivery;
#[cfg(test)]
mod directories;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod life;
#[cfg(test)]
mod output;
#[cfg(test)]
mod prompts;
#[cfg(test)]
mod sealed;
#[cfg(test)]
mod workplaces;
