//! Who calls, and what they send: counted and thrown away.

use super::sender::{Held, moved};
use super::stop::lock;
use super::{STACK, Shared, pull};
use crate::channel::{Caller, Channel, MESSAGE_BYTES, OPENING_BYTES, Rejected, accept};
use crate::file::MOST_CONTROLLERS;
use crate::hello::{Answer, Hello, Purpose};
use crate::message::Message;
use crate::record::{Pair, SiteId};
use fullpipe_kernel::socket;
use fullpipe_kernel::tcp_info::TcpInfo;
use nix::poll::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// For a caller to say who it is and to prove it.
const PROOF_WITHIN: Duration = Duration::from_secs(5);
/// Callers that have not proved themselves, in all and from one address (IPv6: one /64).
const STRANGERS: [usize; 2] = [64, 16];
/// A caller is told that the line is busy after so long, and asks again.
const BUSY_AFTER: Duration = Duration::from_millis(200);
/// Between two looks whether the node ends, milliseconds.
const LOOK: u16 = 500;
/// Asked of the kernel at once when discarding.
const DISCARD: usize = 256 << 10;

/// Who calls and has not proved itself.
#[derive(Default)]
struct Strangers {
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

struct Place(Arc<Strangers>, IpAddr);

/// Whom an address belongs to: a host has a whole /64 of IPv6 to choose from (RFC 7421).
fn holder(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

impl Strangers {
    fn take(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
        let mut all = lock(&self.by_address);
        let holder = holder(ip);
        if all.values().sum::<usize>() >= STRANGERS[0] || all.get(&holder).is_some_and(|n| *n >= STRANGERS[1])
        {
            return None;
        }
        *all.entry(holder).or_default() += 1;
        drop(all);
        Some(Place(Arc::clone(self), holder))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = lock(&self.0.by_address);
        if let Some(n) = all.get_mut(&self.1) {
            *n -= 1;
            if *n == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// The connections of members: one for each member and purpose. Whoever comes again has lost the one before.
#[derive(Default)]
struct Members(Mutex<HashMap<(SiteId, String), Weak<TcpStream>>>);

impl Members {
    /// Says whether it may come in: names of controllers are the caller's to choose, their number is not.
    fn enter(&self, member: SiteId, purpose: &Purpose, stream: &Arc<TcpStream>) -> bool {
        let name = match purpose {
            Purpose::Transfers(controller) => controller.clone(),
            Purpose::Collect => "/collect".to_owned(),
            Purpose::Push => "/push".to_owned(),
        };
        let mut members = lock(&self.0);
        members.retain(|_, stream| stream.strong_count() > 0);
        let others = members.keys().filter(|(site, other)| *site == member && *other != name).count();
        if others > MOST_CONTROLLERS + 1 {
            return false;
        }
        if let Some(before) = members.insert((member, name), Arc::downgrade(stream)).and_then(|s| s.upgrade())
        {
            let _ = before.shutdown(Shutdown::Both);
        }
        true
    }
}

/// Takes calls until the node ends.
pub(super) fn listen<'scope>(
    shared: &'scope Shared,
    scope: &'scope Scope<'scope, '_>,
    listener: &TcpListener,
) -> io::Result<()> {
    let strangers: Arc<Strangers> = Arc::default();
    let members: Arc<Members> = Arc::default();
    while !shared.stop.is_stopped() {
        let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, LOOK) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
            // No descriptors left, or the caller left: neither ends the node.
            Err(_) => {
                shared.stop.sleep(Duration::from_millis(200));
                continue;
            }
        };
        if stream.set_nonblocking(false).is_err() {
            continue;
        }
        // Before there is a thread: who has no place costs none.
        let Some(place) = strangers.take(from.ip()) else { continue };
        let members = Arc::clone(&members);
        let spawned =
            thread::Builder::new().name("from".into()).stack_size(STACK).spawn_scoped(scope, move || {
                if !shared.ledger.small(OPENING_BYTES, shared.now()) {
                    return;
                }
                match accept(stream, |hello| who(shared, hello), PROOF_WITHIN) {
                    Ok((channel, hello)) => {
                        drop(place);
                        serve(shared, &members, channel, &hello);
                    }
                    Err(rejected) => {
                        let reason = told(&rejected);
                        lock(&shared.tally).rejected += 1;
                        if let Some(reason) = reason {
                            shared.rejected(from.ip().to_canonical(), reason);
                        }
                    }
                }
            });
        // Without a thread the caller is not answered, and tries again.
        drop(spawned);
    }
    Ok(())
}

fn told(rejected: &Rejected) -> Option<String> {
    Some(match rejected {
        // Whoever asks for a route opens a connection and leaves.
        Rejected::Left => return None,
        Rejected::Late => "it said nothing that a member says, in time".to_owned(),
        Rejected::Nonsense => "it does not speak the protocol".to_owned(),
        Rejected::Version(version) => format!("it speaks version {version}"),
        Rejected::Told(hello, answer) => {
            let why = match answer {
                Answer::AnotherSite => format!("it calls {}, which is another site", hello.to.escape_debug()),
                _ => "the mesh file here does not have it".to_owned(),
            };
            format!("{} of {}: {why}", hello.from.escape_debug(), hello.mesh.escape_debug())
        }
        Rejected::Unproven(hello) => format!("{} has another key", hello.from.escape_debug()),
    })
}

fn who(shared: &Shared, hello: &Hello) -> Caller {
    if hello.mesh != shared.mesh.name {
        return Caller::Stranger(Answer::NotAMember);
    }
    if hello.to != shared.own().name {
        return Caller::Stranger(Answer::AnotherSite);
    }
    match shared.mesh.site(&hello.from).and_then(|site| shared.key(site)) {
        Some(key) => Caller::Member(key.clone()),
        None => Caller::Stranger(Answer::NotAMember),
    }
}

fn serve(shared: &Shared, members: &Members, mut channel: Channel, hello: &Hello) {
    let Some(peer) = shared.mesh.site(&hello.from) else { return };
    if !shared.stop.watch(&channel.stream) {
        return;
    }
    if !members.enter(peer, &hello.purpose, &channel.stream) {
        return;
    }
    match &hello.purpose {
        Purpose::Transfers(_) => transfers(shared, peer, channel),
        Purpose::Collect => drop(pull::answer(shared, &mut channel)),
        Purpose::Push => drop(pull::taken(shared, peer, &mut channel)),
    }
}

/// Until the caller leaves, or says what it should not.
fn transfers(shared: &Shared, peer: SiteId, mut channel: Channel) {
    let pair = Pair { from: peer, to: shared.site };
    let period = Duration::from(shared.mesh.period);
    loop {
        // A caller that is silent for periods has gone without a word.
        let until = Instant::now() + period * 5 + Duration::from_secs(120);
        let Ok(message) = channel.receive(until, &mut || !shared.stop.is_stopped()) else { return };
        while !shared.may(peer, |quota| &mut quota.messages) {
            if !shared.stop.sleep(Duration::from_millis(100)) {
                return;
            }
        }
        if !shared.ledger.small(2 * MESSAGE_BYTES, shared.now()) {
            let _ = channel.send(&Message::Spent);
            return;
        }
        let answer = match message {
            Message::Ping(n) => Message::Pong(n),
            Message::Offer { bytes, limit_ms } => {
                let limit = Duration::from_millis(limit_ms.into()).min(period);
                match receive(shared, pair, &mut channel, bytes, limit) {
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

/// Takes a transfer, if there is a line and a budget for it. None if it broke off.
fn receive(
    shared: &Shared,
    pair: Pair,
    channel: &mut Channel,
    bytes: u64,
    limit: Duration,
) -> Option<Message> {
    // The mesh file says how large transfers are: whoever offers more may not.
    if bytes > shared.mesh.size.saturating_mul(2) {
        return Some(Message::Spent);
    }
    let Some(_turn) = shared.line.take(pair, Instant::now() + BUSY_AFTER) else { return Some(Message::Busy) };
    let Ok(mut held) = Held::take(shared, bytes + bytes / 16 + (64 << 10)) else {
        return Some(Message::Spent);
    };
    // Only for a transfer that would begin: who has to wait for its turn asks often.
    if !shared.may(pair.from, |quota| &mut quota.transfers) {
        return Some(Message::Busy);
    }
    let before = TcpInfo::query(&*channel.stream).ok()?;
    // Until it is known how much moved, all of it has.
    held.moved(u64::MAX);
    channel.send(&Message::Go).ok()?;
    let arrived = discard(shared, &channel.stream, bytes, Instant::now() + limit);
    let after = TcpInfo::query(&*channel.stream).ok()?;
    // What arrived twice is not among the bytes received, but among the segments.
    let segments = after.data_segs_in.unwrap_or(0).wrapping_sub(before.data_segs_in.unwrap_or(0));
    let twice = (u64::from(segments) * u64::from(after.rcv_mss)).saturating_sub(bytes);
    held.moved(moved(&before, &after) + twice.min(bytes));
    arrived.then_some(Message::Arrived { bytes })
}

/// Whether so many bytes came in time.
fn discard(shared: &Shared, stream: &TcpStream, mut left: u64, until: Instant) -> bool {
    while left > 0 {
        let wait = until.saturating_duration_since(Instant::now());
        if wait.is_zero() || shared.stop.is_stopped() || stream.set_read_timeout(Some(wait)).is_err() {
            return false;
        }
        let most = usize::try_from(left).unwrap_or(DISCARD).min(DISCARD);
        match socket::discard(stream, most) {
            Ok(0) => return false,
            Ok(n) => left -= (n as u64).min(left),
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
    fn strangers_have_few_places_and_one_of_them_not_all() {
        let strangers: Arc<Strangers> = Arc::default();
        let ip = |text: String| text.parse::<IpAddr>().unwrap();
        let of_one: Vec<_> = (0..100).map_while(|i| strangers.take(ip(format!("2001:db8::{i}")))).collect();
        assert_eq!(of_one.len(), STRANGERS[1]);
        let others: Vec<_> = (0..100).map_while(|i| strangers.take(ip(format!("192.0.2.{i}")))).collect();
        assert_eq!(of_one.len() + others.len(), STRANGERS[0]);
        drop((of_one, others));
        assert!(lock(&strangers.by_address).is_empty());
    }

    #[test]
    fn a_member_has_as_many_connections_as_it_can_need() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = || Arc::new(TcpStream::connect(address).unwrap());
        let members = Members::default();
        let open: Vec<_> = (0..30)
            .map(|i| (stream(), Purpose::Transfers(format!("cc{i}"))))
            .take_while(|(stream, purpose)| members.enter(1, purpose, stream))
            .collect();
        assert_eq!(open.len(), MOST_CONTROLLERS + 2);
        let again = stream();
        assert!(members.enter(1, &open[0].1, &again), "it comes again");
        assert!(members.enter(2, &open[0].1, &stream()), "another");
        let mut nothing = [0];
        assert!(
            matches!(std::io::Read::read(&mut &*open[0].0, &mut nothing), Ok(0)),
            "the one before is closed"
        );
        drop(open);
        assert!(members.enter(1, &Purpose::Collect, &stream()));
    }
}
