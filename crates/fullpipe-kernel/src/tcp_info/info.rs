//! `TCP_INFO`: state and counters of one connection.

use crate::sockopt;
use fullpipe_units::{Rate, Span};
use std::io;
use std::os::fd::AsFd;

/// The state of a connection (`include/net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[allow(missing_docs)] // the names are those of RFC 9293
pub enum State {
    Established,
    SynSent,
    SynRecv,
    FinWait1,
    FinWait2,
    TimeWait,
    Close,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    Other(u8),
}

impl State {
    /// Converts the kernel's number.
    pub fn from_number(number: u8) -> Self {
        use State::*;
        const KNOWN: [State; 11] = [
            Established,
            SynSent,
            SynRecv,
            FinWait1,
            FinWait2,
            TimeWait,
            Close,
            CloseWait,
            LastAck,
            Listen,
            Closing,
        ];
        KNOWN.get(usize::from(number).wrapping_sub(1)).copied().unwrap_or(Other(number))
    }
}

/// The state of loss recovery (`enum tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum CaState {
    /// No sign of loss.
    Open,
    /// SACKs or duplicate ACKs received; no loss yet.
    Disorder,
    /// cwnd is being reduced after an ECN mark or a local drop.
    Cwr,
    /// Fast retransmit.
    Recovery,
    /// After a retransmission timeout.
    Loss,
    /// An unknown number.
    Other(u8),
}

impl CaState {
    fn from_number(number: u8) -> Self {
        match number {
            0 => CaState::Open,
            1 => CaState::Disorder,
            2 => CaState::Cwr,
            3 => CaState::Recovery,
            4 => CaState::Loss,
            other => CaState::Other(other),
        }
    }
}

