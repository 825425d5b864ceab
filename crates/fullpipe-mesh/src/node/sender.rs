//! A standing connection to another site by one controller: a transfer a period, and what became of it.

use super::stop::lock;
use super::{Event, Shared};
use crate::budget::Refused;
use crate::channel::{Channel, Lost, MESSAGE_BYTES, OPENING_BYTES, dial};
use crate::hello::{Hello, Purpose};
use crate::message::{Message, Row};
use crate::record::{ControllerId, Measured, Outcome, Pair, SiteId, Transfer, Trouble};
use fullpipe_kernel::tcp_info::TcpInfo;
use fullpipe_net::transfer::noise;
use fullpipe_units::{Rate, Span};
use nix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

/// Bytes given to the kernel at a time.
const BLOCK: usize = 256 << 10;
/// Between two looks at the socket while it is written to.
const LOOK: Duration = Duration::from_millis(100);
/// For a connection, and for the answer to a small message. A peer on the other side of the world answers in half a second.
const ANSWER: Duration = Duration::from_secs(5);
/// A transfer of which nothing is acknowledged for half its limit has stalled, within these bounds: the upper one is five time-outs in
/// a row, of 300 ms and doubling.
const STALL: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// Between two attempts to reach a peer, at most; and no more than so many periods.
const BACKOFF: Duration = Duration::from_secs(30);
const BACKOFF_PERIODS: u32 = 3;
/// Headers of a segment: IPv6 and TCP with timestamps.
const HEADERS: u64 = 72;

/// Sends to `peer` by `controller` until the node ends.
pub(super) fn run(shared: &Shared, peer: SiteId, controller: ControllerId) {
    let pair = Pair { from: shared.site, to: peer };
    let mut sender = Sender {
        shared,
        pair,
        controller,
        channel: None,
        failed: None,
        attempts: 0,
        random: seed(shared, pair, controller),
    };
    // A transfer in a period that had begun already would not have its whole time.
    let mut last = shared.period().0;
    while let Some((number, late)) = sender.turn(last) {
        last = number;
        let at_ms = shared.now().wall_ms;
        let period = Duration::from(shared.mesh.period);
        let until = Instant::now() + period.saturating_sub(late);
        let Some(outcome) = sender.attempt(until) else { return };
        let to = shared.name(peer).to_owned();
        let by = shared.mesh.controllers[usize::from(controller)].clone();
        shared.log(&match &outcome {
            Outcome::Done(m) => {
                Event::Done { to, controller: by, goodput: m.goodput(), duration: m.duration }
            }
            Outcome::Failed(trouble) => Event::Failed { to, controller: by, trouble: *trouble },
        });
        let transfer = Transfer { at_ms, period: number, pair, controller, outcome };
        lock(&shared.tally).add(&transfer);
        if let Outcome::Failed(Trouble::Unreachable | Trouble::Stalled | Trouble::LargePacketsVanish) =
            transfer.outcome
        {
            shared.wants_route(peer);
        }
        shared.keep(&Row::Transfer(transfer));
    }
}

struct Sender<'a> {
    shared: &'a Shared,
    pair: Pair,
    controller: ControllerId,
    channel: Option<Channel>,
    /// Why the last attempt to connect failed, and when.
    failed: Option<(Trouble, Instant)>,
    /// Attempts that failed in a row.
    attempts: u32,
    /// Of the pauses before another site is asked again.
    random: u64,
}

