//! Drives `ensemble_fuzz::events`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::events(data));
