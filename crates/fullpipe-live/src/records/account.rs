//! A socket's last account as the record of a connection.

use crate::limits::window_or_path;
use crate::owner::Owner;
use fullpipe_experiment::connection::{self, Closing, Connection, Direction, Handshake, Heading};
use fullpipe_experiment::connection::{Ecn, LimitShare, Limitation, Limits, Opening, Options, Place, Point};
use fullpipe_experiment::connection::{Reordering, Retransmissions, RoundTrips, Socket, Vantage};
use fullpipe_kernel::closed::ClosedSocket;
use fullpipe_kernel::printable;
use fullpipe_kernel::tcp_info::State;
use fullpipe_units::{Rate, Span, Time};

/// Fewer segments or less time do not tell what limited them.
const LEAST_SEGMENTS: u32 = 10;
const LEAST_TIME: Span = Span::from_millis(50);

/// The record of `closed`. Of a connection that was open before `began`, it begins then.
pub(super) fn record(
    closed: &ClosedSocket,
    owner: &Owner,
    began: Time,
    epoch: f64,
    number: u32,
) -> Connection {
    // Of one that was open before, the end with the lower port is believed to be the server: clients get high ones.
    let active = closed.opened.map_or(closed.local.port() > closed.remote.port(), |opened| opened.active);
    let start = closed.opened.map_or(began, |opened| opened.at);
    let duration = closed.closed.since(start.min(closed.closed));
    let handshake = match closed.opened {
        None => Handshake::NotSeen,
        Some(_) if closed.was_established() => Handshake::Seen,
        Some(_) => Handshake::Half,
    };
    let ours = ours(closed, duration);
    let theirs = theirs(closed);
    let (client, server) = if active { (closed.local, closed.remote) } else { (closed.remote, closed.local) };
    let (to_server, to_client) = if active { (ours, theirs) } else { (theirs, ours) };
    Connection {
        number,
        client,
        server,
        start_s: epoch + start.as_secs_f64(),
        duration,
        opening: Opening { handshake, ..Opening::default() },
        closing: closing(closed, active),
        vantage: Vantage {
            point: if active { Point::Client } else { Point::Server },
            evidence: Vec::new(),
        },
        to_server,
        to_client,
        notes: match closed.opened {
            Some(_) => Vec::new(),
            None => vec![
                "it was open before: start and duration are from the records' beginning, bytes and segments from its \
                 own; which end opened it is believed by the ports"
                    .to_owned(),
            ],
        },
        socket: Some(Box::new(socket(closed, owner, active))),
    }
}

/// The kernel's numbers of errors (asm-generic/errno.h).
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
        // Its process gave up before there was an answer: no packet ends it.
        (0, State::SynSent) => Closing::HalfClosed,
        // With data that nobody read, or told not to linger (tcp_close()).
        (0, _) => reset_by(active),
        // tcp_write_err(), with the reason that a router may have told.
        _ => Closing::TimedOut,
    }
}

/// The data that the socket sent.
fn ours(closed: &ClosedSocket, duration: Span) -> Direction {
    let bytes = closed.acked_payload();
    let active = if closed.bytes_sent == 0 {
        Span::ZERO
    } else {
        // To the last data, and its acknowledgment a round trip later; not less than it was busy.
        let last = Span::from_nanos(duration.as_nanos().saturating_sub(closed.idle.as_nanos()));
        (last + closed.srtt.unwrap_or(Span::ZERO)).max(closed.busy).min(duration)
    };
    let agreed = &closed.options;
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
        options: Options { window_scale: agreed.window_scale.map(|(_, own)| own), ..options(closed) },
        rtprop: closed.min_rtt,
        rtt: RoundTrips { min: closed.min_rtt, ..RoundTrips::default() },
        retransmissions: Retransmissions {
            segments: closed.total_retrans.into(),
            bytes: closed.bytes_retrans,
            // Each sends one segment again at the least.
            timeout: u64::from(closed.total_rto).min(closed.total_retrans.into()),
            spurious: closed.dsack_dups.min(closed.total_retrans).into(),
            ..Retransmissions::default()
        },
        lost_segments: closed.total_retrans.saturating_sub(closed.dsack_dups).into(),
        ecn: Ecn {
            agreed: closed.opened.map(|_| agreed.ecn),
            marked_packets: closed.delivered_ce.into(),
            ..Ecn::default()
        },
        limits: Limits { shares: shares(closed, active), ..Limits::default() },
        ..Direction::default()
    }
}

/// The data that came to it.
fn theirs(closed: &ClosedSocket) -> Direction {
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
            window_scale: closed.options.window_scale.map(|(theirs, _)| theirs),
            ..options(closed)
        },
        reordering: Reordering { segments: closed.rcv_ooopack.into(), ..Reordering::default() },
        ..Direction::default()
    }
}