/// `struct tcp_info`. Counts of segments are plain numbers; a field that newer kernels appended is
/// an `Option` with the version that brought it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct TcpInfo {
    /// The state of the connection.
    pub state: State,
    /// The state of loss recovery.
    pub ca_state: CaState,
    /// Consecutive retransmission timeouts of the outstanding segment.
    pub retransmits: u8,
    /// Zero-window probes unanswered.
    pub probes: u8,
    /// Doublings of the retransmission timer.
    pub backoff: u8,
    /// `TCPI_OPT_*`: 1 timestamps, 2 SACK, 4 window scaling, 8 ECN, 16 ECN seen, 32 data in the
    /// SYN.
    pub options: u8,
    /// Window scale of the peer.
    pub snd_wscale: u8,
    /// Own window scale.
    pub rcv_wscale: u8,
    /// Whether [`delivery_rate`](Self::delivery_rate) was application-limited.
    pub delivery_rate_app_limited: bool,
    /// Retransmission timeout.
    pub rto: Span,
    /// Delayed-ACK timer.
    pub ato: Span,
    /// Bytes of payload in a full segment sent.
    pub snd_mss: u32,
    /// Bytes of payload in the largest segments received lately.
    pub rcv_mss: u32,
    /// Segments sent and not yet cumulatively acknowledged.
    pub unacked: u32,
    /// Of these, segments reported by SACK.
    pub sacked: u32,
    /// Of these, segments believed lost.
    pub lost: u32,
    /// Of these, segments retransmitted and still out.
    pub retrans: u32,
    /// Time since data was last sent.
    pub last_data_sent: Span,
    /// Time since data was last received.
    pub last_data_recv: Span,
    /// Time since an ACK was last received.
    pub last_ack_recv: Span,
    /// Path MTU in bytes.
    pub pmtu: u32,
    /// Own receive window with an empty buffer, bytes.
    pub rcv_ssthresh: u32,
    /// Smoothed RTT.
    pub rtt: Span,
    /// Mean deviation of the RTT.
    pub rttvar: Span,
    /// Slow-start threshold in segments; 2³¹−1 until the first reduction.
    pub snd_ssthresh: u32,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Own announced MSS, bytes.
    pub advmss: u32,
    /// Segments of reordering tolerated before a loss is assumed.
    pub reordering: u32,
    /// The RTT as the receiving side estimates it; zero when unknown.
    pub rcv_rtt: Span,
    /// Bytes that the application read per RTT.
    pub rcv_space: u32,
    /// Segments retransmitted since the connection began.
    pub total_retrans: u32,
    /// Pacing rate; `None` when not paced. Linux 3.15.
    pub pacing_rate: Option<Rate>,
    /// The application's bound on the pacing rate; `None` without one. Linux 3.15.
    pub max_pacing_rate: Option<Rate>,
    /// Bytes cumulatively acknowledged. Linux 4.1.
    pub bytes_acked: Option<u64>,
    /// Bytes received in order. Linux 4.1.
    pub bytes_received: Option<u64>,
    /// Segments sent. Linux 4.2.
    pub segs_out: Option<u32>,
    /// Segments received. Linux 4.2.
    pub segs_in: Option<u32>,
    /// Bytes in the send buffer that were never sent. Linux 4.6.
    pub notsent_bytes: Option<u32>,
    /// The lowest RTT in the last minutes (`tcp_min_rtt_wlen`); `None` before the first sample.
    /// Linux 4.6.
    pub min_rtt: Option<Span>,
    /// Segments with data received. Linux 4.6.
    pub data_segs_in: Option<u32>,
    /// Segments with data sent. Linux 4.6.
    pub data_segs_out: Option<u32>,
    /// The latest delivery-rate sample. Linux 4.9.
    pub delivery_rate: Option<Rate>,
    /// Time with data queued or outstanding. Linux 4.10.
    pub busy_time: Option<Span>,
    /// Part of it limited by the peer's receive window. Linux 4.10.
    pub rwnd_limited: Option<Span>,
    /// Part of it limited by the send buffer. Linux 4.10.
    pub sndbuf_limited: Option<Span>,
    /// Segments delivered, with retransmissions. Linux 4.18.
    pub delivered: Option<u32>,
    /// Of these, reported as ECN-marked. Linux 4.18.
    pub delivered_ce: Option<u32>,
    /// Bytes of payload sent, with retransmissions. Linux 4.19.
    pub bytes_sent: Option<u64>,
    /// Bytes of payload retransmitted. Linux 4.19.
    pub bytes_retrans: Option<u64>,
    /// Duplicates the peer reported by DSACK. Linux 4.19.
    pub dsack_dups: Option<u32>,
    /// Reordering events. Linux 4.19.
    pub reord_seen: Option<u32>,
    /// Segments that arrived out of order. Linux 5.4.
    pub rcv_ooopack: Option<u32>,
    /// The receive window the peer announced, bytes. Linux 5.4.
    pub snd_wnd: Option<u32>,
    /// Own announced receive window, bytes. Linux 6.2.
    pub rcv_wnd: Option<u32>,
    /// Times the flow's hash was changed to find another path. Linux 6.2.
    pub rehash: Option<u32>,
    /// Retransmission timeouts since the connection began. Linux 6.7.
    pub total_rto: Option<u16>,
    /// Recoveries from a timeout. Linux 6.7.
    pub total_rto_recoveries: Option<u16>,
    /// Time spent in these recoveries. Linux 6.7.
    pub total_rto_time: Option<Span>,
    /// Segments received with a CE mark. Linux 6.18 (Accurate ECN).
    pub received_ce: Option<u32>,
    /// Bytes of the peer's report delivered with a CE mark. Linux 6.18.
    pub delivered_ce_bytes: Option<u32>,
    /// Bytes received with a CE mark. Linux 6.18.
    pub received_ce_bytes: Option<u32>,
}

/// Length up to and including `tcpi_total_retrans`, which every kernel since 2.6 fills in.
const MIN_LENGTH: usize = 104;