/// Pauses need not be hard to guess, only different at all sites.
fn seed(shared: &Shared, pair: Pair, controller: ControllerId) -> u64 {
    let of_site = u64::from(pair.from) << 32 | u64::from(pair.to) << 16 | u64::from(controller);
    (shared.now().wall_ms as u64 ^ of_site.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1
}

impl Sender<'_> {
    /// Waits for the slot of a period after `last`; gives its number, and how late it is. None when the node ends.
    fn turn(&self, last: i64) -> Option<(i64, Duration)> {
        loop {
            let (number, passed) = self.shared.period();
            let next = number.max(last + 1);
            let slot = self.shared.schedule.slot(self.pair, self.controller, next)?;
            let period = Duration::from(self.shared.mesh.period);
            let ahead = u32::try_from(next - number).unwrap_or(u32::MAX);
            let start = period.saturating_mul(ahead) + Duration::from(slot.start);
            match start.checked_sub(passed) {
                // The wall clock may be set meanwhile.
                Some(wait) if !wait.is_zero() => {
                    if !self.shared.stop.sleep(wait.min(Duration::from_secs(5))) {
                        return None;
                    }
                }
                _ => return Some((next, passed - start)),
            }
        }
    }

    /// One transfer, to end before `until`. None when the node ends.
    fn attempt(&mut self, until: Instant) -> Option<Outcome> {
        let outcome = self.try_to(until);
        if self.shared.stop.is_stopped() {
            return None;
        }
        Some(match outcome {
            Ok(measured) => Outcome::Done(Box::new(measured)),
            Err(trouble) => Outcome::Failed(trouble),
        })
    }

    fn try_to(&mut self, until: Instant) -> Result<Measured, Trouble> {
        let began = Instant::now();
        let limit = Duration::from(self.shared.mesh.limit);
        let last_start = until.checked_sub(limit).unwrap_or(began);
        self.connected(until)?;
        let mut pauses = 0;
        loop {
            if self.shared.stop.is_stopped() {
                return Err(Trouble::Broken);
            }
            let Some(turn) = self.shared.line.take(self.pair, last_start) else {
                return Err(Trouble::NoTurn);
            };
            let bytes = self.shared.mesh.size;
            let held = Held::take(self.shared, bytes + bytes / 16 + (64 << 10))?;
            let offer = Message::Offer { bytes, limit_ms: limit.as_millis() as u32 };
            match self.ask(&offer, (Instant::now() + ANSWER).min(until))? {
                Message::Go => {
                    let late = Span::from_nanos(began.elapsed().as_nanos() as u64);
                    if late > self.shared.schedule.slot_length() {
                        self.shared.log(&Event::Queued {
                            to: self.shared.name(self.pair.to).to_owned(),
                            controller: self.shared.mesh.controllers[usize::from(self.controller)].clone(),
                            by: late,
                        });
                    }
                    let until = (Instant::now() + limit).min(until);
                    let outcome = self.transfer(held, until);
                    drop(turn);
                    return outcome.map_err(|trouble| self.explained(trouble, until));
                }
                Message::Busy => {}
                Message::Spent => return Err(Trouble::ReceiverBudget),
                _ => return Err(self.lost(Lost::Nonsense)),
            }
            drop((turn, held));
            if Instant::now() >= last_start {
                return Err(Trouble::NoTurn);
            }
            // Two that want each other's line must not ask in step.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            pauses += 1;
            let most = 50 * u64::from(pauses.min(10u32));
            let pause = Duration::from_millis(20 + self.random % most);
            if !self.shared.stop.sleep(pause.min(last_start.saturating_duration_since(Instant::now()))) {
                return Err(Trouble::Broken);
            }
        }
    }

    /// A connection whose other end answers.
    fn connected(&mut self, until: Instant) -> Result<(), Trouble> {
        if self.channel.is_some() {
            let number = self.random;
            let until = (Instant::now() + ANSWER).min(until);
            match self.ask(&Message::Ping(number), until) {
                Ok(Message::Pong(n)) if n == number => return Ok(()),
                Err(Trouble::SenderBudget) => return Err(Trouble::SenderBudget),
                // It may have been started again, or a firewall forgotten the connection.
                _ => self.channel = None,
            }
        }
        if let Some((trouble, at)) = self.failed {
            let period = Duration::from(self.shared.mesh.period);
            let pause = Duration::from_secs(1 << self.attempts.min(5));
            if at.elapsed() < pause.min(BACKOFF).min(period * BACKOFF_PERIODS) {
                return Err(trouble);
            }
        }
        match self.dial(until) {
            Ok(channel) => {
                (self.failed, self.attempts) = (None, 0);
                self.channel = Some(channel);
                Ok(())
            }
            Err(trouble) => {
                self.attempts += 1;
                self.failed = Some((trouble, Instant::now()));
                Err(trouble)
            }
        }
    }

    fn dial(&self, until: Instant) -> Result<Channel, Trouble> {
        let shared = self.shared;
        let peer = self.pair.to;
        if !shared.ledger.small(OPENING_BYTES, shared.now()) {
            return Err(Trouble::SenderBudget);
        }
        let key = shared.key(peer).ok_or(Trouble::NotAMember)?;
        let controller = &shared.mesh.controllers[usize::from(self.controller)];
        let hello = |nonce| Hello {
            mesh: shared.mesh.name.clone(),
            from: shared.own().name.clone(),
            to: shared.name(peer).to_owned(),
            purpose: Purpose::Transfers(controller.clone()),
            nonce,
        };
        let within =
            ANSWER.min(until.saturating_duration_since(Instant::now())).max(Duration::from_millis(50));
        let addresses = shared.resolve(peer);
        let each = within / addresses.len().max(1) as u32;
        let mut trouble = Trouble::Unreachable;
        for address in addresses {
            match dial(address, Some(controller), key, hello, each) {
                Ok(channel) if shared.stop.watch(&channel.stream) => {
                    shared.reached(peer, address);
                    return Ok(channel);
                }
                Ok(_) => return Err(Trouble::Broken),
                // A host that has addresses of both kinds may be reached by one of them alone.
                Err(e @ (Trouble::Unreachable | Trouble::Refused)) => trouble = e,
                Err(other) => return Err(other),
            }
        }
        Err(trouble)
    }

    /// Says something small, and gets an answer.
    fn ask(&mut self, message: &Message, until: Instant) -> Result<Message, Trouble> {
        if !self.shared.ledger.small(2 * MESSAGE_BYTES, self.shared.now()) {
            return Err(Trouble::SenderBudget);
        }
        let channel = self.channel.as_mut().ok_or(Trouble::Broken)?;
        if channel.send(message).is_err() {
            self.channel = None;
            return Err(Trouble::Broken);
        }
        let stop = &self.shared.stop;
        channel.receive(until, &mut || !stop.is_stopped()).map_err(|lost| self.lost(lost))
    }

    /// The connection is of no use any longer.
    fn lost(&mut self, lost: Lost) -> Trouble {
        if let Some(channel) = self.channel.take() {
            channel.abort();
        }
        match lost {
            Lost::Late => Trouble::Stalled,
            Lost::Closed(e) if e.kind() == ErrorKind::TimedOut => Trouble::Stalled,
            Lost::Closed(_) | Lost::Left => Trouble::Broken,
            Lost::Nonsense => Trouble::NotAMember,
        }
    }

    /// What it was that nothing arrived: whether small messages still do tells a path that swallows large packets from one that
    /// is cut.
    fn explained(&mut self, trouble: Stopped, until: Instant) -> Trouble {
        if let Some(channel) = self.channel.take() {
            channel.abort();
        }
        match trouble {
            Stopped::By(trouble) => trouble,
            Stopped::NothingArrived => match self.dial(until.max(Instant::now() + ANSWER)) {
                Ok(channel) => {
                    self.channel = Some(channel);
                    Trouble::LargePacketsVanish
                }
                Err(_) => Trouble::Stalled,
            },
        }
    }

    fn transfer(&mut self, held: Held<'_>, until: Instant) -> Result<Measured, Stopped> {
        let Some(channel) = self.channel.as_mut() else { return Err(Stopped::By(Trouble::Broken)) };
        let broken = |_| Stopped::By(Trouble::Broken);
        let stream = std::sync::Arc::clone(&channel.stream);
        let before = TcpInfo::query(&*stream).map_err(broken)?;
        stream.set_write_timeout(Some(LOOK)).map_err(broken)?;
        let (began, cpu) = (Instant::now(), processor_time());
        let size = self.shared.mesh.size;
        let mut left = size;
        let mut watch = Watch {
            shared: self.shared,
            stream: &stream,
            held,
            before: before.clone(),
            until,
            left,
            acked: before.bytes_acked,
            acked_at: began,
            delivery_rate: None,
            looked: began,
        };
        let block = noise();
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
            match (&*stream).write(&block[..most]) {
                Ok(n) => left -= n as u64,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::TimedOut => return Err(Stopped::By(Trouble::Stalled)),
                Err(_) => return Err(Stopped::By(Trouble::Broken)),
            }
            watch.left = left;
            watch.look()?;
        }
        let mut stopped = None;
        let word = channel.receive(until, &mut || match watch.look() {
            Ok(()) => true,
            Err(e) => {
                stopped = Some(e);
                false
            }
        });
        let duration = began.elapsed();
        let used = processor_time().saturating_sub(cpu);
        match word {
            Ok(Message::Arrived { bytes }) if bytes == size => {}
            Ok(_) | Err(Lost::Nonsense) => return Err(Stopped::By(Trouble::NotAMember)),
            Err(Lost::Late) => return Err(watch.too_late()),
            Err(Lost::Left) => return Err(stopped.unwrap_or(Stopped::By(Trouble::Broken))),
            Err(Lost::Closed(e)) if e.kind() == ErrorKind::TimedOut => {
                return Err(Stopped::By(Trouble::Stalled));
            }
            Err(Lost::Closed(_)) => return Err(Stopped::By(Trouble::Broken)),
        }
        let after = TcpInfo::query(&*stream).map_err(broken)?;
        watch.note_rate(&after);
        let busy = since(before.busy_time, after.busy_time).unwrap_or(Span::ZERO);
        let share = |from: Option<Span>, to: Option<Span>| match since(from, to) {
            Some(span) if !busy.is_zero() => (span.as_secs_f64() / busy.as_secs_f64()).clamp(0.0, 1.0) as f32,
            _ => 0.0,
        };
        let segments = |info: &TcpInfo| info.data_segs_out.or(info.segs_out).unwrap_or(0);
        Ok(Measured {
            bytes: size,
            duration: Span::from_nanos(duration.as_nanos() as u64),
            delivery_rate: watch.delivery_rate,
            rtt: after.rtt,
            min_rtt: after.min_rtt.unwrap_or(after.rtt),
            segments: segments(&after).wrapping_sub(segments(&before)),
            retransmitted: after.total_retrans.wrapping_sub(before.total_retrans),
            receive_window_limited: share(before.rwnd_limited, after.rwnd_limited),
            send_buffer_limited: share(before.sndbuf_limited, after.sndbuf_limited),
            cpu: Span::from_nanos(used.as_nanos() as u64),
        })
    }
}

