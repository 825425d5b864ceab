//! The packets of one flow, for an animation: when each left its sender and when it arrived.

use crate::MAX_LISTED;
use fullpipe_experiment::Scenario;
use fullpipe_sim::{CapturedPacket, Controllers, End, PacketKind, Simulation};
use serde::Serialize;
use std::collections::HashMap;

/// A data packet, as `[left, arrived, retransmission]`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Packet(
    /// When it left the sender, in seconds of the run.
    pub f64,
    /// When it arrived; none if it was dropped.
    pub Option<f64>,
    /// Whether it was sent before.
    pub bool,
);

/// The data packets of a scenario's first flow; none where there are more than [`MAX_LISTED`].
///
/// The simulator is deterministic, so two runs, captured at either end, are the same run.
pub fn packets(scenario: &Scenario, controllers: &Controllers) -> Vec<Packet> {
    let expected = scenario.highest_rate().map_or(f64::INFINITY, |rate| {
        rate.as_bits_per_sec_f64() * scenario.duration.as_secs_f64() / (8.0 * f64::from(scenario.mtu))
    });
    if expected > MAX_LISTED as f64 {
        return Vec::new();
    }
    let captured = |end| {
        let simulation = Simulation::new(scenario, scenario.seed).controllers(controllers);
        simulation.run_captured(end).map(|(_, passed)| passed).unwrap_or_default()
    };
    joined(&captured(End::Sender), &captured(End::Receiver))
}

fn joined(sent: &[CapturedPacket], received: &[CapturedPacket]) -> Vec<Packet> {
    let data = |passed: &CapturedPacket| match passed.kind {
        PacketKind::Data { from, to, stamp } => Some((from, to, stamp)),
        _ => None,
    };
    let mut arrived: HashMap<_, Vec<f64>> = HashMap::new();
    for passed in received.iter().rev() {
        if let Some(key) = data(passed) {
            arrived.entry(key).or_default().push(passed.at.as_secs_f64());
        }
    }
    let mut highest = 0;
    let packet = |passed: &CapturedPacket| {
        let key = data(passed)?;
        let again = key.1 <= highest;
        highest = highest.max(key.1);
        Some(Packet(passed.at.as_secs_f64(), arrived.get_mut(&key).and_then(Vec::pop), again))
    };
    sent.iter().filter_map(packet).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrival_has_its_departure_and_a_drop_has_none() {
        let text = "duration='2s'\n[path]\nrate='5mbit'\nrtt='40ms'\nloss='2%'\n[[flow]]\ncc='reno'\n";
        let cases = crate::cases(text, &Controllers::new()).unwrap();
        let packets = packets(&cases[0].scenario, &Controllers::new());
        let dropped = packets.iter().filter(|p| p.1.is_none()).count();
        assert!(packets.len() > 300 && dropped > 2, "{} packets, {dropped} dropped", packets.len());
        assert!(packets.iter().all(|p| p.1.is_none_or(|at| at >= p.0 + 0.02)));
        assert!(packets.iter().any(|p| p.2), "no retransmission");
        assert!(packets.is_sorted_by(|a, b| a.0 <= b.0));
    }
}
