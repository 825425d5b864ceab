//! What a controller in another program answers (`exec:PROGRAM`): lines of JSON.
#![no_main]

use fullpipe_run::exec::Values;
use libfuzzer_sys::fuzz_target;

const LARGEST: u64 = i64::MAX as u64;

fuzz_target!(|bytes: &[u8]| {
    let mut values = Values::new(14_480);
    for line in bytes.split(|byte| *byte == b'\n') {
        let before = values.clone();
        if let Err(reason) = values.update(line) {
            assert_eq!(values, before, "a refused answer changes nothing");
            assert!(!reason.is_empty() && reason.len() <= 300 * 10 + 3, "{} bytes", reason.len());
            assert!(!reason.contains(char::is_control), "{reason:?}");
            // The first answer names the version; later lines are tried without it.
            let first = b"{\"schema\":\"fullpipe/controller/1\"}";
            let _ = values.update(first);
            continue;
        }
        let snapshot = &values.snapshot;
        let bounds = [snapshot.ssthresh, snapshot.inflight_longterm, snapshot.inflight_shortterm];
        let sizes = bounds.into_iter().chain([Some(snapshot.cwnd), Some(values.quantum)]);
        assert!(sizes.flatten().all(|bytes| (1..=LARGEST).contains(&bytes)));
        let rates = [snapshot.pacing_rate, snapshot.bw, snapshot.max_bw, snapshot.bw_shortterm];
        assert!(rates.into_iter().flatten().all(|rate| (1..=LARGEST).contains(&rate.as_bytes_per_sec())));
        assert!(snapshot.min_rtt.is_none_or(|rtt| (1..=LARGEST).contains(&rtt.as_nanos())));
        assert!(snapshot.state.len() <= 64 && !snapshot.state.contains(char::is_control));
    }
});
