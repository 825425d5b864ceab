//! The packets of each flow, for an animation: when each left its sender and when it arrived.

use fullpipe_cc::Time;
use fullpipe_sim::{CapturedPacket, End, PacketKind};

/// A data packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Packet(
    /// When it left the sender, in seconds of the run.
    pub f64,
    /// When it arrived; none if it was dropped.
    pub Option<f64>,
    /// Whether it was sent before.
    pub bool,
);

/// The data packets of a flow captured at both ends, in the order in which they were sent.
pub(crate) fn joined(captured: &[CapturedPacket]) -> Vec<Packet> {
    let mut packets = Vec::with_capacity(captured.len() / 2);
    // Each packet's timestamp and bytes, in the order of the timestamps.
    let mut sent = Vec::with_capacity(captured.len() / 2);
    let (mut highest, mut next) = (0, 0);
    for passed in captured {
        let PacketKind::Data { from, to, stamp } = passed.kind else { continue };
        let key = (stamp, from, to);
        let at = passed.at.as_secs_f64();
        match passed.end {
            End::Sender => {
                sent.push(key);
                packets.push(Packet(at, None, to <= highest));
                highest = highest.max(to);
            }
            End::Receiver => {
                // Most packets arrive in order.
                let n = if sent.get(next) == Some(&key) { Some(next) } else { position(&sent, key) };
                if let Some(n) = n {
                    packets[n].1.get_or_insert(at);
                    next = n + 1;
                }
            }
        }
    }
    packets
}

fn position(sent: &[(Time, u64, u64)], key: (Time, u64, u64)) -> Option<usize> {
    let first = sent.partition_point(|other| other.0 < key.0);
    let same_time = sent[first..].iter().take_while(|other| other.0 == key.0);
    same_time.zip(first..).find(|(other, _)| **other == key).map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use fullpipe_sim::Controllers;

    #[test]
    fn every_arrival_has_its_departure_and_a_drop_has_none() {
        let text = "duration='2s'\n[path]\nrate='5mbit'\nrtt='40ms'\nloss='2%'\n[[flow]]\ncc='reno'\n\
                    [[flow]]\ncc='bbr'\nstart='500ms'\n";
        let outcome = crate::simulate(text, &Controllers::new()).unwrap();
        let flows = &outcome.results.runs[0].flows;
        assert_eq!(outcome.packets.len(), flows.len());
        for (packets, flow) in outcome.packets.iter().zip(flows) {
            assert_eq!(packets.len() as u64, flow.summary.packets_sent);
            let dropped = packets.iter().filter(|p| p.1.is_none()).count();
            assert!(packets.len() > 150 && dropped > 2, "{} packets, {dropped} dropped", packets.len());
            assert!(packets.iter().all(|p| p.1.is_none_or(|at| at >= p.0 + 0.02)));
            assert!(packets.iter().any(|p| p.2), "no retransmission");
            assert!(packets.is_sorted_by(|a, b| a.0 <= b.0));
        }
        assert!(outcome.packets[1][0].0 >= 0.5);
    }

    #[test]
    fn only_the_first_run_lists_packets_and_only_up_to_the_limit() {
        let text = "duration='2s'\nrepeats=2\n[path]\nrate='5mbit'\nrtt='40ms'\n[[flow]]\ncc='reno'\n";
        let outcome = crate::simulate(text, &Controllers::new()).unwrap();
        assert_eq!((outcome.results.runs.len(), outcome.packets.len()), (2, 1));
        let many = text.replace("5mbit", "2gbit").replace("repeats=2\n", "");
        assert!(crate::simulate(&many, &Controllers::new()).unwrap().packets.is_empty());
    }
}