/// Why a transfer ended before its end.
enum Stopped {
    By(Trouble),
    /// Not one of its segments was acknowledged.
    NothingArrived,
}

/// Looks at a transfer while it goes on.
struct Watch<'a> {
    shared: &'a Shared,
    stream: &'a std::net::TcpStream,
    held: Held<'a>,
    before: TcpInfo,
    until: Instant,
    /// Payload that the kernel has not been given yet.
    left: u64,
    acked: Option<u64>,
    acked_at: Instant,
    delivery_rate: Option<Rate>,
    looked: Instant,
}

impl Watch<'_> {
    fn look(&mut self) -> Result<(), Stopped> {
        let now = Instant::now();
        if now.duration_since(self.looked) < LOOK && now < self.until {
            return Ok(());
        }
        self.looked = now;
        if self.shared.stop.is_stopped() {
            return Err(Stopped::By(Trouble::Broken));
        }
        let Ok(info) = TcpInfo::query(self.stream) else { return Err(Stopped::By(Trouble::Broken)) };
        self.note_rate(&info);
        if info.bytes_acked != self.acked {
            (self.acked, self.acked_at) = (info.bytes_acked, now);
        }
        let moved = moved(&self.before, &info);
        self.held.moved(moved);
        if !self.held.covers(moved + self.left + self.left / 32) {
            return Err(Stopped::By(Trouble::SenderBudget));
        }
        if now >= self.until {
            return Err(self.too_late());
        }
        let limit = Duration::from(self.shared.mesh.limit);
        if now.duration_since(self.acked_at) >= (limit / 2).clamp(STALL[0], STALL[1]) {
            return Err(self.stalled());
        }
        Ok(())
    }

    fn stalled(&self) -> Stopped {
        if self.acked == self.before.bytes_acked {
            Stopped::NothingArrived
        } else {
            Stopped::By(Trouble::Stalled)
        }
    }

    fn too_late(&self) -> Stopped {
        if self.acked == self.before.bytes_acked {
            Stopped::NothingArrived
        } else {
            Stopped::By(Trouble::TooSlow)
        }
    }

    fn note_rate(&mut self, info: &TcpInfo) {
        if !info.delivery_rate_app_limited && info.delivery_rate.is_some_and(|rate| rate > Rate::ZERO) {
            self.delivery_rate = info.delivery_rate;
        }
    }
}

