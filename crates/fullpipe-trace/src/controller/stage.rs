//! A candidate on the path that a capture showed: simulated, and seen from the same place.

use super::path::Guess;
use crate::analysis::{Analysis, Options, Traced};
use crate::wire::{Ecn, Flags, Segment, Selective};
use fullpipe_experiment::connection::Point;
use fullpipe_experiment::scenario::{Scenario, Setting};
use fullpipe_sim::{Controllers, End, Passed, SimError, Simulation, What};
use fullpipe_units::{Span, Time};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Scale of the windows in the simulated packets: the greatest (RFC 7323 §2.3).
const SCALE: u8 = 14;

/// A controller with its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// What it is called in a verdict.
    pub(crate) name: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

/// Who might have sent.
pub(crate) const CANDIDATES: &[Candidate] = &[
    Candidate { name: "bbr", settings: &[] },
    Candidate { name: "bbr3", settings: &[] },
    Candidate { name: "cubic", settings: &[] },
    Candidate { name: "cubic", settings: &[("hystart", "off")] },
    Candidate { name: "reno", settings: &[] },
    Candidate { name: "hybla", settings: &[] },
];

/// What `candidate` would have looked like on `path` from `end`, with all that is random drawn from `seed`.
pub(crate) fn play(
    candidate: &Candidate,
    path: &Guess,
    end: End,
    seed: u64,
) -> Result<Option<Traced>, SimError> {
    let mut scenario = path.scenario(candidate.name);
    for flow in &mut scenario.flows {
        let settings = candidate.settings.iter();
        flow.settings = settings.map(|(k, v)| ((*k).to_owned(), Setting::Text((*v).to_owned()))).collect();
    }
    let at = if end == End::Sender { Point::Client } else { Point::Server };
    let controllers = Controllers::new();
    let simulation = Simulation::new(&scenario, seed).controllers(&controllers).receiving(&path.receiving);
    seen_of(simulation, &scenario, end, Some(at))
}

/// What a capture at one `end` of the first flow of `scenario` would say of it; `at` overrules where it was taken.
///
/// # Errors
/// See [`SimError`].
pub fn simulated(
    scenario: &Scenario,
    seed: u64,
    controllers: &Controllers,
    end: End,
    at: Option<Point>,
) -> Result<Option<Traced>, SimError> {
    seen_of(Simulation::new(scenario, seed).controllers(controllers), scenario, end, at)
}

/// What a capture at one `end` of the first flow of `simulation`, of `scenario`, says of it.
fn seen_of(
    simulation: Simulation<'_>,
    scenario: &Scenario,
    end: End,
    at: Option<Point>,
) -> Result<Option<Traced>, SimError> {
    let (_, passed) = simulation.run_captured(end)?;
    let mut analysis = Analysis::new(Options { at, ..Options::default() });
    let back = scenario.path.reverse.iter().fold(Span::ZERO, |d, l| d + l.delay);
    let mut wire = Wire::new(back, end, scenario.mtu);
    for packet in &passed {
        analysis.segment(&wire.segment(packet));
    }
    Ok(analysis.finish().connections.into_iter().next())
}

/// Makes segments as captured of simulated packets.
struct Wire {
    client: SocketAddr,
    server: SocketAddr,
    /// How long an acknowledgment travels, and from when it is timed here.
    back: Span,
    end: End,
    /// Of a packet without options, as both ends announce it.
    mss: u16,
    /// Timestamps of acknowledgments that have not reached the sender, with the time at which they do.
    told: std::collections::VecDeque<(Time, u32)>,
    echo: u32,
}

impl Wire {
    fn new(back: Span, end: End, mtu: u32) -> Self {
        let address = |n, port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)), port);
        Wire {
            client: address(1, 50_000),
            server: address(2, 80),
            back,
            end,
            mss: u16::try_from(mtu.saturating_sub(40)).unwrap_or(u16::MAX),
            told: Default::default(),
            echo: 0,
        }
    }

    /// Linux's timestamps count milliseconds.
    fn stamp(at: Time) -> u32 {
        (at.as_micros() / 1000) as u32 + 1
    }

    fn segment(&mut self, packet: &Passed) -> Segment {
        let at = packet.at;
        let (mut seq, mut payload, mut window) = (0, 0, u16::MAX);
        let ack;
        let mut options = Selective::default();
        let mut flags = Flags::ACK;
        let to_server = matches!(packet.what, What::Syn | What::Established | What::Data { .. });
        let answered = |at: Time| if self.end == End::Sender { at - self.back } else { at };
        // TCP counts modulo 2³².
        let number = |byte: u64| (byte as u32).wrapping_add(1);
        let stamps;
        match packet.what {
            What::Syn | What::SynAck { .. } => {
                options.mss = Some(self.mss);
                options.window_scale = Some(SCALE);
                options.sack_permitted = true;
                flags = if to_server { Flags::SYN } else { Flags::SYN | Flags::ACK };
                ack = u32::from(!to_server);
                stamps = (Self::stamp(answered(at)), 0);
            }
            What::Established => {
                (seq, ack) = (1, 1);
                stamps = (Self::stamp(at), self.echo);
            }
            What::Data { from, to, stamp } => {
                (seq, ack, payload) = (number(from), 1, (to - from) as u32);
                while let Some((_, value)) = self.told.pop_front_if(|(arrives, _)| *arrives <= stamp) {
                    self.echo = value;
                }
                stamps = (Self::stamp(stamp), self.echo);
            }
            What::Ack { ack: first, edge, echo, blocks } => {
                (seq, ack) = (1, number(first));
                window = u16::try_from(edge.saturating_sub(first) >> SCALE).unwrap_or(u16::MAX);
                for (from, to) in blocks.into_iter().take_while(|b| b.1 > 0) {
                    options.sack.push((number(from), number(to)));
                }
                let value = Self::stamp(answered(at));
                let arrives = if self.end == End::Sender { at } else { at + self.back };
                self.told.push_back((arrives, value));
                stamps = (value, Self::stamp(echo));
            }
        }
        options.timestamps = Some(stamps);
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
            ecn: Ecn::NotCapable,
        }
    }
}
