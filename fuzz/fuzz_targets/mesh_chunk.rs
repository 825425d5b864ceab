//! A chunk of a store's records, which a crafted store may have: refused, or samples by time that are
//! written again as they were read.
#![no_main]

use fullpipe_mesh::chunk::{CHUNK_MS, MAX_CHUNK_MINUTES, MAX_CHUNK_TRANSFERS, Samples};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&span, bytes)) = bytes.split_first() else { return };
    let span = match span {
        255 => i64::MAX.div_euclid(CHUNK_MS),
        254 => i64::MIN.div_euclid(CHUNK_MS),
        span => i64::from(span),
    };
    let mut samples = Samples::default();
    if samples.append(span, bytes).is_err() {
        return;
    }
    assert!(samples.transfers.len() <= MAX_CHUNK_TRANSFERS && samples.minutes.len() <= MAX_CHUNK_MINUTES);
    assert!(samples.transfers.is_sorted_by_key(|sample| sample.at_ms));
    assert!(samples.minutes.is_sorted_by_key(|sample| sample.at_ms));
    let mut again = Samples::default();
    again.append(span, &samples.to_bytes()).expect("it was written by this version");
    assert_eq!(again, samples);
});
