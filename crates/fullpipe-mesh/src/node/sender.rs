//! A standing connection to a peer with one controller: one transfer per period.

use super::stop::lock;
use super::{Event, Shared};
use crate::budget::ReserveError;
use crate::channel::{Channel, MESSAGE_BYTES, OPENING_BYTES, ReceiveError, dial};
use crate::hello::{Hello, Purpose};
use crate::message::{Message, Row};
use crate::record::{ControllerId, Measurement, Outcome, Pair, SiteId, Transfer, TransferError};
use fullpipe_kernel::tcp_info::TcpInfo;
use fullpipe_net::transfer::noise;
use fullpipe_units::{Rate, Span};
use nix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

/// Bytes per write.
const BLOCK: usize = 256 << 10;
/// Interval between polls of the socket during a transfer.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout for connecting and for replies to small messages. Even the longest paths answer within
/// half a second.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// A transfer has stalled if nothing is acknowledged, or received, for half its time limit, within
/// these bounds.
/// The upper one is five retransmission timeouts in a row, starting at 300 ms and doubling.
const STALL_TIMEOUT_RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// Maximum delay between connection attempts, also limited to some periods.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
const MAX_BACKOFF_PERIODS: u32 = 3;
/// Header bytes of a segment: IPv6 and TCP with timestamps.
const HEADER_BYTES: u64 = 72;

/// Sends to `peer` with `controller` until the node stops.
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
    // A transfer in a period that is already under way would not have its full time.
    let mut last = shared.period().0;
    while let Some((number, delay)) = sender.next_slot(last) {
        last = number;
        let at_ms = shared.now().wall_ms;
        let period = Duration::from(shared.mesh.period);
        let until = Instant::now() + period.saturating_sub(delay);
        let Some(outcome) = sender.attempt(until) else { return };
        let to = shared.name(peer).to_owned();
        let by = shared.mesh.controllers[usize::from(controller)].clone();
        shared.log(&match &outcome {
            Outcome::Done(m) => {
                Event::Done { to, controller: by, goodput: m.goodput(), duration: m.duration }
            }
            Outcome::Failed(error) => Event::Failed { to, controller: by, error: *error },
        });
        let transfer = Transfer { at_ms, period: number, pair, controller, outcome };
        lock(&shared.tally).add(&transfer);
        if let Outcome::Failed(
            TransferError::Unreachable | TransferError::Stalled | TransferError::MtuBlackHole,
        ) = transfer.outcome
        {
            shared.request_route(peer);
        }
        shared.store_row(&Row::Transfer(transfer));
    }
}

struct Sender<'a> {
    shared: &'a Shared,
    pair: Pair,
    controller: ControllerId,
    channel: Option<Channel>,
    /// The error and time of the last failed connection attempt.
    failed: Option<(TransferError, Instant)>,
    /// Consecutive failed attempts.
    attempts: u32,
    /// State of the generator for pauses between offers.
    random: u64,
}

