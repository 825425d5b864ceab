//! Small probes between transfers: one a second to each site, answered by each, and a record a minute of what became of them.

use super::Shared;
use super::bucket::Bucket;
use super::stop::lock;
use crate::datagram::{self, Datagram, Heard, Kind, LENGTH, MINUTES, Name};
use crate::file::PROBE_BYTES;
use crate::message::Row;
use crate::record::{Minute, Pair, RttBand, SiteId};
use fullpipe_units::Span;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// A minute is closed so long after its end: answers are still on their way, and the last may have been lost.
const GRACE: Duration = Duration::from_secs(30);
/// Answers a second to one site, and how many at once: it asks once a second.
const ANSWERS: [f64; 2] = [2.0, 4.0];
/// A round trip that moved by so much is another path.
const MOVED: [f64; 2] = [0.1, 0.001];

/// Asks and answers until the node ends.
pub(super) fn run(shared: &Shared, socket: &UdpSocket, epoch: u64) {
    let site = |id: SiteId| datagram::name(&shared.mesh.name, shared.name(id));
    let own = site(shared.site);
    let start = shared.now().steady;
    let peers = shared.peers().filter_map(|id| Some((id, datagram::key(shared.key(id)?))));
    let mut peers: Vec<Peer> = peers.map(|(id, key)| Peer::new(id, site(id), key, start)).collect();
    // Spread over the second, so that probes of one site do not wait for each other.
    let step = EVERY / peers.len().max(1) as u32;
    for (i, peer) in peers.iter_mut().enumerate() {
        peer.due += step * i as u32;
        // Where connections go probes go: until one has been dialled, only a literal address is known.
        if let Ok(ip) = shared.mesh.sites[usize::from(peer.id)].address.parse::<IpAddr>() {
            let address = SocketAddr::new(ip, shared.mesh.sites[usize::from(peer.id)].port);
            lock(&shared.addresses)[usize::from(peer.id)].get_or_insert(address);
        }
    }
    let six = socket.local_addr().is_ok_and(|a| a.is_ipv6());
    let mut buffer = [0; LENGTH + 1];
    while !shared.stop.is_stopped() {
        let now = shared.now().steady;
        for peer in &mut peers {
            if now >= peer.due {
                // After a pause of the whole machine those that were missed are not made up for.
                peer.due = (peer.due + EVERY).max(now);
                peer.ask(shared, socket, own, epoch, start, six);
            }
            peer.close(shared, now, false);
        }
        let next = peers.iter().map(|p| p.due).min().unwrap_or(now + EVERY);
        let wait = next.saturating_sub(shared.now().steady).clamp(Duration::from_millis(1), EVERY);
        if socket.set_read_timeout(Some(wait)).is_err() {
            return;
        }
        match socket.recv_from(&mut buffer) {
            Ok((n, from)) => hear(shared, socket, own, &mut peers, &buffer[..n], from, epoch),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // An ICMP error of a question before; what it means is told by the answer that does not come.
            Err(_) => {}
        }
    }
    for peer in &mut peers {
        peer.close(shared, shared.now().steady, true);
    }
}

fn hear(
    shared: &Shared,
    socket: &UdpSocket,
    own: Name,
    peers: &mut [Peer],
    bytes: &[u8],
    from: SocketAddr,
    epoch: u64,
) {
    let Ok((sender, to)) = Datagram::claims(bytes) else { return };
    let Some(peer) = peers.iter_mut().find(|p| p.name == sender && to == own) else { return };
    let Ok(heard) = Datagram::open(bytes, &peer.key) else { return };
    let now = shared.now().steady;
    match heard.kind {
        Kind::Question => {
            if !peer.answers.take(now) || !shared.ledger.small(2 * PROBE_BYTES, shared.now()) {
                return;
            }
            if let Some(arrived) = peer.heard.count(&heard) {
                let answer = Datagram { kind: Kind::Answer, arrived, ..heard };
                let _ = socket.send_to(&answer.to_bytes(own, peer.name, &peer.key), from);
            }
        }
        Kind::Answer if heard.epoch == epoch => peer.answered(&heard, now),
        Kind::Answer => {}
    }
}

/// Another site, as small probes see it.
struct Peer {
    id: SiteId,
    name: Name,
    key: [u8; 32],
    due: Duration,
    number: u64,
    /// Numbers up to it are of minutes that are closed or were answered.
    asked: VecDeque<(u64, Duration)>,
    minutes: VecDeque<Counted>,
    heard: Heard,
    /// Answers that it may have.
    answers: Bucket,
    /// The least round trip when the route was asked for.
    routed: Option<Span>,
}

