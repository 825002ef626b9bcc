//! Drives `ensemble_fuzz::path_normaliser`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::path_normaliser(data));
