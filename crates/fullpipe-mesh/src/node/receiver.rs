//! Incoming connections: handshakes, and transfers that are counted and discarded.

use super::sender::{Reservation, stall_timeout, wire_bytes};
use super::stop::lock;
use super::{STACK_SIZE, Shared, pull};
use crate::channel::{Channel, HandshakeError, MESSAGE_BYTES, OPENING_BYTES, PeerIdentity, accept};
use crate::file::MAX_CONTROLLERS;
use crate::hello::{Hello, Purpose, Reply};
use crate::message::Message;
use crate::record::{Pair, SiteId};
use fullpipe_kernel::socket;
use fullpipe_kernel::tcp_info::TcpInfo;
use nix::poll::{PollFd, PollFlags, poll};
use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Timeout for a peer's handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum unauthenticated connections, in total and per address (IPv6: per /64). Addresses of
/// members do not count in the total.
const MAX_PENDING: [usize; 2] = [64, 16];
/// Wait this long for the line before replying that it is busy.
const LINE_TIMEOUT: Duration = Duration::from_millis(200);
/// A transfer is given up this long after its sender does, which classifies the failure.
const SENDER_LEAD: Duration = Duration::from_secs(2);
/// Interval for checking whether the node stops, milliseconds.
const POLL_INTERVAL_MS: u16 = 500;
/// Bytes discarded per system call.
const DISCARD_BLOCK: usize = 256 << 10;

/// Connections that have not completed the handshake.
#[derive(Default)]
struct PendingHandshakes(Mutex<HashMap<Origin, usize>>);

/// Where a connection comes from: strangers cannot take the slots of members.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    /// An address of a member. TCP proves that the peer can receive there, no more.
    Member(IpAddr),
    Other(IpAddr),
}

struct PendingSlot(Arc<PendingHandshakes>, Origin);

