//! Drives `ensemble_fuzz::ids_and_times`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::ids_and_times(data));
