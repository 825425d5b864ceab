//! What is kept of a connection from one look to the next: the counters alone of which differences are made.

use crate::limits::Times;
use fullpipe_kernel::tcp_info::TcpInfo;

/// The kernel's counters of a connection at one time. What a kernel does not count is zero in all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Payload bytes acknowledged.
    pub acked: u64,
    /// Payload bytes received.
    pub received: u64,
    /// What limited it.
    pub times: Times,
    /// Data segments sent, with those sent again; goes round.
    pub sent: u32,
    /// Segments sent again; goes round.
    pub again: u32,
}

/// What a connection was at the look before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// When it was seen first, in nanoseconds after the first look of all.
    pub first_ns: u64,
    /// At the last look at it.
    pub counters: Counters,
    /// The number of that look; goes round.
    pub look: u32,
}

impl Counters {
    pub(crate) fn of(info: &TcpInfo) -> Counters {
        Counters {
            acked: info.bytes_acked.unwrap_or(0),
            received: info.bytes_received.unwrap_or(0),
            times: Times::of(info).unwrap_or_default(),
            sent: info.data_segs_out.unwrap_or(0),
            again: info.total_retrans,
        }
    }

    /// Data segments sent since `before`, and of these sent again.
    pub(crate) fn segments_since(&self, before: &Counters) -> (u64, u64) {
        (self.sent.wrapping_sub(before.sent).into(), self.again.wrapping_sub(before.again).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_remembered_in_little_more_than_a_line_of_cache() {
        // A hundred thousand of them, in a table that is half empty, are to take a tenth of 100 MB.
        let kept = size_of::<(u64, Before)>();
        assert!(kept <= 72, "{kept} bytes");
    }

    #[test]
    fn counters_of_segments_go_round() {
        let before = Counters { sent: u32::MAX, again: 7, ..Counters::default() };
        let now = Counters { sent: 4, again: 8, ..Counters::default() };
        assert_eq!(now.segments_since(&before), (5, 1));
    }
}