/// Fields by their offset; `None` past the end of what the kernel filled in.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset + N)?.try_into().ok()
    }

    fn u16(&self, offset: usize) -> Option<u16> {
        self.at(offset).map(u16::from_ne_bytes)
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        self.at(offset).map(u32::from_ne_bytes)
    }

    fn u64(&self, offset: usize) -> Option<u64> {
        self.at(offset).map(u64::from_ne_bytes)
    }

    fn micros(&self, offset: usize) -> Option<Span> {
        self.u32(offset).map(|us| Span::from_micros(us.into()))
    }

    fn millis(&self, offset: usize) -> Option<Span> {
        self.u32(offset).map(|ms| Span::from_millis(ms.into()))
    }

    fn micros64(&self, offset: usize) -> Option<Span> {
        self.u64(offset).map(Span::from_micros)
    }

    /// A rate in bytes per second; all ones means none.
    fn rate(&self, offset: usize) -> Option<Rate> {
        let bytes_per_sec = self.u64(offset)?;
        (bytes_per_sec != u64::MAX && bytes_per_sec != u64::from(u32::MAX))
            .then(|| Rate::from_bytes_per_sec(bytes_per_sec))
    }
}

impl TcpInfo {
    /// Queries a socket.
    ///
    /// # Errors
    /// When the descriptor is not a TCP socket, or the kernel's reply is too short.
    pub fn query(socket: &impl AsFd) -> io::Result<TcpInfo> {
        let mut bytes = [0; 512];
        let length = sockopt::get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        TcpInfo::decode(&bytes[..length]).ok_or_else(|| {
            io::Error::other(format!(
                "the kernel returned {length} bytes of TCP_INFO, at least {MIN_LENGTH} are required"
            ))
        })
    }

    /// Decodes `struct tcp_info`, complete or truncated; `None` if shorter than what every kernel
    /// since 2.6 writes.
    pub fn decode(bytes: &[u8]) -> Option<TcpInfo> {
        if bytes.len() < MIN_LENGTH {
            return None;
        }
        let f = Fields(bytes);
        Some(TcpInfo {
            state: State::from_number(bytes[0]),
            ca_state: CaState::from_number(bytes[1]),
            retransmits: bytes[2],
            probes: bytes[3],
            backoff: bytes[4],
            options: bytes[5],
            snd_wscale: low_bits(bytes[6], 0, 4),
            rcv_wscale: low_bits(bytes[6], 4, 4),
            delivery_rate_app_limited: low_bits(bytes[7], 0, 1) != 0,
            rto: f.micros(8)?,
            ato: f.micros(12)?,
            snd_mss: f.u32(16)?,
            rcv_mss: f.u32(20)?,
            unacked: f.u32(24)?,
            sacked: f.u32(28)?,
            lost: f.u32(32)?,
            retrans: f.u32(36)?,
            last_data_sent: f.millis(44)?,
            last_data_recv: f.millis(52)?,
            last_ack_recv: f.millis(56)?,
            pmtu: f.u32(60)?,
            rcv_ssthresh: f.u32(64)?,
            rtt: f.micros(68)?,
            rttvar: f.micros(72)?,
            snd_ssthresh: f.u32(76)?,
            snd_cwnd: f.u32(80)?,
            advmss: f.u32(84)?,
            reordering: f.u32(88)?,
            rcv_rtt: f.micros(92)?,
            rcv_space: f.u32(96)?,
            total_retrans: f.u32(100)?,
            pacing_rate: f.rate(104),
            max_pacing_rate: f.rate(112),
            bytes_acked: f.u64(120),
            bytes_received: f.u64(128),
            segs_out: f.u32(136),
            segs_in: f.u32(140),
            notsent_bytes: f.u32(144),
            min_rtt: f.u32(148).filter(|&us| us != u32::MAX).map(|us| Span::from_micros(us.into())),
            data_segs_in: f.u32(152),
            data_segs_out: f.u32(156),
            delivery_rate: f.rate(160),
            busy_time: f.micros64(168),
            rwnd_limited: f.micros64(176),
            sndbuf_limited: f.micros64(184),
            delivered: f.u32(192),
            delivered_ce: f.u32(196),
            bytes_sent: f.u64(200),
            bytes_retrans: f.u64(208),
            dsack_dups: f.u32(216),
            reord_seen: f.u32(220),
            rcv_ooopack: f.u32(224),
            snd_wnd: f.u32(228),
            rcv_wnd: f.u32(232),
            rehash: f.u32(236),
            total_rto: f.u16(240),
            total_rto_recoveries: f.u16(242),
            total_rto_time: f.millis(244),
            received_ce: f.u32(248),
            delivered_ce_bytes: f.u32(260),
            received_ce_bytes: f.u32(272),
        })
    }

