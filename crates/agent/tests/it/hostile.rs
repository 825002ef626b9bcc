//! Agents that send nonsense: no driver fails on it.
