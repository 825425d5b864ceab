//! Counters of a TCP socket at the moment it closed.

use crate::tcp_info::State;
use fullpipe_units::{Rate, Span, Time};
use std::net::SocketAddr;
use std::num::NonZeroU64;

/// State of a TCP socket as it closes (`tcp_sock`, before it is cleared).
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedSocket {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// Which end opened the connection and when; `None` if it was open before recording started.
    pub opened: Option<Opening>,
    /// Time of closing, on the kernel's monotonic clock.
    pub closed: Time,
    /// TCP state before closing.
    pub state: State,
    /// Pending socket error (`sk_err`), 0 for none.
    pub error: u32,
    /// Whether the peer's FIN was received.
    pub fin_received: bool,
    /// Whether all sent data was acknowledged, including a FIN.
    pub all_acked: bool,
    /// Socket cookie (`SO_COOKIE`), if one was assigned.
    pub cookie: Option<NonZeroU64>,
    /// Inode of its network namespace, as in `net:[4026531840]`.
    pub netns: u32,
    /// Cookie of the network namespace.
    pub netns_cookie: u64,
    /// Control group ID (inode), if the kernel supplies it.
    pub cgroup: Option<u64>,
    /// User ID of the owner.
    pub uid: u32,
    /// PID and unescaped command name of the process that opened or closed it, if any.
    pub process: Option<(u32, String)>,
    /// Last congestion controller.
    pub controller: String,
    /// Payload bytes sent, with retransmissions.
    pub bytes_sent: u64,
    /// Bytes acknowledged, with SYN and FIN: see [`acked_payload`](Self::acked_payload).
    pub bytes_acked: u64,
    /// Bytes received in order, with the FIN: see [`received_payload`](Self::received_payload).
    pub bytes_received: u64,
    /// Payload bytes retransmitted.
    pub bytes_retrans: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Data segments sent.
    pub data_segs_out: u32,
    /// Data segments received.
    pub data_segs_in: u32,
    /// Segments retransmitted, including SYN, SYN-ACK and FIN.
    pub total_retrans: u32,
    /// Duplicates reported by DSACK.
    pub dsack_dups: u32,
    /// Reordering events.
    pub reord_seen: u32,
    /// Segments that arrived out of order.
    pub rcv_ooopack: u32,
    /// Segments delivered.
    pub delivered: u32,
    /// Segments delivered with a CE mark.
    pub delivered_ce: u32,
    /// Retransmission timeouts.
    pub total_rto: u16,
    /// Smoothed RTT; `None` without a sample.
    pub srtt: Option<Span>,
    /// Minimum RTT of the last minutes (`tcp_min_rtt_wlen`); `None` without a sample.
    pub min_rtt: Option<Span>,
    /// Last congestion window in segments.
    pub snd_cwnd: u32,
    /// Slow-start threshold in segments; 2³¹−1 until the first reduction.
    pub snd_ssthresh: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Segment size offered by the peer.
    pub peer_mss: u16,
    /// The last sample of the delivery rate.
    pub delivery_rate: Option<Rate>,
    /// Whether that sample was application-limited.
    pub delivery_rate_app_limited: bool,
    /// Time with data queued or outstanding.
    pub busy: Span,
    /// Part of the busy time limited by the peer's receive window.
    pub rwnd_limited: Span,
    /// Part of the busy time limited by the send buffer.
    pub sndbuf_limited: Span,
    /// Time since data was last sent.
    pub idle: Span,
    /// Negotiated TCP options.
    pub options: NegotiatedOptions,
}

/// How a connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Whether this end opened it (active open); otherwise it was accepted.
    pub active: bool,
    /// Time of the SYN for an active open, of the completed handshake for a passive one, on the
    /// kernel's monotonic clock.
    pub at: Time,
}

/// TCP options negotiated in the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegotiatedOptions {
    /// Selective acknowledgments.
    pub sack: bool,
    /// Timestamps.
    pub timestamps: bool,
    /// Window scales: the peer's and its own.
    pub window_scale: Option<(u8, u8)>,
    /// Explicit congestion notification.
    pub ecn: bool,
}

impl ClosedSocket {
    /// Payload bytes acknowledged by the peer.
    ///
    /// The kernel counts sequence numbers (`tcp_snd_una_update`), of which SYN and FIN take one
    /// each; a SYN-ACK is acknowledged before the accepted socket starts to count.
    pub fn acked_payload(&self) -> u64 {
        let syn = self.opened.is_some_and(|opened| opened.active) && self.bytes_acked > 0;
        let fin = match self.state {
            State::FinWait2 => true,
            State::FinWait1 | State::Closing | State::LastAck => self.all_acked,
            _ => false,
        };
        self.bytes_acked.saturating_sub(u64::from(syn) + u64::from(fin))
    }

    /// Payload bytes received in order.
    pub fn received_payload(&self) -> u64 {
        self.bytes_received.saturating_sub(self.fin_received.into())
    }

    /// Whether the handshake completed.
    pub fn was_established(&self) -> bool {
        self.state != State::SynSent && self.state != State::SynRecv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An actively opened connection that sent 1000 bytes, received 2000, and closed first.
    fn example() -> ClosedSocket {
        ClosedSocket {
            local: "10.0.0.1:40000".parse().unwrap(),
            remote: "192.0.2.7:443".parse().unwrap(),
            opened: Some(Opening { active: true, at: Time::from_nanos(5) }),
            closed: Time::from_nanos(2_000_000_005),
            state: State::FinWait2,
            error: 0,
            fin_received: true,
            all_acked: true,
            cookie: None,
            netns: 1,
            netns_cookie: 1,
            cgroup: None,
            uid: 0,
            process: None,
            controller: "cubic".to_owned(),
            bytes_sent: 1000,
            bytes_acked: 1002,
            bytes_received: 2001,
            bytes_retrans: 0,
            segs_out: 5,
            segs_in: 6,
            data_segs_out: 1,
            data_segs_in: 2,
            total_retrans: 0,
            dsack_dups: 0,
            reord_seen: 0,
            rcv_ooopack: 0,
            delivered: 2,
            delivered_ce: 0,
            total_rto: 0,
            srtt: None,
            min_rtt: None,
            snd_cwnd: 10,
            snd_ssthresh: 0x7fff_ffff,
            mss: 1448,
            peer_mss: 1460,
            delivery_rate: None,
            delivery_rate_app_limited: true,
            busy: Span::ZERO,
            rwnd_limited: Span::ZERO,
            sndbuf_limited: Span::ZERO,
            idle: Span::ZERO,
            options: NegotiatedOptions::default(),
        }
    }

    #[test]
    fn syn_and_fin_do_not_count_as_payload() {
        let active = example();
        assert_eq!((active.acked_payload(), active.received_payload()), (1000, 2000));
        let opened = Some(Opening { active: false, at: Time::from_nanos(5) });
        let passive = ClosedSocket { opened, bytes_acked: 1001, state: State::LastAck, ..example() };
        assert_eq!(passive.acked_payload(), 1000);
        // Reset: no FIN was sent or received.
        let reset = ClosedSocket {
            bytes_acked: 1001,
            bytes_received: 2000,
            fin_received: false,
            state: State::Established,
            error: 104,
            ..example()
        };
        assert_eq!((reset.acked_payload(), reset.received_payload()), (1000, 2000));
        let refused = ClosedSocket {
            bytes_acked: 0,
            bytes_received: 0,
            fin_received: false,
            state: State::SynSent,
            ..reset
        };
        assert_eq!((refused.acked_payload(), refused.was_established()), (0, false));
    }
}
