//! Drives `ensemble_fuzz::range`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::range(data));
