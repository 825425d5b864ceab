//! Converts a closed socket's counters into a connection record.

use crate::limits::window_or_bandwidth;
use crate::owner::Owner;
use fullpipe_experiment::connection::{self, Closing, Connection, Direction, Handshake, Heading};
use fullpipe_experiment::connection::{Ecn, LimitShare, Limitation, Limits, Opening, Options, Place, Point};
use fullpipe_experiment::connection::{Reordering, Retransmissions, RoundTrips, Socket, Vantage};
use fullpipe_kernel::closed::ClosedSocket;
use fullpipe_kernel::printable;
use fullpipe_kernel::tcp_info::{PathSender, State};
use fullpipe_units::{Rate, Span, Time};

/// Minimum segments and time to determine the limits.
const MIN_SEGMENTS: u32 = 10;
const MIN_TIME: Span = Span::from_millis(50);

/// The record of `closed`. The record of a connection that was open before `began` starts then.
pub(super) fn record(
    closed: &ClosedSocket,
    owner: &Owner,
    began: Time,
    epoch: f64,
    number: u32,
) -> Connection {
    // If it was open before, assume that the end with the lower port is the server: clients use
    // ephemeral ports.
    let active = closed.opened.map_or(closed.local.port() > closed.remote.port(), |opened| opened.active);
    let start = closed.opened.map_or(began, |opened| opened.at);
    let duration = closed.closed.since(start.min(closed.closed));
    let handshake = match closed.opened {
        None => Handshake::NotSeen,
        Some(_) if closed.was_established() => Handshake::Seen,
        Some(_) => Handshake::Half,
    };
    let sent = sent(closed, duration);
    let received = received(closed);
    let (client, server) = if active { (closed.local, closed.remote) } else { (closed.remote, closed.local) };
    let (to_server, to_client) = if active { (sent, received) } else { (received, sent) };
    Connection {
        number,
        client,
        server,
        start_s: epoch + start.as_secs_f64(),
        duration,
        opening: Opening { handshake, ..Opening::default() },
        closing: closing(closed, active),
        vantage: Vantage { point: if active { Point::Client } else { Point::Server }, ..Vantage::default() },
        to_server,
        to_client,
        notes: match closed.opened {
            Some(_) => Vec::new(),
            None => vec![
                "already open when recording started: start and duration count from then, bytes and \
                 segments from the connection's beginning; which end opened it is inferred from the ports"
                    .to_owned(),
            ],
        },
        socket: Some(Box::new(socket(closed, owner, active))),
        log: None,
    }
}

/// Error numbers (asm-generic/errno.h).
const EPIPE: u32 = 32;
const ECONNABORTED: u32 = 103;
const ECONNRESET: u32 = 104;
const ECONNREFUSED: u32 = 111;

fn closing(closed: &ClosedSocket, active: bool) -> Closing {
    let reset_by = |by_client| if by_client { Closing::ResetByClient } else { Closing::ResetByServer };
    match (closed.error, closed.state) {
        // tcp_reset()
        (EPIPE | ECONNRESET | ECONNREFUSED, _) => reset_by(!active),
        // tcp_abort()
        (ECONNABORTED, _) => reset_by(active),
        (0, State::LastAck | State::Closing) => Closing::Closed,
        (0, State::FinWait1 | State::FinWait2) if closed.fin_received => Closing::Closed,
        (0, State::FinWait1 | State::FinWait2) => Closing::HalfClosed,
        // The process gave up before the handshake completed: no packet ends the connection.
        (0, State::SynSent) => Closing::HalfClosed,
        // Closed with unread data, or with SO_LINGER of zero (tcp_close()).
        (0, _) => reset_by(active),
        // tcp_write_err(), possibly with an ICMP error.
        _ => Closing::TimedOut,
    }
}

