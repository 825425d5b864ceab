//! State kept per connection between samples: only the counters needed for differences.

use crate::limits::Times;
use fullpipe_kernel::tcp_info::TcpInfo;

/// The kernel's counters of a connection in one sample. Counters that a kernel lacks stay zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Payload bytes acknowledged.
    pub acked: u64,
    /// Payload bytes received.
    pub received: u64,
    /// Time by limit.
    pub times: Times,
    /// Data segments sent, with retransmissions; wraps around.
    pub sent: u32,
    /// Segments retransmitted; wraps around.
    pub retransmitted: u32,
}

/// A connection in the previous sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Previous {
    /// Time of its first sample, in nanoseconds after the first sample of all.
    pub first_ns: u64,
    /// Counters in its last sample.
    pub counters: Counters,
    /// Number of its last sample; wraps around.
    pub sample: u32,
}

impl Counters {
    pub(crate) fn from_tcp_info(info: &TcpInfo) -> Counters {
        Counters {
            acked: info.bytes_acked.unwrap_or(0),
            received: info.bytes_received.unwrap_or(0),
            times: Times::from_tcp_info(info).unwrap_or_default(),
            sent: info.data_segs_out.unwrap_or(0),
            retransmitted: info.total_retrans,
        }
    }

    /// Data segments sent since `before`, and retransmissions among them.
    pub(crate) fn segments_since(&self, before: &Counters) -> (u64, u64) {
        (
            self.sent.wrapping_sub(before.sent).into(),
            self.retransmitted.wrapping_sub(before.retransmitted).into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previous_state_fits_in_72_bytes() {
        // A half-empty table of 100 000 connections must stay around 10 MB.
        let size = size_of::<(u64, Previous)>();
        assert!(size <= 72, "{size} bytes");
    }

    #[test]
    fn segment_counters_wrap_around() {
        let before = Counters { sent: u32::MAX, retransmitted: 7, ..Counters::default() };
        let now = Counters { sent: 4, retransmitted: 8, ..Counters::default() };
        assert_eq!(now.segments_since(&before), (5, 1));
    }
}
