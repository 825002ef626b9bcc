//! Drives `ensemble_fuzz::token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::token(data));
