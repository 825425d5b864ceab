//! The controllers' C cores, compiled for the host, and the plain structures they share with Rust.

mod bbr3;
mod hybla;

pub(crate) use bbr3::MODES;
pub use bbr3::{Bbr3, Bbr3State};
pub use hybla::{HyblaGrowth, HyblaState};

use bytemuck::{Pod, Zeroable};

/// `struct fp_tcp` of bpf/types.h: what a controller may know of its connection in one callback,
/// and what it may change. Times are in microseconds, counts in packets, rates in bytes a second.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[allow(missing_docs)] // The names are the kernel's; bpf/types.h comments them.
pub struct Tcp {
    pub tcp_mstamp: u64,
    pub delivered_mstamp: u64,
    pub clock_ns: u64,
    pub wstamp_ns: u64,
    pub pacing_rate: u64,
    pub max_pacing_rate: u64,
    pub rs_interval_us: i64,
    pub rs_rtt_us: i64,
    pub rs_delivered: i32,
    pub rs_losses: i32,
    pub rs_prior_delivered: u32,
    pub rs_prior_in_flight: u32,
    pub rs_acked_sacked: u32,
    pub rs_flags: u32,
    pub delivered: u32,
    pub lost: u32,
    pub in_flight: u32,
    pub snd_cwnd: u32,
    pub snd_cwnd_clamp: u32,
    pub snd_ssthresh: u32,
    pub app_limited: u32,
    pub mss: u32,
    pub srtt_us: u32,
    pub min_rtt_us: u32,
    pub ticks: u32,
    pub hz: u32,
    pub gso_limit: u32,
    pub pacing_shift: u32,
    pub ca_state: u32,
    pub random: u32,
}

/// [`Tcp::rs_flags`]: the sample is application-limited.
pub const RS_APP_LIMITED: u32 = 1;
/// [`Tcp::rs_flags`]: the acknowledgement was delayed.
pub const RS_ACK_DELAYED: u32 = 2;

/// The callbacks, by their numbers in bpf/types.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Op {
    /// A socket takes the controller.
    Init = 0,
    /// `cong_control`, on each ACK.
    Main = 1,
    /// `cwnd_event`; the argument is the event.
    Event = 2,
    /// `set_state`; the argument is the new state.
    State = 3,
    /// `undo_cwnd`.
    Undo = 4,
    /// `ssthresh`.
    Ssthresh = 5,
    /// `min_tso_segs`.
    MinTso = 6,
}

impl Op {
    /// All of them, by number.
    pub const ALL: [Op; 7] = [Op::Init, Op::Main, Op::Event, Op::State, Op::Undo, Op::Ssthresh, Op::MinTso];

    /// The callback of that number.
    pub fn from_number(number: u32) -> Option<Op> {
        Op::ALL.get(number as usize).copied()
    }
}

/// The kernel's 104 bytes of BBR v1 state, as it keeps them in `icsk_ca_priv`.
pub type Bbr1State = [u64; 13];

unsafe extern "C" {
    fn fp_native_bbr1(state: *mut Bbr1State, tcp: *mut Tcp, op: u32, argument: u32) -> u32;
    fn fp_native_bbr3(state: *mut Bbr3State, call: u32, lost: *const bbr3::LostPacket);
    fn fp_native_hybla(state: *mut HyblaState, call: u32, acked: u32);
    fn fp_native_hybla_ssthresh(snd_cwnd: u32) -> u32;
}

/// Runs one callback of the C core of BBR v1; gives what the callback returns.
pub fn bbr1(state: &mut Bbr1State, tcp: &mut Tcp, op: Op, argument: u32) -> u32 {
    // SAFETY: both pointers are to live, exclusively borrowed values of the sizes that the C side
    // expects (`sizes_agree` tests it), and the core keeps neither.
    unsafe { fp_native_bbr1(state, tcp, op as u32, argument) }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        safe fn fp_native_size_of_tcp() -> u32;
        safe fn fp_native_size_of_record() -> u32;
        safe fn fp_native_size_of_bbr3() -> u32;
        safe fn fp_native_size_of_hybla() -> u32;
    }

    #[test]
    fn sizes_agree() {
        let c = [
            fp_native_size_of_tcp(),
            fp_native_size_of_record(),
            fp_native_size_of_bbr3(),
            fp_native_size_of_hybla(),
        ];
        let ours = [
            size_of::<Tcp>(),
            size_of::<crate::oracle::Record>(),
            size_of::<Bbr3State>(),
            size_of::<HyblaState>(),
        ];
        assert_eq!(c.map(|size| size as usize), ours);
    }
}
