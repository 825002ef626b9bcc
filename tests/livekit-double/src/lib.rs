//! LiveKit's server API, acted: being built.
