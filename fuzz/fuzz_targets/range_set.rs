#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mpxdp_fuzz::range_set(data));