/// A minute that is not closed yet.
struct Counted {
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
            asked: VecDeque::new(),
            minutes: VecDeque::new(),
            heard: Heard::default(),
            answers: Bucket::new(ANSWERS[0], ANSWERS[1], start),
            routed: None,
        }
    }

    fn ask(
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
            self.minutes.push_back(Counted {
                number,
                ends: start + begun + MINUTE,
                at_ms: moment.wall_ms - (since - begun).as_millis() as i64,
                sent: 0,
                arrived: 0,
                rtts: Vec::with_capacity(60),
            });
        }
        let Some(mut address) = lock(&shared.addresses)[usize::from(self.id)] else { return };
        // A probe in the queue of a transfer tells of the transfer.
        if shared.line.is_busy_with(self.id) || !shared.ledger.small(2 * PROBE_BYTES, moment) {
            return;
        }
        if let (true, IpAddr::V4(ip)) = (six, address.ip()) {
            address.set_ip(ip.to_ipv6_mapped().into());
        }
        self.number += 1;
        let question = Datagram {
            kind: Kind::Question,
            epoch,
            number: self.number,
            minute: number,
            stamp: moment.steady.as_nanos() as u64,
            arrived: [0; MINUTES],
        };
        if let Some(minute) = self.minutes.back_mut() {
            minute.sent += 1;
        }
        self.asked.push_back((self.number, moment.steady));
        if self.asked.len() > 256 {
            self.asked.pop_front();
        }
        // One that the kernel does not take (no route, no buffer) was lost on the way as well.
        let _ = socket.send_to(&question.to_bytes(own, self.name, &self.key), address);
    }

    fn answered(&mut self, answer: &Datagram, now: Duration) {
        // Only the first answer, by the node's own note of when it asked.
        let Some(at) = self.asked.iter().position(|(number, _)| *number == answer.number) else { return };
        let Some((_, asked)) = self.asked.remove(at) else { return };
        for minute in &mut self.minutes {
            let Some(ago) = answer.minute.checked_sub(minute.number) else { continue };
            if let Some(arrived) = answer.arrived.get(ago as usize) {
                minute.arrived = minute.arrived.max((*arrived).min(minute.sent));
            }
            if ago == 0 {
                minute.rtts.push(now.saturating_sub(asked));
            }
        }
    }

    /// Keeps the minutes that are over; all of them, if the node ends.
    fn close(&mut self, shared: &Shared, now: Duration, all: bool) {
        while self.minutes.front().is_some_and(|m| all || now >= m.ends + GRACE) {
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
            if self.routed.is_none() || minute.rtt.is_some_and(|b| moved(self.routed, b.min)) {
                self.routed = minute.rtt.map(|b| b.min).or(self.routed);
                shared.wants_route(self.id);
            }
            lock(&shared.tally).add_minute(&minute);
            shared.keep(&Row::Minute(minute));
        }
    }
}

fn moved(from: Option<Span>, to: Span) -> bool {
    from.is_some_and(|from| {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        (from - to).abs() > (from * MOVED[0]).max(MOVED[1])
    })
}

fn band(mut rtts: Vec<Duration>) -> Option<RttBand> {
    rtts.sort_unstable();
    let last = rtts.len().checked_sub(1)?;
    // The nearest rank, as there are few.
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
    fn a_band_is_of_what_was_answered() {
        let ms = |n: u64| Span::from_millis(n);
        let rtts = |n: u64| (1..=n).rev().map(Duration::from_millis).collect();
        assert_eq!(band(Vec::new()), None);
        let one = RttBand { min: ms(1), p50: ms(1), p95: ms(1), max: ms(1) };
        assert_eq!(band(rtts(1)), Some(one));
        assert_eq!(band(rtts(60)), Some(RttBand { min: ms(1), p50: ms(30), p95: ms(57), max: ms(60) }));
    }

    #[test]
    fn a_path_has_moved_when_its_round_trip_has_by_a_tenth() {
        assert!(!moved(None, Span::from_millis(5)));
        assert!(!moved(Some(Span::from_millis(100)), Span::from_millis(109)));
        assert!(moved(Some(Span::from_millis(100)), Span::from_millis(89)));
        assert!(!moved(Some(Span::from_micros(100)), Span::from_micros(900)), "in one building");
    }
}
