//! One callback of the kernel's BBR.

use crate::native::{Bbr1State, Op, Tcp};
use bytemuck::{Pod, Zeroable};

/// `struct fp_record` of bpf/record.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Record {
    /// Tells sockets apart within one recording.
    pub socket: u64,
    /// The callback: a number of [`Op`].
    pub op: u32,
    /// The event of `cwnd_event`, the new state of `set_state`.
    pub argument: u32,
    /// The connection before the callback.
    pub tcp: Tcp,
    /// BBR's state before it.
    pub state_before: Bbr1State,
    /// BBR's state after it.
    pub state_after: Bbr1State,
    /// The pacing rate after it, in bytes a second.
    pub pacing_rate: u64,
    /// The window after it, in packets.
    pub snd_cwnd: u32,
    /// The slow-start threshold after it.
    pub snd_ssthresh: u32,
    /// The application-limited mark after it.
    pub app_limited: u32,
    /// What the callback returned.
    pub result: u32,
    /// The clock after it.
    pub ticks: u32,
    /// Zero.
    pub reserved: u32,
}

/// A record as 32-bit words, the unit in which the file format counts changes.
pub(crate) const WORDS: usize = std::mem::size_of::<Record>() / 4;

impl Record {
    /// The callback, when its number is known.
    pub fn op(&self) -> Option<Op> {
        Op::from_number(self.op)
    }

    pub(crate) fn as_words(&self) -> &[u32; WORDS] {
        bytemuck::cast_ref(self)
    }

    pub(crate) fn from_words(words: &[u32; WORDS]) -> Self {
        bytemuck::cast(*words)
    }

    /// BBR v1's mode after the callback: STARTUP, DRAIN, PROBE_BW or PROBE_RTT by its number.
    pub fn mode_after(&self) -> u32 {
        field(&self.state_after, 14, 0, 3)
    }

    /// The phase of the gain cycle after the callback.
    pub fn cycle_after(&self) -> u32 {
        field(&self.state_after, 19, 23, 3)
    }
}

/// A bit-field of the state: `bits` bits from bit `shift` of 32-bit word `word`.
pub(crate) fn field(state: &Bbr1State, word: usize, shift: u32, bits: u32) -> u32 {
    let words: &[u32; 26] = bytemuck::cast_ref(state);
    words[word] >> shift & u32::MAX >> (32 - bits)
}
