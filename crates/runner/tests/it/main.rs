//! The runner from outside: a scripted server in front of it, real programs behind it.

// `cfg(test)` holds for all of this anyway; said here, clippy knows that its helpers are test code as well.
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
