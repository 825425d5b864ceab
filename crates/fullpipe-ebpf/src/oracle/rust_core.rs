//! The Rust BBR v1 behind the interface that recordings are replayed through.

use crate::native::{Bbr1State, Op, RS_ACK_DELAYED, RS_APP_LIMITED, Tcp};
use fullpipe_cc::bbr::v1::{Bbr, CYCLE_RAND, KERNEL_SIZE, Params, RateSample, Socket};

/// The Rust core of BBR v1, for [`replay`](super::replay).
///
/// The state's padding, which the kernel never touches, stays what it was.
pub fn rust_core(_socket: u64, state: &mut Bbr1State, tcp: &mut Tcp, op: Op, argument: u32) -> u32 {
    let params = Params {
        hz: tcp.hz,
        // A file may say anything; the C core and the processor's shift take six bits of it.
        pacing_shift: tcp.pacing_shift & 63,
        gso_max_bytes: tcp.gso_limit,
        ..Params::LINUX
    };
    let bytes: [u8; KERNEL_SIZE] = bytemuck::cast(*state);
    // A mode that is none of the four leaves the state as it is, which shows as a difference.
    let Some(mut bbr) = Bbr::from_kernel(&bytes, params) else { return 0 };
    let mut sk = socket(tcp);
    let random = tcp.random;
    let draw = move || ((u64::from(random) * u64::from(CYCLE_RAND)) >> 32) as u32;
    let result = match op {
        Op::Init => {
            bbr.init(&mut sk);
            0
        }
        Op::Main => {
            bbr.main(&mut sk, &sample(tcp), draw);
            0
        }
        Op::Event => {
            // CA_EVENT_TX_START is 0; BBR knows no other.
            if argument == 0 {
                bbr.transmit_start(&mut sk, draw);
            }
            0
        }
        Op::State => {
            bbr.set_state(&sk, argument as u8, draw);
            0
        }
        Op::Undo => bbr.undo_cwnd(&sk),
        Op::Ssthresh => bbr.ssthresh(&sk),
        Op::MinTso => Bbr::min_tso_segs(&sk),
    };
    let padding = (state[5] >> 32) << 32;
    *state = bytemuck::cast(bbr.to_kernel());
    state[5] |= padding;
    tcp.snd_cwnd = sk.snd_cwnd;
    tcp.snd_ssthresh = sk.snd_ssthresh;
    tcp.app_limited = sk.app_limited;
    tcp.pacing_rate = sk.pacing_rate;
    result
}

fn socket(tcp: &Tcp) -> Socket {
    Socket {
        snd_cwnd: tcp.snd_cwnd,
        snd_cwnd_clamp: tcp.snd_cwnd_clamp,
        snd_ssthresh: tcp.snd_ssthresh,
        mss_cache: tcp.mss,
        srtt_us: tcp.srtt_us,
        min_rtt_us: tcp.min_rtt_us,
        delivered: tcp.delivered,
        lost: tcp.lost,
        delivered_mstamp: tcp.delivered_mstamp,
        tcp_mstamp: tcp.tcp_mstamp,
        tcp_clock_cache: tcp.clock_ns,
        tcp_wstamp_ns: tcp.wstamp_ns,
        packets_in_flight: tcp.in_flight,
        app_limited: tcp.app_limited,
        ca_state: tcp.ca_state as u8,
        jiffies: tcp.ticks,
        pacing_rate: tcp.pacing_rate,
        max_pacing_rate: tcp.max_pacing_rate,
    }
}

fn sample(tcp: &Tcp) -> RateSample {
    RateSample {
        prior_delivered: tcp.rs_prior_delivered,
        delivered: tcp.rs_delivered,
        interval_us: tcp.rs_interval_us,
        rtt_us: tcp.rs_rtt_us,
        losses: tcp.rs_losses,
        acked_sacked: tcp.rs_acked_sacked,
        prior_in_flight: tcp.rs_prior_in_flight,
        is_app_limited: tcp.rs_flags & RS_APP_LIMITED != 0,
        is_ack_delayed: tcp.rs_flags & RS_ACK_DELAYED != 0,
    }
}