impl Drop for Watch<'_> {
    /// However it ended, the account is of what moved until then; what cannot be known has moved.
    fn drop(&mut self) {
        self.held.moved(TcpInfo::query(self.stream).map_or(u64::MAX, |info| moved(&self.before, &info)));
    }
}

fn since(from: Option<Span>, to: Option<Span>) -> Option<Span> {
    Some(Span::from_nanos(to?.as_nanos().saturating_sub(from?.as_nanos())))
}

/// Bytes on the wire between two looks, both ways.
pub(super) fn moved(before: &TcpInfo, after: &TcpInfo) -> u64 {
    let bytes = |b: Option<u64>, a: Option<u64>| a.unwrap_or(0).saturating_sub(b.unwrap_or(0));
    let segments = |b: Option<u32>, a: Option<u32>| u64::from(a.unwrap_or(0).wrapping_sub(b.unwrap_or(0)));
    bytes(before.bytes_sent, after.bytes_sent)
        + bytes(before.bytes_received, after.bytes_received)
        + HEADERS * (segments(before.segs_out, after.segs_out) + segments(before.segs_in, after.segs_in))
}

/// Bytes of the budget that a transfer has; what it does not use goes back.
pub(super) struct Held<'a> {
    shared: &'a Shared,
    taken: u64,
    used: u64,
}

impl<'a> Held<'a> {
    pub fn take(shared: &'a Shared, bytes: u64) -> Result<Held<'a>, Trouble> {
        match shared.ledger.take(bytes, shared.now()) {
            Ok(()) => Ok(Held { shared, taken: bytes, used: 0 }),
            Err(refused) => {
                if let Refused::File(e) = refused {
                    shared.log(&Event::NoAccount { reason: e.to_string() });
                }
                Err(Trouble::SenderBudget)
            }
        }
    }

    pub fn moved(&mut self, bytes: u64) {
        self.used = bytes;
    }

    /// Whether there are bytes for this much in all; more are taken if there are any.
    pub fn covers(&mut self, bytes: u64) -> bool {
        if bytes <= self.taken {
            return true;
        }
        let more = (bytes - self.taken).max(self.taken / 8);
        let taken = self.shared.ledger.take(more, self.shared.now()).is_ok();
        if taken {
            self.taken += more;
        }
        taken
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.ledger.give_back(self.taken.saturating_sub(self.used));
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
