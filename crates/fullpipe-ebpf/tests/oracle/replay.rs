//! Replays raw records through the Rust core of BBR v1, as replay.c does through the C core:
//! `replay RECORDS MUTANT` prints how many records were read and how many differ, and stops at the
//! first that does. Compiled by the test with a copy of fullpipe-cc that has mistakes in it.

use fullpipe_cc::bbr::v1::{Bbr, CYCLE_RAND, KERNEL_SIZE, Params, RateSample, Socket};
use std::io::Read;

/// 32-bit words of a record (bpf/record.h), and where its parts begin.
const WORDS: usize = 102;
const TCP: usize = 4;
const BEFORE: usize = TCP + 38;
const AFTER: usize = BEFORE + 26;
const LEFT: usize = AFTER + 26;

fn differs(r: &[u32; WORDS], ticks: u32) -> bool {
    let tcp = |at: usize| r[TCP + at];
    let long = |at: usize| u64::from(r[at]) | u64::from(r[at + 1]) << 32;
    let params = Params { hz: tcp(33), pacing_shift: tcp(35) & 63, gso_max_bytes: tcp(34), ..Params::LINUX };
    let mut state = [0; KERNEL_SIZE];
    for (bytes, word) in state.chunks_exact_mut(4).zip(&r[BEFORE..AFTER]) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let Some(mut bbr) = Bbr::from_kernel(&state, params) else { return true };
    let mut sk = Socket {
        snd_cwnd: tcp(25),
        snd_cwnd_clamp: tcp(26),
        snd_ssthresh: tcp(27),
        mss_cache: tcp(29),
        srtt_us: tcp(30),
        min_rtt_us: tcp(31),
        delivered: tcp(22),
        lost: tcp(23),
        delivered_mstamp: long(TCP + 2),
        tcp_mstamp: long(TCP),
        tcp_clock_cache: long(TCP + 4),
        tcp_wstamp_ns: long(TCP + 6),
        packets_in_flight: tcp(24),
        app_limited: tcp(28),
        ca_state: tcp(36) as u8,
        jiffies: ticks,
        pacing_rate: long(TCP + 8),
        max_pacing_rate: long(TCP + 10),
    };
    let random = tcp(37);
    let draw = move || ((u64::from(random) * u64::from(CYCLE_RAND)) >> 32) as u32;
    let mut result = r[LEFT + 5];
    match r[2] {
        0 => bbr.init(&mut sk),
        1 => {
            let sample = RateSample {
                prior_delivered: tcp(18),
                delivered: tcp(16) as i32,
                interval_us: long(TCP + 12) as i64,
                rtt_us: long(TCP + 14) as i64,
                losses: tcp(17) as i32,
                acked_sacked: tcp(20),
                prior_in_flight: tcp(19),
                is_app_limited: tcp(21) & 1 != 0,
                is_ack_delayed: tcp(21) & 2 != 0,
            };
            bbr.main(&mut sk, &sample, draw);
        }
        2 if r[3] == 0 => bbr.transmit_start(&mut sk, draw),
        3 => bbr.set_state(&sk, r[3] as u8, draw),
        4 => result = bbr.undo_cwnd(&sk),
        5 => result = bbr.ssthresh(&sk),
        6 => result = Bbr::min_tso_segs(&sk),
        _ => {}
    }
    let after = bbr.to_kernel();
    let words = after.chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()));
    // Word 11 is padding, which the kernel never touches.
    words.zip(&r[AFTER..LEFT]).enumerate().any(|(at, (ours, theirs))| at != 11 && ours != *theirs)
        || sk.pacing_rate != long(LEFT)
        || [sk.snd_cwnd, sk.snd_ssthresh, sk.app_limited, result] != r[LEFT + 2..LEFT + 6]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut file = std::io::BufReader::new(std::fs::File::open(arguments.next().unwrap()).unwrap());
    let mutant = arguments.next().unwrap().parse().unwrap();
    fullpipe_cc::MUTANT.store(mutant, std::sync::atomic::Ordering::Relaxed);
    let (mut records, mut mismatches, mut bytes) = (0, 0, [0; WORDS * 4]);
    while mismatches == 0 && file.read_exact(&mut bytes).is_ok() {
        let mut r = [0; WORDS];
        for (word, bytes) in r.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_ne_bytes(bytes.try_into().unwrap());
        }
        records += 1;
        let ticks = (r[TCP + 32], r[LEFT + 6]);
        if differs(&r, ticks.0) && (ticks.0 == ticks.1 || differs(&r, ticks.1)) {
            mismatches += 1;
        }
    }
    println!("{records} {mismatches}");
}