/// The unit of address limits: hosts can choose from a whole IPv6 /64 (RFC 7421).
fn address_group(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

impl PendingHandshakes {
    fn acquire(self: &Arc<Self>, ip: IpAddr, is_member: bool) -> Option<PendingSlot> {
        let mut all = lock(&self.0);
        let origin =
            if is_member { Origin::Member(ip.to_canonical()) } else { Origin::Other(address_group(ip)) };
        let others = all.iter().filter(|(origin, _)| matches!(origin, Origin::Other(_)));
        if (!is_member && others.map(|(_, n)| n).sum::<usize>() >= MAX_PENDING[0])
            || all.get(&origin).is_some_and(|n| *n >= MAX_PENDING[1])
        {
            return None;
        }
        *all.entry(origin).or_default() += 1;
        drop(all);
        Some(PendingSlot(Arc::clone(self), origin))
    }
}

impl Drop for PendingSlot {
    fn drop(&mut self) {
        let mut all = lock(&self.0.0);
        if let Some(n) = all.get_mut(&self.1) {
            *n -= 1;
            if *n == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// Maximum connections of a member that are still being served, including replaced ones that are
/// about to end.
const MAX_SESSIONS: usize = 2 * (MAX_CONTROLLERS + 2);

/// The connections of members: one per member and purpose. A new one replaces the previous one.
#[derive(Default)]
struct Sessions(Mutex<Vec<Session>>);

struct Session {
    member: SiteId,
    purpose: Purpose,
    stream: Weak<TcpStream>,
}

impl Sessions {
    /// Registers a connection; `false` if the member has too many. Controller names are the peer's
    /// choice, their number is not.
    fn register(&self, member: SiteId, purpose: &Purpose, stream: &Arc<TcpStream>) -> bool {
        let mut sessions = lock(&self.0);
        sessions.retain(|session| session.stream.strong_count() > 0);
        for before in sessions.iter().filter(|s| s.member == member && s.purpose == *purpose) {
            if let Some(stream) = before.stream.upgrade() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        let of_member = || sessions.iter().filter(|s| s.member == member);
        let others = of_member().filter(|s| s.purpose != *purpose);
        let others: HashSet<&Purpose> = others.map(|s| &s.purpose).collect();
        if others.len() > MAX_CONTROLLERS + 1 || of_member().count() >= MAX_SESSIONS {
            return false;
        }
        drop(others);
        sessions.push(Session { member, purpose: purpose.clone(), stream: Arc::downgrade(stream) });
        true
    }
}

/// Accepts connections until the node stops.
pub(super) fn listen<'scope>(
    shared: &'scope Shared,
    scope: &'scope Scope<'scope, '_>,
    listener: &TcpListener,
) -> io::Result<()> {
    let pending: Arc<PendingHandshakes> = Arc::default();
    let sessions: Arc<Sessions> = Arc::default();
    while !shared.stop.is_stopped() {
        let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, POLL_INTERVAL_MS) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
            // Out of descriptors, or the peer closed: neither stops the node.
            Err(_) => {
                shared.stop.sleep(Duration::from_millis(200));
                continue;
            }
        };
        if stream.set_nonblocking(false).is_err() {
            continue;
        }
        // Before a thread is created, so that refused connections are cheap.
        let Some(slot) = pending.acquire(from.ip(), shared.is_address_of_peer(from.ip())) else { continue };
        let sessions = Arc::clone(&sessions);
        let spawned = thread::Builder::new().name("from".into()).stack_size(STACK_SIZE).spawn_scoped(
            scope,
            move || {
                if !shared.ledger.reserve_small(None, OPENING_BYTES, shared.now()) {
                    return;
                }
                match accept(stream, |hello| identify(shared, hello), HANDSHAKE_TIMEOUT) {
                    Ok((channel, hello)) => {
                        drop(slot);
                        serve(shared, &sessions, channel, &hello);
                    }
                    Err(rejected) => {
                        let reason = rejection_reason(&rejected);
                        lock(&shared.tally).rejected += 1;
                        if let Some(reason) = reason {
                            shared.rejected(from.ip().to_canonical(), reason);
                        }
                    }
                }
            },
        );
        // Without a thread the peer gets no reply and retries.
        drop(spawned);
    }
    Ok(())
}

fn rejection_reason(rejected: &HandshakeError) -> Option<String> {
    Some(match rejected {
        // Route traces open a connection and close it.
        HandshakeError::Closed => return None,
        HandshakeError::TimedOut => "the handshake timed out".to_owned(),
        HandshakeError::Malformed => "not the mesh protocol".to_owned(),
        HandshakeError::Version(version) => format!("protocol version {version}"),
        HandshakeError::Declined(hello, answer) => {
            let why = match answer {
                Reply::WrongSite => format!("it expects site {}", hello.to.escape_debug()),
                _ => "not in this site's mesh file".to_owned(),
            };
            format!("{} of {}: {why}", hello.from.escape_debug(), hello.mesh.escape_debug())
        }
        HandshakeError::Unproven(hello) => format!("{} has a different key", hello.from.escape_debug()),
    })
}

fn identify(shared: &Shared, hello: &Hello) -> PeerIdentity {
    if hello.mesh != shared.mesh.name {
        return PeerIdentity::Unknown(Reply::NotAMember);
    }
    if hello.to != shared.own().name {
        return PeerIdentity::Unknown(Reply::WrongSite);
    }
    match shared.mesh.site(&hello.from).and_then(|site| shared.key(site)) {
        Some(key) => PeerIdentity::Member(key.clone()),
        None => PeerIdentity::Unknown(Reply::NotAMember),
    }
}

fn serve(shared: &Shared, sessions: &Sessions, mut channel: Channel, hello: &Hello) {
    let Some(peer) = shared.mesh.site(&hello.from) else { return };
    shared.ledger.attribute(peer, OPENING_BYTES, shared.now());
    if !shared.stop.watch(&channel.stream) {
        return;
    }
    if !sessions.register(peer, &hello.purpose, &channel.stream) {
        return;
    }
    match &hello.purpose {
        Purpose::Transfers(_) => transfers(shared, peer, channel),
        Purpose::Collect => drop(pull::serve_rows(shared, peer, &mut channel)),
        Purpose::Push => drop(pull::accept_push(shared, peer, &mut channel)),
    }
}

/// Serves transfers until the peer closes or violates the protocol.
fn transfers(shared: &Shared, peer: SiteId, mut channel: Channel) {
    let pair = Pair { from: peer, to: shared.site };
    let (period, limit) = (Duration::from(shared.mesh.period), Duration::from(shared.mesh.limit));
    loop {
        // A peer that is silent for several periods is gone.
        let until = Instant::now() + period * 5 + Duration::from_secs(120);
        let Ok(message) = channel.receive(until, &mut || !shared.stop.is_stopped()) else { return };
        if !shared.wait_for_message_quota(peer) {
            return;
        }
        if !shared.ledger.reserve_small(Some(peer), 2 * MESSAGE_BYTES, shared.now()) {
            let _ = channel.send(&Message::BudgetSpent);
            return;
        }
        let answer = match message {
            Message::Ping(n) => Message::Pong(n),
            Message::Offer { bytes, limit_ms } => {
                let limit = Duration::from_millis(limit_ms.into()).min(limit) + SENDER_LEAD;
                match receive_transfer(shared, pair, &mut channel, bytes, limit) {
                    Some(answer) => answer,
                    None => return,
                }
            }
            _ => return,
        };
        if channel.send(&answer).is_err() {
            return;
        }
    }
}

/// Receives a transfer if the line is free and the budget allows; `None` if it failed.
fn receive_transfer(
    shared: &Shared,
    pair: Pair,
    channel: &mut Channel,
    bytes: u64,
    limit: Duration,
) -> Option<Message> {
    // Larger transfers than the mesh file allows are refused.
    if bytes > shared.mesh.size.saturating_mul(2) {
        return Some(Message::BudgetSpent);
    }
    let Some(_guard) = shared.line.acquire(pair, Instant::now() + LINE_TIMEOUT) else {
        return Some(Message::Busy);
    };
    // Only transfers that would start count: a peer that waits for the line retries often.
    if !shared.allows(pair.from, |quota| &mut quota.transfers) {
        return Some(Message::Busy);
    }
    let Ok(mut reservation) = Reservation::new(shared, pair.from, bytes + bytes / 16 + (64 << 10)) else {
        return Some(Message::BudgetSpent);
    };
    let before = TcpInfo::query(&*channel.stream).ok()?;
    // Until the byte count is known, all of the reservation counts as used.
    reservation.set_used(u64::MAX);
    channel.send(&Message::Accept).ok()?;
    let arrived = discard(shared, &channel.stream, bytes, Instant::now() + limit);
    let after = TcpInfo::query(&*channel.stream).ok()?;
    // Duplicates are not in `bytes_received`, but in the segment count.
    let segments = after.data_segs_in.unwrap_or(0).wrapping_sub(before.data_segs_in.unwrap_or(0));
    let duplicate = (u64::from(segments) * u64::from(after.rcv_mss)).saturating_sub(bytes);
    reservation.set_used(wire_bytes(&before, &after) + duplicate.min(bytes));
    arrived.then_some(Message::Received { bytes })
}

/// Discards `left` bytes; `false` if they do not arrive in time, or none for a while.
fn discard(shared: &Shared, stream: &TcpStream, mut left: u64, until: Instant) -> bool {
    let stall = stall_timeout(shared) + SENDER_LEAD;
    let mut progress = Instant::now();
    while left > 0 {
        let wait = until.min(progress + stall).saturating_duration_since(Instant::now());
        if wait.is_zero() || shared.stop.is_stopped() || stream.set_read_timeout(Some(wait)).is_err() {
            return false;
        }
        let most = usize::try_from(left).unwrap_or(DISCARD_BLOCK).min(DISCARD_BLOCK);
        match socket::discard(stream, most) {
            Ok(0) => return false,
            Ok(n) => {
                left -= (n as u64).min(left);
                progress = Instant::now();
            }
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unauthenticated_connections_are_limited_in_total_and_per_address() {
        let pending: Arc<PendingHandshakes> = Arc::default();
        let ip = |text: String| text.parse::<IpAddr>().unwrap();
        let connect = |text, is_member| pending.acquire(ip(text), is_member);
        let of_one: Vec<_> = (0..100).map_while(|i| connect(format!("2001:db8::{i}"), false)).collect();
        assert_eq!(of_one.len(), MAX_PENDING[1]);
        let others: Vec<_> = (0..100).map_while(|i| connect(format!("192.0.2.{i}"), false)).collect();
        assert_eq!(of_one.len() + others.len(), MAX_PENDING[0]);
        // Members have slots of their own.
        let members = ["192.0.2.99", "2001:db8::1", "::ffff:192.0.2.7"];
        let of_members: Vec<_> = members.map(|ip| connect(ip.into(), true)).into_iter().flatten().collect();
        assert_eq!(of_members.len(), members.len());
        let of_one_member: Vec<_> = (0..100).map_while(|_| connect("192.0.2.7".into(), true)).collect();
        assert_eq!(of_one_member.len(), MAX_PENDING[1] - 1);
        drop((of_one, others, of_members, of_one_member));
        assert!(lock(&pending.0).is_empty());
    }

    #[test]
    fn the_connections_of_a_member_are_limited() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = || Arc::new(TcpStream::connect(address).unwrap());
        let sessions = Sessions::default();
        let open: Vec<_> = (0..30)
            .map(|i| (stream(), Purpose::Transfers(format!("cc{i}"))))
            .take_while(|(stream, purpose)| sessions.register(1, purpose, stream))
            .collect();
        assert_eq!(open.len(), MAX_CONTROLLERS + 2);
        // Replaced connections count until their threads have ended.
        let replacing = (0..30).map(|_| stream());
        let replacing: Vec<_> =
            replacing.take_while(|stream| sessions.register(1, &open[1].1, stream)).collect();
        assert_eq!(open.len() + replacing.len(), MAX_SESSIONS);
        drop(replacing);
        let again = stream();
        assert!(sessions.register(1, &open[0].1, &again), "reconnects");
        assert!(sessions.register(2, &open[0].1, &stream()), "another");
        let mut nothing = [0];
        assert!(
            matches!(std::io::Read::read(&mut &*open[0].0, &mut nothing), Ok(0)),
            "the previous connection is closed"
        );
        drop(open);
        assert!(sessions.register(1, &Purpose::Collect, &stream()));
    }
}
