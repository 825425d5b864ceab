//! UDP probes between transfers: one request a second to each peer, and one record per minute.

use super::Shared;
use super::bucket::Bucket;
use super::stop::lock;
use crate::datagram::{self, DATAGRAM_LEN, Datagram, Kind, MINUTES, Name, ProbeCounter};
use crate::file::PROBE_BYTES;
use crate::message::Row;
use crate::record::{Minute, Pair, RttBand, SiteId};
use fullpipe_units::Span;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// A minute is closed this long after its end: replies may be in flight or lost.
const REPLY_GRACE: Duration = Duration::from_secs(30);
/// A minute is stored at most this long after its last probe.
pub(super) const MINUTE_DELAY: Duration = MINUTE.saturating_add(REPLY_GRACE).saturating_add(PROBE_INTERVAL);
/// Replies per second to one site, and burst; peers send one request a second.
const REPLY_RATE: [f64; 2] = [2.0, 4.0];
/// Relative and absolute (seconds) change of the RTT that indicates another path.
const RTT_CHANGE: [f64; 2] = [0.1, 0.001];

/// Sends requests and replies until the node stops.
pub(super) fn run(shared: &Shared, socket: &UdpSocket, epoch: u64) {
    let site = |id: SiteId| datagram::name(&shared.mesh.name, shared.name(id));
    let own = site(shared.site);
    let start = shared.now().steady;
    let peers = shared.peers().filter_map(|id| Some((id, datagram::key(shared.key(id)?))));
    let mut peers: Vec<Peer> = peers.map(|(id, key)| Peer::new(id, site(id), key, start)).collect();
    // Spread over the second, so that the probes of one site do not queue behind each other.
    let step = PROBE_INTERVAL / peers.len().max(1) as u32;
    for (i, peer) in peers.iter_mut().enumerate() {
        peer.due += step * i as u32;
        // Probes use the address of the last connection; before the first, only a literal address
        // is known.
        if let Ok(ip) = shared.mesh.sites[usize::from(peer.id)].address.parse::<IpAddr>() {
            let address = SocketAddr::new(ip, shared.mesh.sites[usize::from(peer.id)].port);
            lock(&shared.addresses)[usize::from(peer.id)].get_or_insert(address);
        }
    }
    let six = socket.local_addr().is_ok_and(|a| a.is_ipv6());
    let mut buffer = [0; DATAGRAM_LEN + 1];
    while !shared.stop.is_stopped() {
        let now = shared.now().steady;
        for peer in &mut peers {
            if now >= peer.due {
                // After a suspended period, missed probes are not caught up.
                peer.due = (peer.due + PROBE_INTERVAL).max(now);
                peer.send_request(shared, socket, own, epoch, start, six);
            }
            peer.close(shared, now, false);
        }
        let next = peers.iter().map(|p| p.due).min().unwrap_or(now + PROBE_INTERVAL);
        let wait = next.saturating_sub(shared.now().steady).clamp(Duration::from_millis(1), PROBE_INTERVAL);
        if socket.set_read_timeout(Some(wait)).is_err() {
            return;
        }
        match socket.recv_from(&mut buffer) {
            Ok((n, from)) => receive(shared, socket, own, &mut peers, &buffer[..n], from, epoch),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // An ICMP error for an earlier request; the missing reply counts as loss.
            Err(_) => {}
        }
    }
    for peer in &mut peers {
        peer.close(shared, shared.now().steady, true);
    }
}

fn receive(
    shared: &Shared,
    socket: &UdpSocket,
    own: Name,
    peers: &mut [Peer],
    bytes: &[u8],
    from: SocketAddr,
    epoch: u64,
) {
    let Ok((sender, to)) = Datagram::peek_names(bytes) else { return };
    let Some(peer) = peers.iter_mut().find(|p| p.name == sender && to == own) else { return };
    let Ok(received) = Datagram::open(bytes, &peer.key) else { return };
    let now = shared.now().steady;
    match received.kind {
        Kind::Request => {
            if let Some(reply) = peer.reply_to(&received, now)
                && shared.ledger.reserve_small(Some(peer.id), 2 * PROBE_BYTES, shared.now())
            {
                let _ = socket.send_to(&reply.to_bytes(own, peer.name, &peer.key), from);
            }
        }
        Kind::Reply if received.epoch == epoch => peer.record_reply(&received, now),
        Kind::Reply => {}
    }
}