/// The direction that the socket sent.
fn sent(closed: &ClosedSocket, duration: Span) -> Direction {
    let bytes = closed.acked_payload();
    let active = if closed.bytes_sent == 0 {
        Span::ZERO
    } else {
        // Until the last data was acknowledged, one round trip after it was sent; at least the busy time.
        let last = Span::from_nanos(duration.as_nanos().saturating_sub(closed.idle.as_nanos()));
        (last + closed.srtt.unwrap_or(Span::ZERO)).max(closed.busy).min(duration)
    };
    let negotiated = &closed.options;
    Direction {
        place: Place::Sender,
        bytes,
        bytes_sent: closed.bytes_sent,
        packets: closed.segs_out.into(),
        data_packets: closed.data_segs_out.into(),
        segments: closed.data_segs_out.into(),
        segment_bytes: Some(closed.mss).filter(|mss| *mss > 0 && closed.was_established()),
        active,
        goodput: (bytes > 0 && !active.is_zero()).then(|| Rate::from_bytes_in(bytes, active)),
        options: Options { window_scale: negotiated.window_scale.map(|(_, own)| own), ..options(closed) },
        rtprop: closed.min_rtt,
        rtt: RoundTrips { min: closed.min_rtt, ..RoundTrips::default() },
        retransmissions: Retransmissions {
            segments: closed.total_retrans.into(),
            bytes: closed.bytes_retrans,
            // Each timeout retransmits at least one segment.
            timeout: u64::from(closed.total_rto).min(closed.total_retrans.into()),
            spurious: closed.dsack_dups.min(closed.total_retrans).into(),
            ..Retransmissions::default()
        },
        lost_segments: closed.total_retrans.saturating_sub(closed.dsack_dups).into(),
        ecn: Ecn {
            agreed: closed.opened.map(|_| negotiated.ecn),
            marked_packets: closed.delivered_ce.into(),
            ..Ecn::default()
        },
        limits: Limits { shares: shares(closed, active), ..Limits::default() },
        ..Direction::default()
    }
}

/// The direction that the socket received.
fn received(closed: &ClosedSocket) -> Direction {
    let bytes = closed.received_payload();
    Direction {
        place: Place::Receiver,
        bytes,
        bytes_sent: bytes,
        packets: closed.segs_in.into(),
        data_packets: closed.data_segs_in.into(),
        segments: closed.data_segs_in.into(),
        options: Options {
            mss: Some(closed.peer_mss).filter(|mss| *mss > 0 && closed.was_established()),
            window_scale: closed.options.window_scale.map(|(peer, _)| peer),
            ..options(closed)
        },
        reordering: Reordering { segments: closed.rcv_ooopack.into(), ..Reordering::default() },
        ..Direction::default()
    }
}

/// Options in use; options offered by one end only are unknown.
fn options(closed: &ClosedSocket) -> Options {
    Options {
        sack: closed.options.sack.then_some(true),
        timestamps: closed.options.timestamps.then_some(true),
        ..Options::default()
    }
}

/// What limited the socket while it had data to send, from the kernel's time accounting.
fn shares(closed: &ClosedSocket, active: Span) -> Vec<LimitShare> {
    if closed.data_segs_out < MIN_SEGMENTS || active < MIN_TIME {
        return Vec::new();
    }
    let whole = active.as_secs_f64();
    let part = |span: Span| (span.as_secs_f64() / whole).clamp(0.0, 1.0);
    let busy = part(closed.busy);
    let receiver = part(closed.rwnd_limited).min(busy);
    let buffer = part(closed.sndbuf_limited).min(busy - receiver);
    // A closed socket has no model any more: only its controller's name identifies BBR.
    let sender = PathSender {
        controller: &closed.controller,
        loss: f64::from(closed.total_retrans) / f64::from(closed.data_segs_out.max(1)),
        srtt: closed.srtt.unwrap_or(Span::ZERO),
        min_rtt: closed.min_rtt,
        ..PathSender::default()
    };
    let network = window_or_bandwidth(&sender);
    let mut shares = vec![
        (Limitation::Application, 1.0 - busy),
        (Limitation::ReceiveWindow, receiver),
        (Limitation::SendBuffer, buffer),
        (network, busy - receiver - buffer),
    ]
    .into_iter()
    .map(|(by, share)| LimitShare { by, share })
    .filter(|s| s.share > 0.0)
    .collect::<Vec<_>>();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}