/// Pauses need not be unpredictable, only different at each site.
fn seed(shared: &Shared, pair: Pair, controller: ControllerId) -> u64 {
    let of_site = u64::from(pair.from) << 32 | u64::from(pair.to) << 16 | u64::from(controller);
    (shared.now().wall_ms as u64 ^ of_site.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1
}

impl Sender<'_> {
    /// Waits for the slot of a period after `last`. Returns its number and how late it is; `None`
    /// when the node stops.
    fn next_slot(&self, last: i64) -> Option<(i64, Duration)> {
        loop {
            let (number, passed) = self.shared.period();
            let next = number.max(last + 1);
            let slot = self.shared.schedule.slot(self.pair, self.controller, next)?;
            let period = Duration::from(self.shared.mesh.period);
            let ahead = u32::try_from(next - number).unwrap_or(u32::MAX);
            let start = period.saturating_mul(ahead) + Duration::from(slot.start);
            match start.checked_sub(passed) {
                // The wall clock may be set in the meantime.
                Some(wait) if !wait.is_zero() => {
                    if !self.shared.stop.sleep(wait.min(Duration::from_secs(5))) {
                        return None;
                    }
                }
                _ => return Some((next, passed - start)),
            }
        }
    }

    /// Performs one transfer that ends before `until`; `None` when the node stops.
    fn attempt(&mut self, until: Instant) -> Option<Outcome> {
        let outcome = self.try_transfer(until);
        if self.shared.stop.is_stopped() {
            return None;
        }
        Some(match outcome {
            Ok(measured) => Outcome::Done(Box::new(measured)),
            Err(error) => Outcome::Failed(error),
        })
    }

    fn try_transfer(&mut self, until: Instant) -> Result<Measurement, TransferError> {
        let began = Instant::now();
        let limit = Duration::from(self.shared.mesh.limit);
        let last_start = until.checked_sub(limit).unwrap_or(began);
        self.ensure_connected(until)?;
        let mut pauses = 0;
        loop {
            if self.shared.stop.is_stopped() {
                return Err(TransferError::Broken);
            }
            let Some(guard) = self.shared.line.acquire(self.pair, last_start) else {
                return Err(TransferError::Busy);
            };
            let bytes = self.shared.mesh.size;
            let reservation = Reservation::new(self.shared, self.pair.to, bytes + bytes / 16 + (64 << 10))?;
            let offer = Message::Offer { bytes, limit_ms: limit.as_millis() as u32 };
            match self.request(&offer, (Instant::now() + REPLY_TIMEOUT).min(until))? {
                Message::Accept => {
                    let delay = Span::from_nanos(began.elapsed().as_nanos() as u64);
                    if delay > self.shared.schedule.slot_length() {
                        self.shared.log(&Event::Late {
                            to: self.shared.name(self.pair.to).to_owned(),
                            controller: self.shared.mesh.controllers[usize::from(self.controller)].clone(),
                            by: delay,
                        });
                    }
                    let until = (Instant::now() + limit).min(until);
                    let outcome = self.transfer(reservation, until);
                    drop(guard);
                    return outcome.map_err(|error| self.diagnose(error, until));
                }
                Message::Busy => {}
                Message::BudgetSpent => return Err(TransferError::ReceiverBudget),
                _ => return Err(self.record_failure(ReceiveError::Malformed)),
            }
            drop((guard, reservation));
            if Instant::now() >= last_start {
                return Err(TransferError::Busy);
            }
            // Two sites that wait for each other must not retry in lockstep.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            pauses += 1;
            let max = 50 * u64::from(pauses.min(10u32));
            let pause = Duration::from_millis(20 + self.random % max);
            if !self.shared.stop.sleep(pause.min(last_start.saturating_duration_since(Instant::now()))) {
                return Err(TransferError::Broken);
            }
        }
    }

    /// Ensures a connection whose peer answers.
    fn ensure_connected(&mut self, until: Instant) -> Result<(), TransferError> {
        if self.channel.is_some() {
            let number = self.random;
            let until = (Instant::now() + REPLY_TIMEOUT).min(until);
            match self.request(&Message::Ping(number), until) {
                Ok(Message::Pong(n)) if n == number => return Ok(()),
                Err(TransferError::SenderBudget) => return Err(TransferError::SenderBudget),
                // The peer may have restarted, or a firewall lost its state.
                _ => self.channel = None,
            }
        }
        if let Some((error, at)) = self.failed {
            let period = Duration::from(self.shared.mesh.period);
            let pause = Duration::from_secs(1 << self.attempts.min(5));
            if at.elapsed() < pause.min(MAX_BACKOFF).min(period * MAX_BACKOFF_PERIODS) {
                return Err(error);
            }
        }
        match self.dial(until) {
            Ok(channel) => {
                (self.failed, self.attempts) = (None, 0);
                self.channel = Some(channel);
                Ok(())
            }
            Err(error) => {
                self.attempts += 1;
                self.failed = Some((error, Instant::now()));
                Err(error)
            }
        }
    }

    fn dial(&self, until: Instant) -> Result<Channel, TransferError> {
        let shared = self.shared;
        let peer = self.pair.to;
        if !shared.ledger.reserve_small(Some(peer), OPENING_BYTES, shared.now()) {
            return Err(TransferError::SenderBudget);
        }
        let key = shared.key(peer).ok_or(TransferError::NotAMember)?;
        let controller = &shared.mesh.controllers[usize::from(self.controller)];
        let hello = |nonce| Hello {
            mesh: shared.mesh.name.clone(),
            from: shared.own().name.clone(),
            to: shared.name(peer).to_owned(),
            purpose: Purpose::Transfers(controller.clone()),
            nonce,
        };
        let within =
            REPLY_TIMEOUT.min(until.saturating_duration_since(Instant::now())).max(Duration::from_millis(50));
        let addresses = shared.resolve(peer);
        let each = within / addresses.len().max(1) as u32;
        let mut error = TransferError::Unreachable;
        for address in addresses {
            match dial(address, Some(controller), key, hello, each) {
                Ok(channel) if shared.stop.watch(&channel.stream) => {
                    shared.reached(peer, address);
                    return Ok(channel);
                }
                Ok(_) => return Err(TransferError::Broken),
                // A dual-stack host may be reachable over one family only.
                Err(e @ (TransferError::Unreachable | TransferError::Refused)) => error = e,
                Err(other) => return Err(other),
            }
        }
        Err(error)
    }

    /// Sends a small message and receives the reply.
    fn request(&mut self, message: &Message, until: Instant) -> Result<Message, TransferError> {
        if !self.shared.ledger.reserve_small(Some(self.pair.to), 2 * MESSAGE_BYTES, self.shared.now()) {
            return Err(TransferError::SenderBudget);
        }
        let channel = self.channel.as_mut().ok_or(TransferError::Broken)?;
        if channel.send(message).is_err() {
            self.channel = None;
            return Err(TransferError::Broken);
        }
        let stop = &self.shared.stop;
        channel.receive(until, &mut || !stop.is_stopped()).map_err(|e| self.record_failure(e))
    }

    /// Drops the connection and classifies the failure.
    fn record_failure(&mut self, error: ReceiveError) -> TransferError {
        if let Some(channel) = self.channel.take() {
            channel.abort();
        }
        match error {
            ReceiveError::TimedOut => TransferError::Stalled,
            ReceiveError::Closed(e) if e.kind() == ErrorKind::TimedOut => TransferError::Stalled,
            ReceiveError::Closed(_) | ReceiveError::Cancelled => TransferError::Broken,
            ReceiveError::Malformed => TransferError::NotAMember,
        }
    }

    /// Classifies an aborted transfer: if small messages still arrive, the path drops large
    /// packets; otherwise it is down.
    fn diagnose(&mut self, error: TransferAbort, until: Instant) -> TransferError {
        if let Some(channel) = self.channel.take() {
            channel.abort();
        }
        match error {
            TransferAbort::By(error) => error,
            TransferAbort::NothingArrived => match self.dial(until.max(Instant::now() + REPLY_TIMEOUT)) {
                Ok(channel) => {
                    self.channel = Some(channel);
                    TransferError::MtuBlackHole
                }
                Err(_) => TransferError::Stalled,
            },
        }
    }

    fn transfer(
        &mut self,
        reservation: Reservation<'_>,
        until: Instant,
    ) -> Result<Measurement, TransferAbort> {
        let Some(channel) = self.channel.as_mut() else {
            return Err(TransferAbort::By(TransferError::Broken));
        };
        let broken = |_| TransferAbort::By(TransferError::Broken);
        let stream = std::sync::Arc::clone(&channel.stream);
        let before = TcpInfo::query(&*stream).map_err(broken)?;
        stream.set_write_timeout(Some(POLL_INTERVAL)).map_err(broken)?;
        let (began, cpu) = (Instant::now(), processor_time());
        let size = self.shared.mesh.size;
        let mut left = size;
        let mut monitor = Monitor {
            shared: self.shared,
            stream: &stream,
            reservation,
            before: before.clone(),
            until,
            left,
            acked: before.bytes_acked,
            acked_at: began,
            delivery_rate: None,
            polled_at: began,
        };
        let block = noise();
        while left > 0 {
            let max = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
            match (&*stream).write(&block[..max]) {
                Ok(n) => left -= n as u64,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::TimedOut => {
                    return Err(TransferAbort::By(TransferError::Stalled));
                }
                Err(_) => return Err(TransferAbort::By(TransferError::Broken)),
            }
            monitor.left = left;
            monitor.poll()?;
        }
        let mut aborted = None;
        let reply = channel.receive(until, &mut || match monitor.poll() {
            Ok(()) => true,
            Err(e) => {
                aborted = Some(e);
                false
            }
        });
        let duration = began.elapsed();
        let used = processor_time().saturating_sub(cpu);
        match reply {
            Ok(Message::Received { bytes }) if bytes == size => {}
            Ok(_) | Err(ReceiveError::Malformed) => return Err(TransferAbort::By(TransferError::NotAMember)),
            Err(ReceiveError::TimedOut) => return Err(monitor.timed_out()),
            Err(ReceiveError::Cancelled) => {
                return Err(aborted.unwrap_or(TransferAbort::By(TransferError::Broken)));
            }
            Err(ReceiveError::Closed(e)) if e.kind() == ErrorKind::TimedOut => {
                return Err(TransferAbort::By(TransferError::Stalled));
            }
            Err(ReceiveError::Closed(_)) => return Err(TransferAbort::By(TransferError::Broken)),
        }
        let after = TcpInfo::query(&*stream).map_err(broken)?;
        monitor.record_rate(&after);
        let busy = since(before.busy_time, after.busy_time).unwrap_or(Span::ZERO);
        let share = |from: Option<Span>, to: Option<Span>| match since(from, to) {
            Some(span) if !busy.is_zero() => (span.as_secs_f64() / busy.as_secs_f64()).clamp(0.0, 1.0) as f32,
            _ => 0.0,
        };
        let segments = |info: &TcpInfo| info.data_segs_out.or(info.segs_out).unwrap_or(0);
        Ok(Measurement {
            bytes: size,
            duration: Span::from_nanos(duration.as_nanos() as u64),
            delivery_rate: monitor.delivery_rate,
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

/// Why a transfer was aborted.
enum TransferAbort {
    By(TransferError),
    /// No segment was acknowledged.
    NothingArrived,
}

/// Monitors a transfer in progress.
struct Monitor<'a> {
    shared: &'a Shared,
    stream: &'a std::net::TcpStream,
    reservation: Reservation<'a>,
    before: TcpInfo,
    until: Instant,
    /// Payload not yet written to the socket.
    left: u64,
    acked: Option<u64>,
    acked_at: Instant,
    delivery_rate: Option<Rate>,
    polled_at: Instant,
}

impl Monitor<'_> {
    fn poll(&mut self) -> Result<(), TransferAbort> {
        let now = Instant::now();
        if now.duration_since(self.polled_at) < POLL_INTERVAL && now < self.until {
            return Ok(());
        }
        self.polled_at = now;
        if self.shared.stop.is_stopped() {
            return Err(TransferAbort::By(TransferError::Broken));
        }
        let Ok(info) = TcpInfo::query(self.stream) else {
            return Err(TransferAbort::By(TransferError::Broken));
        };
        self.record_rate(&info);
        if info.bytes_acked != self.acked {
            (self.acked, self.acked_at) = (info.bytes_acked, now);
        }
        let moved = wire_bytes(&self.before, &info);
        self.reservation.set_used(moved);
        if !self.reservation.extend_to(moved + self.left + self.left / 32) {
            return Err(TransferAbort::By(TransferError::SenderBudget));
        }
        if now >= self.until {
            return Err(self.timed_out());
        }
        if now.duration_since(self.acked_at) >= stall_timeout(self.shared) {
            return Err(self.stalled());
        }
        Ok(())
    }

    fn stalled(&self) -> TransferAbort {
        if self.acked == self.before.bytes_acked {
            TransferAbort::NothingArrived
        } else {
            TransferAbort::By(TransferError::Stalled)
        }
    }

    fn timed_out(&self) -> TransferAbort {
        if self.acked == self.before.bytes_acked {
            TransferAbort::NothingArrived
        } else {
            TransferAbort::By(TransferError::TooSlow)
        }
    }

    fn record_rate(&mut self, info: &TcpInfo) {
        if !info.delivery_rate_app_limited && info.delivery_rate.is_some_and(|rate| rate > Rate::ZERO) {
            self.delivery_rate = info.delivery_rate;
        }
    }
}

impl Drop for Monitor<'_> {
    /// Account for the bytes sent so far; if unknown, for the whole reservation.
    fn drop(&mut self) {
        self.reservation
            .set_used(TcpInfo::query(self.stream).map_or(u64::MAX, |info| wire_bytes(&self.before, &info)));
    }
}

/// How long a transfer may make no progress.
pub(super) fn stall_timeout(shared: &Shared) -> Duration {
    (Duration::from(shared.mesh.limit) / 2).clamp(STALL_TIMEOUT_RANGE[0], STALL_TIMEOUT_RANGE[1])
}

fn since(from: Option<Span>, to: Option<Span>) -> Option<Span> {
    Some(Span::from_nanos(to?.as_nanos().saturating_sub(from?.as_nanos())))
}

/// Bytes on the wire between two samples, both ways.
pub(super) fn wire_bytes(before: &TcpInfo, after: &TcpInfo) -> u64 {
    let bytes = |b: Option<u64>, a: Option<u64>| a.unwrap_or(0).saturating_sub(b.unwrap_or(0));
    let segments = |b: Option<u32>, a: Option<u32>| u64::from(a.unwrap_or(0).wrapping_sub(b.unwrap_or(0)));
    bytes(before.bytes_sent, after.bytes_sent)
        + bytes(before.bytes_received, after.bytes_received)
        + HEADER_BYTES * (segments(before.segs_out, after.segs_out) + segments(before.segs_in, after.segs_in))
}

/// Budget bytes reserved for a transfer with a peer; the unused part is released on drop.
pub(super) struct Reservation<'a> {
    shared: &'a Shared,
    peer: SiteId,
    reserved: u64,
    used: u64,
}