/// The probe state of a peer.
struct Peer {
    id: SiteId,
    name: Name,
    key: [u8; 32],
    due: Duration,
    number: u64,
    /// Requests without a reply, with their send time.
    outstanding: VecDeque<(u64, Duration)>,
    minutes: VecDeque<OpenMinute>,
    received: ProbeCounter,
    /// Limits the replies to this peer.
    replies: Bucket,
    /// The minimum RTT when the route was last requested.
    route_rtt: Option<Span>,
}

/// A minute that is still open.
struct OpenMinute {
    number: u32,
    ends: Duration,
    at_ms: i64,
    sent: u16,
    arrived: u16,
    rtts: Vec<Duration>,
}

impl Peer {
    fn new(id: SiteId, name: Name, key: [u8; 32], start: Duration) -> Peer {
        Peer {
            id,
            name,
            key,
            due: start,
            number: 0,
            outstanding: VecDeque::new(),
            minutes: VecDeque::new(),
            received: ProbeCounter::default(),
            replies: Bucket::new(REPLY_RATE[0], REPLY_RATE[1], start),
            route_rtt: None,
        }
    }

    /// The reply to a request. Replayed requests, which anyone can send, get none and do not count
    /// towards the limit.
    fn reply_to(&mut self, request: &Datagram, now: Duration) -> Option<Datagram> {
        let arrived = self.received.record(request)?;
        let reply = Datagram { kind: Kind::Reply, arrived, ..*request };
        self.replies.try_take(now).then_some(reply)
    }

    fn send_request(
        &mut self,
        shared: &Shared,
        socket: &UdpSocket,
        own: Name,
        epoch: u64,
        start: Duration,
        six: bool,
    ) {
        let moment = shared.now();
        let since = moment.steady.saturating_sub(start);
        let number = (since.as_secs() / MINUTE.as_secs()) as u32;
        if self.minutes.back().is_none_or(|m| m.number != number) {
            let begun = MINUTE * number;
            self.minutes.push_back(OpenMinute {
                number,
                ends: start + begun + MINUTE,
                at_ms: moment.wall_ms - (since - begun).as_millis() as i64,
                sent: 0,
                arrived: 0,
                rtts: Vec::with_capacity(60),
            });
        }
        let Some(mut address) = lock(&shared.addresses)[usize::from(self.id)] else { return };
        // A probe queued behind a transfer would measure the transfer.
        if shared.line.is_busy_with(self.id)
            || !shared.ledger.reserve_small(Some(self.id), 2 * PROBE_BYTES, moment)
        {
            return;
        }
        if let (true, IpAddr::V4(ip)) = (six, address.ip()) {
            address.set_ip(ip.to_ipv6_mapped().into());
        }
        self.number += 1;
        let request = Datagram {
            kind: Kind::Request,
            epoch,
            number: self.number,
            minute: number,
            stamp: moment.steady.as_nanos() as u64,
            arrived: [0; MINUTES],
        };
        if let Some(minute) = self.minutes.back_mut() {
            minute.sent += 1;
        }
        self.outstanding.push_back((self.number, moment.steady));
        if self.outstanding.len() > 256 {
            self.outstanding.pop_front();
        }
        // A probe that the kernel refuses (no route, no buffer) counts as lost.
        let _ = socket.send_to(&request.to_bytes(own, self.name, &self.key), address);
    }

