//! Trained controllers on kernel sockets: once per round trip the network computes window and
//! pacing rate from the socket's statistics, and sets them in the kernel. Loss detection,
//! retransmission and buffering are the kernel's.

use super::connection::Connection;
use super::registry::Registry;
use crate::emulator::Clock;
use crate::inspect::{SocketCounters, Steer};
use crate::priority;
use fullpipe_kernel::tcp_info::{State, TcpInfo};
use fullpipe_policy::{Agent, Network, Step};
use fullpipe_units::{Span, Time};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often to check for a connection that is not established yet; also the shortest step.
const POLL_INTERVAL: Span = Span::from_millis(1);
/// Longest sleep: the stop of a run is noticed within it.
const HEARTBEAT: Span = Span::from_millis(20);

/// Totals of a connection; a step is the difference between two of them.
#[derive(Clone, Copy, Default)]
struct Totals {
    sent: u64,
    delivered: u32,
    marks: u32,
    tally: SocketCounters,
}

impl Totals {
    fn new(info: &TcpInfo, tally: SocketCounters) -> Self {
        Totals {
            sent: info.bytes_sent.unwrap_or_default(),
            delivered: info.delivered.unwrap_or_default(),
            marks: info.delivered_ce.unwrap_or_default(),
            tally,
        }
    }

    /// The step since `before`, in the same quantities as for a simulated connection.
    fn since(&self, before: &Totals, took: Span, info: &TcpInfo, cwnd: u64) -> Step {
        let mss = u64::from(info.snd_mss);
        let packets = |now: u32, then: u32| u64::from(now.wrapping_sub(then));
        let (tally, earlier) = (self.tally, before.tally);
        let rtts = packets(tally.rtts, earlier.rtts);
        let rtt_sum = tally.rtt_sum.as_nanos().saturating_sub(earlier.rtt_sum.as_nanos());
        Step {
            duration: took,
            sent: self.sent.saturating_sub(before.sent),
            acked: packets(self.delivered, before.delivered) * mss,
            lost: packets(tally.lost, earlier.lost) * mss,
            acks: packets(tally.acks, earlier.acks),
            marks: packets(self.marks, before.marks),
            rtt: rtt_sum.checked_div(rtts).map(Span::from_nanos),
            min_rtt: info.min_rtt,
            inflight: u64::from(info.inflight()) * mss,
            cwnd,
        }
    }
}

/// The state of an established connection.
struct Session {
    socket: Arc<TcpStream>,
    pilot: Agent,
    totals: Totals,
    began: Time,
}

/// A connection with a trained controller.
struct Steered {
    number: usize,
    network: Network,
    initial_window: u32,
    session: Option<Session>,
    at: Time,
}

/// The steered connections of a run.
pub(crate) struct Steering<'a> {
    steer: &'a dyn Steer,
    flows: Vec<Steered>,
}

impl<'a> Steering<'a> {
    /// The steered ones among `connections`; `None` if there are none.
    pub(crate) fn new(connections: &[Connection], steer: Option<&'a dyn Steer>) -> Option<Self> {
        let flows: Vec<Steered> = connections
            .iter()
            .filter_map(|connection| {
                let network = connection.spec.policy.clone()?;
                let (number, initial_window) = (connection.number, connection.spec.initial_window);
                Some(Steered {
                    number,
                    network,
                    initial_window,
                    session: None,
                    at: connection.start().unwrap_or_default(),
                })
            })
            .collect();
        (!flows.is_empty()).then_some(()).and(steer).map(|steer| Steering { steer, flows })
    }

    /// Steers until `stop`.
    pub(crate) fn run(mut self, registry: &Registry, clock: Clock, stop: &AtomicBool) {
        priority::endpoint();
        while !stop.load(Ordering::Relaxed) {
            let now = clock.now();
            for flow in self.flows.iter_mut().filter(|flow| flow.at <= now) {
                flow.at = match flow.resume(self.steer, registry, &clock) {
                    Ok(pause) => now + pause.max(POLL_INTERVAL),
                    Err(e) => {
                        let problem = format!("cannot set its window any more: {e}");
                        registry.entry(flow.number).problem.get_or_insert(problem);
                        Time::NEVER
                    }
                };
            }
            let next = self.flows.iter().map(|flow| flow.at).min().unwrap_or(Time::NEVER);
            let pause = next.since(clock.now()).min(HEARTBEAT);
            thread::sleep(Duration::from(pause));
        }
    }
}

impl Steered {
    /// Performs a step if the connection is established; returns how long to wait before the next
    /// one.
    fn resume(&mut self, steer: &dyn Steer, registry: &Registry, clock: &Clock) -> io::Result<Span> {
        let Some(session) = &mut self.session else {
            let (socket, over) = {
                let entry = registry.entry(self.number);
                (entry.sender.clone(), entry.over)
            };
            let Some(socket) = socket.filter(|_| !over) else {
                return Ok(if over { HEARTBEAT } else { POLL_INTERVAL });
            };
            let info = TcpInfo::query(&*socket)?;
            if info.state != State::Established {
                return Ok(POLL_INTERVAL);
            }
            steer.track(socket.as_fd())?;
            let initial = u64::from(self.initial_window) * u64::from(info.snd_mss);
            let pilot = Agent::new(self.network.clone(), initial, info.snd_mss);
            let totals = Totals::new(&info, SocketCounters::default());
            self.session = Some(Session { socket, pilot, totals, began: clock.now() });
            return Ok(info.rtt);
        };
        if registry.entry(self.number).over {
            return Ok(HEARTBEAT);
        }
        let info = TcpInfo::query(&*session.socket)?;
        let totals = Totals::new(&info, steer.counters(session.socket.as_fd())?);
        let now = clock.now();
        let step = totals.since(&session.totals, now.since(session.began), &info, session.pilot.window());
        let orders = session.pilot.decide(&step);
        let packets = orders.window.div_ceil(u64::from(info.snd_mss.max(1)));
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        steer.set(session.socket.as_fd(), packets, orders.pacing)?;
        (session.totals, session.began) = (totals, now);
        Ok(info.rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_step_is_what_has_changed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut info = TcpInfo::query(&socket).unwrap();
        info.snd_mss = 1000;
        let ms = Span::from_millis;
        // The kernel's counters wrap around to zero.
        let before = Totals {
            sent: 5000,
            delivered: u32::MAX,
            marks: 1,
            tally: SocketCounters { rtt_sum: ms(100), rtts: 3, acks: u32::MAX - 1, lost: 2 },
        };
        let now = Totals {
            sent: 25_000,
            delivered: 9,
            marks: 4,
            tally: SocketCounters { rtt_sum: ms(220), rtts: 6, acks: 4, lost: 5 },
        };
        let step = now.since(&before, ms(40), &info, 12_345);
        assert_eq!((step.sent, step.acked, step.lost, step.acks, step.marks), (20_000, 10_000, 3000, 6, 3));
        assert_eq!((step.rtt, step.cwnd, step.duration), (Some(ms(40)), 12_345, ms(40)));
        assert_eq!(before.since(&before, ms(1), &info, 1).rtt, None);
    }
}
