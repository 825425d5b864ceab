//! A TCP socket's account of its connection at the moment it closed, whoever took it down.

use crate::tcp_info::State;
use fullpipe_units::{Rate, Span, Time};
use std::net::SocketAddr;
use std::num::NonZeroU64;

/// What the kernel knew of a connection as its socket closed (`tcp_sock`, before anything of it is cleared).
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedSocket {
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Which end opened it and when; none where it was open before anybody looked.
    pub opened: Option<Opening>,
    /// When it closed, on the kernel's monotonic clock.
    pub closed: Time,
    /// The state that it closed from.
    pub state: State,
    /// The error that its process would be told (`sk_err`), 0 for none.
    pub error: u32,
    /// Whether the other end's FIN came.
    pub fin_received: bool,
    /// Whether everything that was sent was acknowledged, a FIN included.
    pub all_acked: bool,
    /// The kernel's lasting name for it, where somebody had asked for that.
    pub cookie: Option<NonZeroU64>,
    /// Inode of its network namespace, as in `net:[4026531840]`.
    pub netns: u32,
    /// The namespace's lasting name.
    pub netns_cookie: u64,
    /// Its control group by inode, where the kernel tells.
    pub cgroup: Option<u64>,
    /// The user that it belonged to.
    pub uid: u32,
    /// The process that opened or closed it, and its name as it comes; none where none was seen at it.
    pub process: Option<(u32, String)>,
    /// Its last controller.
    pub controller: String,
    /// Payload bytes sent, with those sent again.
    pub bytes_sent: u64,
    /// Acknowledged, with SYN and FIN: see [`acked_payload`](Self::acked_payload).
    pub bytes_acked: u64,
    /// Received in order, with the FIN: see [`received_payload`](Self::received_payload).
    pub bytes_received: u64,
    /// Payload bytes sent again.
    pub bytes_retrans: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Of those sent, with data.
    pub data_segs_out: u32,
    /// Of those received, with data.
    pub data_segs_in: u32,
    /// Segments sent again: SYN, SYN-ACK and FIN as well.
    pub total_retrans: u32,
    /// Duplicates that the other end reported by DSACK.
    pub dsack_dups: u32,
    /// Times that reordering was seen.
    pub reord_seen: u32,
    /// Segments that arrived out of order.
    pub rcv_ooopack: u32,
    /// Segments delivered.
    pub delivered: u32,
    /// Of these, reported as marked by ECN.
    pub delivered_ce: u32,
    /// Retransmission time-outs.
    pub total_rto: u16,
    /// Smoothed RTT; none without a sample.
    pub srtt: Option<Span>,
    /// The least RTT of the last minutes (`tcp_min_rtt_wlen`); none without a sample.
    pub min_rtt: Option<Span>,
    /// Last congestion window in segments.
    pub snd_cwnd: u32,
    /// Slow-start threshold in segments; 2³¹−1 until the first reduction.
    pub snd_ssthresh: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// The segment size that the other end offered.
    pub peer_mss: u16,
    /// The last sample of the delivery rate.
    pub delivery_rate: Option<Rate>,
    /// Whether that was taken while the application had nothing to send.
    pub delivery_rate_app_limited: bool,
    /// Time with data to send or outstanding.
    pub busy: Span,
    /// Of it, time that the other end's receive window was the limit.
    pub rwnd_limited: Span,
    /// Of it, time that the send buffer was the limit.
    pub sndbuf_limited: Span,
    /// Since data was last sent.
    pub idle: Span,
    /// What the handshake agreed on.
    pub options: NegotiatedOptions,
}

/// How a connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Whether this end did: it connected. The other end did where it was accepted.
    pub active: bool,
    /// When: the SYN leaves here, or the handshake from there is complete. On the kernel's monotonic clock.
    pub at: Time,
}

/// What both ends agreed on in the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegotiatedOptions {
    /// Selective acknowledgments.
    pub sack: bool,
    /// Timestamps.
    pub timestamps: bool,
    /// Powers of two of the windows' units: the other end's, and its own.
    pub window_scale: Option<(u8, u8)>,
    /// Explicit congestion notification.
    pub ecn: bool,
}

impl ClosedSocket {
    /// Payload bytes that the other end acknowledged.
    ///
    /// The kernel counts by sequence numbers (`tcp_snd_una_update`), of which a SYN and a FIN have one each; the SYN-ACK's
    /// acknowledgment comes before the socket that is accepted counts.
    pub fn acked_payload(&self) -> u64 {
        let syn = self.opened.is_some_and(|opened| opened.active) && self.bytes_acked > 0;
        let fin = match self.state {
            State::FinWait2 => true,
            State::FinWait1 | State::Closing | State::LastAck => self.all_acked,
            _ => false,
        };
        self.bytes_acked.saturating_sub(u64::from(syn) + u64::from(fin))
    }

    /// Payload bytes that came, in order.
    pub fn received_payload(&self) -> u64 {
        self.bytes_received.saturating_sub(self.fin_received.into())
    }

    /// Whether the handshake was completed.
    pub fn was_established(&self) -> bool {
        self.state != State::SynSent && self.state != State::SynRecv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of ours that sent a thousand bytes, got two thousand, and closed first.
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
    fn a_syn_and_a_fin_are_no_payload() {
        let here = example();
        assert_eq!((here.acked_payload(), here.received_payload()), (1000, 2000));
        let opened = Some(Opening { active: false, at: Time::from_nanos(5) });
        let there = ClosedSocket { opened, bytes_acked: 1001, state: State::LastAck, ..example() };
        assert_eq!(there.acked_payload(), 1000);
        // Reset: nothing of ours ended it, and no FIN came.
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
