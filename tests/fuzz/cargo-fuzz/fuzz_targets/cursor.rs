//! Drives `ensemble_fuzz::cursor_of_a_list`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::cursor_of_a_list(data));