    fn record_reply(&mut self, reply: &Datagram, now: Duration) {
        // Only the first reply counts, timed by the node's own record.
        let Some(at) = self.outstanding.iter().position(|(number, _)| *number == reply.number) else {
            return;
        };
        let Some((_, outstanding)) = self.outstanding.remove(at) else { return };
        for minute in &mut self.minutes {
            let Some(ago) = reply.minute.checked_sub(minute.number) else { continue };
            if let Some(arrived) = reply.arrived.get(ago as usize) {
                minute.arrived = minute.arrived.max((*arrived).min(minute.sent));
            }
            if ago == 0 {
                minute.rtts.push(now.saturating_sub(outstanding));
            }
        }
    }

    /// Stores minutes that have ended; all of them with `all`.
    fn close(&mut self, shared: &Shared, now: Duration, all: bool) {
        while self.minutes.front().is_some_and(|m| all || now >= m.ends + REPLY_GRACE) {
            let Some(counted) = self.minutes.pop_front() else { return };
            if counted.sent == 0 {
                continue;
            }
            let answered = counted.rtts.len() as u16;
            let minute = Minute {
                at_ms: counted.at_ms,
                pair: Pair { from: shared.site, to: self.id },
                sent: counted.sent,
                arrived: counted.arrived.max(answered),
                answered,
                rtt: band(counted.rtts),
            };
            if self.route_rtt.is_none() || minute.rtt.is_some_and(|b| rtt_changed(self.route_rtt, b.min)) {
                self.route_rtt = minute.rtt.map(|b| b.min).or(self.route_rtt);
                shared.request_route(self.id);
            }
            lock(&shared.tally).add_minute(&minute);
            shared.store_row(&Row::Minute(minute));
        }
    }
}

fn rtt_changed(from: Option<Span>, to: Span) -> bool {
    from.is_some_and(|from| {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        (from - to).abs() > (from * RTT_CHANGE[0]).max(RTT_CHANGE[1])
    })
}

fn band(mut rtts: Vec<Duration>) -> Option<RttBand> {
    rtts.sort_unstable();
    let last = rtts.len().checked_sub(1)?;
    // Nearest rank, because there are few values.
    let at = |share: usize| {
        Span::from_nanos(
            rtts[(share * rtts.len()).div_ceil(100).saturating_sub(1).min(last)].as_nanos() as u64
        )
    };
    Some(RttBand { min: at(0), p50: at(50), p95: at(95), max: at(100) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rtt_band_is_computed_from_replies() {
        let ms = |n: u64| Span::from_millis(n);
        let rtts = |n: u64| (1..=n).rev().map(Duration::from_millis).collect();
        assert_eq!(band(Vec::new()), None);
        let one = RttBand { min: ms(1), p50: ms(1), p95: ms(1), max: ms(1) };
        assert_eq!(band(rtts(1)), Some(one));
        assert_eq!(band(rtts(60)), Some(RttBand { min: ms(1), p50: ms(30), p95: ms(57), max: ms(60) }));
    }

    #[test]
    fn replayed_requests_do_not_use_up_the_replies() {
        let mut peer = Peer::new(1, Name::default(), [0; 32], Duration::ZERO);
        let request = |number: u64| Datagram {
            kind: Kind::Request,
            epoch: 1,
            number,
            minute: 0,
            stamp: 0,
            arrived: [0; MINUTES],
        };
        for second in 1..60 {
            let now = Duration::from_secs(second);
            assert!(peer.reply_to(&request(second), now).is_some(), "{second}");
            for _ in 0..200 {
                assert_eq!(peer.reply_to(&request(1), now), None);
            }
        }
    }

    #[test]
    fn a_path_change_is_an_rtt_change_of_a_tenth() {
        assert!(!rtt_changed(None, Span::from_millis(5)));
        assert!(!rtt_changed(Some(Span::from_millis(100)), Span::from_millis(109)));
        assert!(rtt_changed(Some(Span::from_millis(100)), Span::from_millis(89)));
        assert!(
            !rtt_changed(Some(Span::from_micros(100)), Span::from_micros(900)),
            "below the absolute limit"
        );
    }
}