fn socket(closed: &ClosedSocket, owner: &Owner, active: bool) -> Socket {
    /// `TCP_INFINITE_SSTHRESH`.
    const INFINITE: u32 = 0x7fff_ffff;
    Socket {
        sends: if active { Heading::ToServer } else { Heading::ToClient },
        controller: Some(printable::line(&closed.controller).into_owned()),
        owner: connection::Owner {
            pid: owner.process.as_ref().map(|p| p.pid),
            process: owner.process.as_ref().map(|p| p.name.clone()),
            uid: Some(closed.uid),
            cgroup: owner.cgroup.as_deref().map(str::to_owned),
            cgroup_id: closed.cgroup,
            unit: owner.unit().map(str::to_owned),
            container: owner.container().map(str::to_owned),
        },
        cookie: closed.cookie.map(u64::from),
        namespace: Some(closed.netns),
        namespace_cookie: Some(closed.netns_cookie),
        ipv6: closed.remote.is_ipv6(),
        errno: Some(closed.error).filter(|error| *error != 0),
        srtt: closed.srtt,
        cwnd_segments: closed.snd_cwnd,
        ssthresh_segments: Some(closed.snd_ssthresh).filter(|segments| *segments < INFINITE),
        delivery: closed.delivery_rate,
        delivery_app_limited: closed.delivery_rate_app_limited,
        delivered_segments: closed.delivered.into(),
        timeouts: closed.total_rto.into(),
        reordering_seen: closed.reord_seen.into(),
        busy: closed.busy,
        receive_window_limited: closed.rwnd_limited,
        send_buffer_limited: closed.sndbuf_limited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use crate::records::{Anonymiser, Records};
    use fullpipe_kernel::closed::{NegotiatedOptions, Opening};

    /// A download of 10 MB in two seconds, half of the time limited by the receive window.
    fn example() -> ClosedSocket {
        ClosedSocket {
            local: "10.1.2.3:443".parse().unwrap(),
            remote: "192.0.2.77:50000".parse().unwrap(),
            opened: Some(Opening { active: false, at: Time::from_nanos(1_000_000_000) }),
            closed: Time::from_nanos(4_000_000_000),
            state: State::FinWait2,
            error: 0,
            fin_received: true,
            all_acked: true,
            cookie: None,
            netns: 4_026_531_840,
            netns_cookie: 1,
            cgroup: None,
            uid: 33,
            process: Some((42, "ng\x1b[2Jinx".to_owned())),
            controller: "bbr".to_owned(),
            bytes_sent: 10_100_000,
            bytes_acked: 10_000_001,
            bytes_received: 301,
            bytes_retrans: 100_000,
            segs_out: 7100,
            segs_in: 3600,
            data_segs_out: 7000,
            data_segs_in: 1,
            total_retrans: 70,
            dsack_dups: 20,
            reord_seen: 1,
            rcv_ooopack: 0,
            delivered: 6930,
            delivered_ce: 0,
            total_rto: 1,
            srtt: Some(Span::from_millis(41)),
            min_rtt: Some(Span::from_millis(40)),
            snd_cwnd: 200,
            snd_ssthresh: 0x7fff_ffff,
            mss: 1448,
            peer_mss: 1460,
            delivery_rate: Some(Rate::from_bits_per_sec(48_000_000)),
            delivery_rate_app_limited: true,
            busy: Span::from_secs(2),
            rwnd_limited: Span::from_secs(1),
            sndbuf_limited: Span::ZERO,
            idle: Span::from_millis(1041),
            options: NegotiatedOptions {
                sack: true,
                timestamps: true,
                window_scale: Some((7, 10)),
                ecn: false,
            },
        }
    }

    fn records(filter: &str) -> Records {
        Records::new(Filter::parse(filter).unwrap(), None, Time::from_nanos(3_500_000_000))
    }

    fn record(closed: &ClosedSocket) -> Connection {
        records("").record(closed, 1.8e9).unwrap()
    }

    #[test]
    fn a_download_is_recorded_with_endpoints_and_limits() {
        let c = record(&example());
        assert_eq!((c.client, c.server), (example().remote, example().local));
        assert_eq!((c.start_s, c.duration), (1.8e9 + 1.0, Span::from_secs(3)));
        assert_eq!(
            (c.opening.handshake, c.closing, c.vantage.point),
            (Handshake::Seen, Closing::Closed, Point::Server)
        );
        assert_eq!((c.to_client.bytes, c.to_server.bytes), (10_000_000, 300));
        assert_eq!(c.to_client.active, Span::from_secs(2));
        assert_eq!(c.to_client.goodput, Some(Rate::from_bytes_per_sec(5_000_000)));
        let retransmissions = &c.to_client.retransmissions;
        assert_eq!(
            (
                retransmissions.segments,
                retransmissions.spurious,
                retransmissions.timeout,
                c.to_client.lost_segments
            ),
            (70, 20, 1, 50)
        );
        let shares: Vec<_> = c.to_client.limits.shares.iter().map(|s| (s.by, s.share)).collect();
        assert_eq!(shares, [(Limitation::ReceiveWindow, 0.5), (Limitation::Bandwidth, 0.5)]);
        let socket = c.socket.unwrap();
        assert_eq!((socket.sends, socket.controller.as_deref()), (Heading::ToClient, Some("bbr")));
        assert_eq!(socket.owner.process.as_deref(), Some("ng\\u{1b}[2Jinx"));
        assert_eq!((socket.ssthresh_segments, socket.owner.uid), (None, Some(33)));
    }

    #[test]
    fn closing_follows_from_error_and_state() {
        let closing = |state, error, fin_received, active| {
            let opened = Some(Opening { active, at: Time::from_nanos(0) });
            record(&ClosedSocket { state, error, fin_received, opened, ..example() }).closing
        };
        assert_eq!(closing(State::LastAck, 0, true, false), Closing::Closed);
        assert_eq!(closing(State::FinWait2, 0, false, false), Closing::HalfClosed);
        assert_eq!(closing(State::Established, 104, false, true), Closing::ResetByServer);
        assert_eq!(closing(State::CloseWait, 32, true, false), Closing::ResetByClient);
        assert_eq!(closing(State::SynSent, 111, false, true), Closing::ResetByServer);
        assert_eq!(closing(State::Established, 0, false, true), Closing::ResetByClient);
        assert_eq!(closing(State::CloseWait, 0, true, false), Closing::ResetByServer);
        assert_eq!(closing(State::Established, 110, false, true), Closing::TimedOut);
        assert_eq!(closing(State::SynSent, 113, false, true), Closing::TimedOut);
        assert_eq!(closing(State::SynSent, 0, false, true), Closing::HalfClosed);
    }

    #[test]
    fn a_connection_open_before_recording_has_a_note() {
        let c = record(&ClosedSocket { opened: None, ..example() });
        assert_eq!((c.opening.handshake, c.duration), (Handshake::NotSeen, Span::from_millis(500)));
        assert_eq!((c.vantage.point, c.server.port(), c.notes.len()), (Point::Server, 443, 1));
    }

    #[test]
    fn filters_apply_to_closed_connections() {
        for (filter, wanted) in [
            ("sport = :443 and dst 192.0.2.0/24", true),
            ("controller cubic", false),
            ("pid 42 and not process nginx", true),
        ] {
            assert_eq!(records(filter).record(&example(), 0.0).is_some(), wanted, "{filter}");
        }
    }

    #[test]
    fn addresses_are_anonymised_and_ports_are_not() {
        let mut records = Records::new(Filter::everything(), Some(Anonymiser::Prefix), Time::from_nanos(0));
        let c = records.record(&example(), 0.0).unwrap();
        assert_eq!(
            (c.client.to_string().as_str(), c.server.to_string().as_str()),
            ("192.0.2.0:50000", "10.1.2.0:443")
        );
    }
}
