//! orchestrator: being built.
