//! Simulates a candidate on the estimated path and captures it at the same end.

use super::path::PathEstimate;
use crate::analysis::{Analyser, Options, TracedConnection};
use crate::wire::{Ecn, Flags, Identity, Segment, TcpOptions};
use fullpipe_cc::registry::LINUX;
use fullpipe_experiment::connection::Point;
use fullpipe_experiment::scenario::{Scenario, Setting};
use fullpipe_sim::{CapturedPacket, Controllers, End, PacketKind, SimError, Simulation};
use fullpipe_units::{Span, Time};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Window scale of the simulated packets: the largest (RFC 7323 §2.3).
const WINDOW_SCALE: u8 = 14;

/// A controller with its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Name in results.
    pub(crate) name: &'static str,
    /// How often it is expected, relative to the most deployed.
    pub(crate) prior: f64,
    settings: &'static [(&'static str, &'static str)],
}

impl Candidate {
    const fn new(name: &'static str, prior: f64) -> Candidate {
        Candidate { name, prior, settings: &[] }
    }

    /// Whether it is hardly deployed.
    pub(crate) fn is_rare(&self) -> bool {
        self.prior <= RARE
    }

    /// Whether it is `reno` on a path that does not mark packets (`dctcp_reno` in Linux).
    pub(crate) fn needs_marks(&self) -> bool {
        self.name == "dctcp"
    }
}

/// The prior of Linux's other modules.
const RARE: f64 = 0.005;

const USUAL: [Candidate; 6] = [
    Candidate::new("bbr", 1.0),
    Candidate::new("bbr3", 0.7),
    Candidate::new("cubic", 1.0),
    Candidate { settings: &[("hystart", "off")], ..Candidate::new("cubic", 1.0) },
    Candidate::new("reno", 0.7),
    Candidate::new("hybla", 0.3),
];

/// All candidates: the usual ones, then Linux's other modules.
pub(crate) const CANDIDATES: [Candidate; USUAL.len() + LINUX.len()] = {
    let mut all = [USUAL[0]; USUAL.len() + LINUX.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < USUAL.len() { USUAL[i] } else { Candidate::new(LINUX[i - USUAL.len()], RARE) };
        i += 1;
    }
    all
};

/// Simulates `candidate` on `path` with `seed` and captures it at `end`.
pub(crate) fn simulate(
    candidate: &Candidate,
    path: &PathEstimate,
    end: End,
    seed: u64,
) -> Result<Option<TracedConnection>, SimError> {
    let mut scenario = path.scenario(candidate.name, end);
    for flow in &mut scenario.flows {
        let settings = candidate.settings.iter();
        flow.settings = settings.map(|(k, v)| ((*k).to_owned(), Setting::Text((*v).to_owned()))).collect();
    }
    let at = if end == End::Sender { Point::Client } else { Point::Server };
    let controllers = Controllers::new();
    let simulation =
        Simulation::new(&scenario, seed).controllers(&controllers).receiver_behaviour(&path.receiving);
    trace_simulation(simulation, &scenario, end, Some(at))
}

/// Simulates `scenario` and analyses a capture of its first flow at one `end`. `at` overrides the
/// detected place of capture.
///
/// # Errors
/// See [`SimError`].
pub fn simulate_capture(
    scenario: &Scenario,
    seed: u64,
    controllers: &Controllers,
    end: End,
    at: Option<Point>,
) -> Result<Option<TracedConnection>, SimError> {
    trace_simulation(Simulation::new(scenario, seed).controllers(controllers), scenario, end, at)
}

/// Runs `simulation` and analyses a capture of its first flow at one `end`.
fn trace_simulation(
    simulation: Simulation<'_>,
    scenario: &Scenario,
    end: End,
    at: Option<Point>,
) -> Result<Option<TracedConnection>, SimError> {
    let (_, passed) = simulation.run_captured(end)?;
    let mut analyser = Analyser::new(Options { at, ..Options::default() });
    let reverse_delay = scenario.path.reverse.iter().fold(Span::ZERO, |d, l| d + l.delay);
    let mut converter = PacketConverter::new(reverse_delay, end, scenario.mtu);
    for packet in &passed {
        analyser.add_segment(&converter.segment(packet));
    }
    Ok(analyser.finish().connections.into_iter().next())
}

/// Converts simulated packets to captured segments.
struct PacketConverter {
    client: SocketAddr,
    server: SocketAddr,
    /// Delay of the reverse path.
    reverse_delay: Span,
    end: End,
    /// Maximum segment size that both ends announce.
    mss: u16,
    /// Timestamps of acknowledgments on the reverse path, with their arrival times.
    in_transit: std::collections::VecDeque<(Time, u32)>,
    echo: u32,
}