    /// Congestion window in bytes.
    pub fn cwnd_bytes(&self) -> u64 {
        u64::from(self.snd_cwnd) * u64::from(self.snd_mss)
    }

    /// Segments in flight as the kernel counts them (`tcp_packets_in_flight`).
    pub fn inflight(&self) -> u32 {
        self.unacked.saturating_add(self.retrans).saturating_sub(self.sacked.saturating_add(self.lost))
    }

    /// Whether this socket is still in slow start.
    pub fn in_slow_start(&self) -> bool {
        self.snd_cwnd < self.snd_ssthresh
    }
}

/// `count` bits of a bit-field byte after the first `skip` declared ones: C compilers allocate from
/// the low end on little-endian machines and from the high end on big-endian ones.
fn low_bits(byte: u8, skip: u32, count: u32) -> u8 {
    let shift = if cfg!(target_endian = "little") { skip } else { 8 - skip - count };
    (byte >> shift) & ((1 << count) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn counters_reflect_transferred_data() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 10_000]).unwrap();
        server.read_exact(&mut [0; 10_000]).unwrap();
        server.write_all(b"seen").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();

        let info = TcpInfo::query(&client).unwrap();
        assert_eq!(info.state, State::Established);
        assert_eq!(info.ca_state, CaState::Open);
        assert_eq!(info.total_retrans, 0);
        assert!(info.snd_cwnd >= 10 && info.cwnd_bytes() > 10_000);
        assert!(!info.rtt.is_zero());
        // Present on any kernel this is tested on (5.4 and later).
        assert_eq!(info.bytes_acked, Some(10_001), "the SYN counts as one");
        assert_eq!(info.bytes_sent, Some(10_000));
        assert!(info.snd_wnd.is_some_and(|w| w > 0));
        assert!(info.busy_time.is_some());
        assert_eq!(TcpInfo::query(&server).unwrap().bytes_received, Some(10_000));
    }

    #[test]
    fn a_listening_socket_has_state_listen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(TcpInfo::query(&listener).unwrap().state, State::Listen);
    }

    #[test]
    fn fields_missing_in_older_kernels_are_none() {
        let full = TcpInfo::decode(&[1; 280]).unwrap();
        assert!(full.snd_wnd.is_some() && full.received_ce_bytes.is_some());
        let linux_4_9 = TcpInfo::decode(&[1; 168]).unwrap();
        assert!(linux_4_9.delivery_rate.is_some());
        assert_eq!(linux_4_9.busy_time, None);
        assert_eq!(linux_4_9.snd_wnd, None);
        assert_eq!(TcpInfo::decode(&[1; MIN_LENGTH - 1]), None);
    }

    #[test]
    fn unlimited_rates_are_none() {
        let info = TcpInfo::decode(&[0xff; 280]).unwrap();
        assert_eq!((info.pacing_rate, info.max_pacing_rate), (None, None));
        assert_eq!(info.min_rtt, None);
        assert_eq!(info.state, State::Other(255));
    }

    #[test]
    fn a_file_is_not_a_socket() {
        assert!(TcpInfo::query(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some(info) = TcpInfo::decode(&bytes) {
                let _ = (info.cwnd_bytes(), info.inflight(), info.in_slow_start());
            }
        }
    }
}
