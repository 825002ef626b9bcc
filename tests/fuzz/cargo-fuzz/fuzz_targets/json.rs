//! Drives `ensemble_fuzz::json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::json(data));
