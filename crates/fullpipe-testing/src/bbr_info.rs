//! The socket state of a kernel whose BBR is v3.

/// `struct tcp_bbr_info` of Google's v3 in each phase, in the order of `enum tcp_bbr_phase` from 1,
/// and the name of the state: 10 Mbit/s, `bw_hi` of 20 Mbit/s, 40 ms, `inflight_hi` of 90 segments,
/// no short-term bounds, 7 segments of extra_acked.
pub fn bbr_v3_of_each_phase() -> Vec<(Vec<u8>, &'static str)> {
    let phases = [
        (0, (710, 512), "Startup"),
        (1, (88, 512), "Drain"),
        (3, (256, 128), "ProbeRTT"),
        (2, (320, 576), "ProbeBW_UP"),
        (2, (232, 512), "ProbeBW_DOWN"),
        (2, (256, 512), "ProbeBW_CRUISE"),
        (2, (256, 512), "ProbeBW_REFILL"),
    ];
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let fixture = |(phase, (mode, (pacing, cwnd), state))| {
        let estimates = words(&[1_250_000, 0, 40_000, pacing, cwnd, 2_500_000, 0, u32::MAX, u32::MAX]);
        ([estimates, vec![mode, phase, 0, 3], words(&[u32::MAX, 90, 7])].concat(), state)
    };
    (1..).zip(phases).map(fixture).collect()
}
