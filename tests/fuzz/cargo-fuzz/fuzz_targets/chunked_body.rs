//! Drives `ensemble_fuzz::chunked_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::chunked_body(data));
