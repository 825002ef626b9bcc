//! voice-gateway: being built.
