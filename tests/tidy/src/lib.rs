//! The house rules of docs/ARCHITECTURE.md and docs/CONVENTIONS.md, as tests. All there is, is in `tests/`.