impl<'a> Reservation<'a> {
    pub fn new(shared: &'a Shared, peer: SiteId, bytes: u64) -> Result<Reservation<'a>, TransferError> {
        match shared.ledger.reserve(peer, bytes, shared.now()) {
            Ok(()) => Ok(Reservation { shared, peer, reserved: bytes, used: 0 }),
            Err(refused) => {
                if let ReserveError::File(e) = refused {
                    shared.log(&Event::BudgetWriteFailed { reason: e.to_string() });
                }
                Err(TransferError::SenderBudget)
            }
        }
    }

    pub fn set_used(&mut self, bytes: u64) {
        self.used = bytes;
    }

    /// Extends the reservation to `bytes`; `false` if the budget is exhausted.
    pub fn extend_to(&mut self, bytes: u64) -> bool {
        if bytes <= self.reserved {
            return true;
        }
        let more = (bytes - self.reserved).max(self.reserved / 8);
        let reserved = self.shared.ledger.reserve(self.peer, more, self.shared.now()).is_ok();
        if reserved {
            self.reserved += more;
        }
        reserved
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.shared.ledger.release(self.peer, self.reserved.saturating_sub(self.used));
        // A peer can send more than was reserved, such as in segments of a byte.
        if self.used != u64::MAX && self.used > self.reserved {
            self.shared.ledger.overdraw(self.peer, self.used - self.reserved, self.shared.now());
        }
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