/// What both ends took; what only one of them did is not known.
fn options(closed: &ClosedSocket) -> Options {
    Options {
        sack: closed.options.sack.then_some(true),
        timestamps: closed.options.timestamps.then_some(true),
        ..Options::default()
    }
}

/// What limited the socket while it had data to send, from the kernel's account of its time.
fn shares(closed: &ClosedSocket, active: Span) -> Vec<LimitShare> {
    if closed.data_segs_out < LEAST_SEGMENTS || active < LEAST_TIME {
        return Vec::new();
    }
    let whole = active.as_secs_f64();
    let part = |span: Span| (span.as_secs_f64() / whole).clamp(0.0, 1.0);
    let busy = part(closed.busy);
    let receiver = part(closed.rwnd_limited).min(busy);
    let buffer = part(closed.sndbuf_limited).min(busy - receiver);
    let network =
        window_or_path(closed.controller.contains("bbr"), closed.srtt.unwrap_or(Span::ZERO), closed.min_rtt);
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
    const NEVER: u32 = 0x7fff_ffff;
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
        ssthresh_segments: Some(closed.snd_ssthresh).filter(|segments| *segments < NEVER),
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

    /// A download from here: 10 MB in two seconds, of which the receiver's window held up a half.
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

    fn of(closed: &ClosedSocket) -> Connection {
        records("").record(closed, 1.8e9).unwrap()
    }

    #[test]
    fn a_download_is_told_with_both_ends_and_what_limited_it() {
        let c = of(&example());
        assert_eq!((c.client, c.server), (example().remote, example().local));
        assert_eq!((c.start_s, c.duration), (1.8e9 + 1.0, Span::from_secs(3)));
        assert_eq!(
            (c.opening.handshake, c.closing, c.vantage.point),
            (Handshake::Seen, Closing::Closed, Point::Server)
        );
        assert_eq!((c.to_client.bytes, c.to_server.bytes), (10_000_000, 300));
        assert_eq!(c.to_client.active, Span::from_secs(2));
        assert_eq!(c.to_client.goodput, Some(Rate::from_bytes_per_sec(5_000_000)));
        let again = &c.to_client.retransmissions;
        assert_eq!(
            (again.segments, again.spurious, again.timeout, c.to_client.lost_segments),
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
    fn how_it_ended_is_told_from_the_error_and_the_state() {
        let ended = |state, error, fin_received, here| {
            let opened = Some(Opening { active: here, at: Time::from_nanos(0) });
            of(&ClosedSocket { state, error, fin_received, opened, ..example() }).closing
        };
        assert_eq!(ended(State::LastAck, 0, true, false), Closing::Closed);
        assert_eq!(ended(State::FinWait2, 0, false, false), Closing::HalfClosed);
        assert_eq!(ended(State::Established, 104, false, true), Closing::ResetByServer);
        assert_eq!(ended(State::CloseWait, 32, true, false), Closing::ResetByClient);
        assert_eq!(ended(State::SynSent, 111, false, true), Closing::ResetByServer);
        assert_eq!(ended(State::Established, 0, false, true), Closing::ResetByClient);
        assert_eq!(ended(State::CloseWait, 0, true, false), Closing::ResetByServer);
        assert_eq!(ended(State::Established, 110, false, true), Closing::TimedOut);
        assert_eq!(ended(State::SynSent, 113, false, true), Closing::TimedOut);
        assert_eq!(ended(State::SynSent, 0, false, true), Closing::HalfClosed);
    }

    #[test]
    fn one_that_was_open_before_says_so() {
        let c = of(&ClosedSocket { opened: None, ..example() });
        assert_eq!((c.opening.handshake, c.duration), (Handshake::NotSeen, Span::from_millis(500)));
        assert_eq!((c.vantage.point, c.server.port(), c.notes.len()), (Point::Server, 443, 1));
    }

    #[test]
    fn filters_take_what_a_closed_connection_has() {
        for (filter, wanted) in [
            ("sport = :443 and dst 192.0.2.0/24", true),
            ("controller cubic", false),
            ("pid 42 and not process nginx", true),
        ] {
            assert_eq!(records(filter).record(&example(), 0.0).is_some(), wanted, "{filter}");
        }
    }

    #[test]
    fn addresses_are_replaced_and_ports_are_not() {
        let mut records = Records::new(Filter::everything(), Some(Anonymiser::Prefix), Time::from_nanos(0));
        let c = records.record(&example(), 0.0).unwrap();
        assert_eq!(
            (c.client.to_string().as_str(), c.server.to_string().as_str()),
            ("192.0.2.0:50000", "10.1.2.0:443")
        );
    }
}