impl PacketConverter {
    fn new(reverse_delay: Span, end: End, mtu: u32) -> Self {
        let address = |n, port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)), port);
        PacketConverter {
            client: address(1, 50_000),
            server: address(2, 80),
            reverse_delay,
            end,
            mss: u16::try_from(mtu.saturating_sub(40)).unwrap_or(u16::MAX),
            in_transit: Default::default(),
            echo: 0,
        }
    }

    /// Timestamp value; Linux counts milliseconds.
    fn timestamp(at: Time) -> u32 {
        (at.as_micros() / 1000) as u32 + 1
    }

    fn segment(&mut self, packet: &CapturedPacket) -> Segment {
        let at = packet.at;
        let (mut seq, mut payload, mut window) = (0, 0, u16::MAX);
        let ack;
        let mut options = TcpOptions::default();
        let mut flags = Flags::ACK;
        let to_server =
            matches!(packet.kind, PacketKind::Syn | PacketKind::Established | PacketKind::Data { .. });
        let ack_sent = |at: Time| if self.end == End::Sender { at - self.reverse_delay } else { at };
        // Sequence numbers are modulo 2³².
        let number = |byte: u64| (byte as u32).wrapping_add(1);
        let timestamps;
        match packet.kind {
            PacketKind::Syn | PacketKind::SynAck { .. } => {
                options.mss = Some(self.mss);
                options.window_scale = Some(WINDOW_SCALE);
                options.sack_permitted = true;
                flags = if to_server { Flags::SYN } else { Flags::SYN | Flags::ACK };
                ack = u32::from(!to_server);
                timestamps = (Self::timestamp(ack_sent(at)), 0);
            }
            PacketKind::Established => {
                (seq, ack) = (1, 1);
                timestamps = (Self::timestamp(at), self.echo);
            }
            PacketKind::Data { from, to, stamp } => {
                (seq, ack, payload) = (number(from), 1, (to - from) as u32);
                while let Some((_, value)) = self.in_transit.pop_front_if(|(arrives, _)| *arrives <= stamp) {
                    self.echo = value;
                }
                timestamps = (Self::timestamp(stamp), self.echo);
            }
            PacketKind::Ack { ack: first, edge, echo, blocks } => {
                (seq, ack) = (1, number(first));
                window = u16::try_from(edge.saturating_sub(first) >> WINDOW_SCALE).unwrap_or(u16::MAX);
                for (from, to) in blocks.into_iter().take_while(|b| b.1 > 0) {
                    options.sack.push((number(from), number(to)));
                }
                let value = Self::timestamp(ack_sent(at));
                let arrives = if self.end == End::Sender { at } else { at + self.reverse_delay };
                self.in_transit.push_back((arrives, value));
                timestamps = (value, Self::timestamp(echo));
            }
        }
        options.timestamps = Some(timestamps);
        let is_data = matches!(packet.kind, PacketKind::Data { .. });
        if packet.marked && !is_data {
            flags |= Flags::ECE;
        }
        let (from, to) = if to_server { (self.client, self.server) } else { (self.server, self.client) };
        Segment {
            at,
            from,
            to,
            seq,
            ack,
            flags: Flags(flags),
            window,
            payload,
            headers: 52,
            options,
            ecn: if packet.marked && is_data { Ecn::Marked } else { Ecn::NotCapable },
            identity: Identity::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::path::Delivery;
    use fullpipe_experiment::scenario::HEADER_BYTES;
    use fullpipe_path::{CodelSpec, QueueSpec};
    use fullpipe_units::Rate;

    #[test]
    fn candidates_can_be_simulated_on_whatever_path_a_capture_gives() {
        let (mut runs, mut delivered) = (0, 0);
        let codel = QueueSpec::Codel(CodelSpec { ecn: true, ..CodelSpec::default() });
        let all = [8, 3_000, 100_000_000]
            .into_iter()
            .flat_map(|rate| [10, 40_000, 20_000_000].map(|rtt| (rate, rtt)))
            .flat_map(|(rate, rtt)| [16, 1448, 65_000].map(|mss| (rate, rtt, mss)));
        for (seed, (kbits, us, mss)) in (0..).zip(all) {
            let rate = Rate::from_bits_per_sec(kbits * 1000);
            let rtprop = Span::from_micros(us);
            let packet = u64::from(mss + HEADER_BYTES);
            let marks = seed % 2 == 0;
            let third = (seed / 3 + seed) as usize % 3;
            let path = PathEstimate {
                rate,
                rtprop,
                buffer: 4 * packet + rate.bytes_in(rtprop).min(100 * packet),
                overflows: true,
                loss: [0.0, 0.01, 0.5][seed as usize / 9],
                initial_window: [1, 10, 200][third],
                initial_window_seen: true,
                receive_window: None,
                receiving: Vec::new(),
                mss,
                // A window that doubles in each round trip has thousands of packets then.
                duration: rtprop * [12, 9, 5][third] + rate.time_to_send(300 * packet),
                schedule: Vec::new(),
                delivery: [Delivery::Even, Delivery::Bunches(rtprop / 2), Delivery::Jitter(rtprop / 4)]
                    [third],
                early: marks.then(|| codel.clone()),
                marks,
            };
            for candidate in &CANDIDATES {
                for end in [End::Sender, End::Receiver] {
                    let traced = simulate(candidate, &path, end, seed);
                    let traced = traced.unwrap_or_else(|e| panic!("{}: {path:?}: {e}", candidate.name));
                    runs += 1;
                    delivered += u32::from(traced.is_some_and(|t| t.record.to_server.segments > 10));
                }
            }
        }
        assert!(delivered > runs * 3 / 4, "{delivered} of {runs}");
    }
}
