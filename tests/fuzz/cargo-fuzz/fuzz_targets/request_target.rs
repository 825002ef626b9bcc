//! Drives `ensemble_fuzz::request_target`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::request_target(data));
