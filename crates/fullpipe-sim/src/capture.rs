//! Packet captures at the ends of simulated connections.

use crate::segment::{Kind, NO_SACK, SackStore, Segment};
use fullpipe_cc::Time;

/// The end of the connection at which packets are captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The data sender.
    Sender,
    /// The data receiver.
    Receiver,
}

/// Most SACK blocks of an acknowledgment, the duplicate report included.
const MAX_BLOCKS: usize = 4;

/// A captured packet's kind and contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// A SYN.
    Syn,
    /// A SYN-ACK, with the initial right edge of the receive window.
    SynAck {
        /// First byte that may not be sent yet.
        edge: u64,
    },
    /// The ACK that completes the handshake.
    Established,
    /// Bytes `from..to` of the stream.
    Data {
        /// First byte.
        from: u64,
        /// One past the last byte.
        to: u64,
        /// When it was sent: its timestamp option.
        stamp: Time,
    },
    /// An acknowledgment.
    Ack {
        /// First byte that has not been received (cumulative acknowledgment).
        ack: u64,
        /// First byte that may not be sent yet.
        edge: u64,
        /// Timestamp echo: when the data that it acknowledges was sent.
        echo: Time,
        /// The SACK blocks in the order of the option, a duplicate report first; unused ones are
        /// `(0, 0)`.
        blocks: [(u64, u64); MAX_BLOCKS],
    },
}

/// A captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedPacket {
    /// When it passed.
    pub at: Time,
    /// Where it was captured.
    pub end: End,
    /// Kind and contents.
    pub kind: PacketKind,
    /// Data marked Congestion Experienced, or an acknowledgment of such data.
    pub marked: bool,
}

/// Captures all packets at one end, or the data packets at both.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The captured end. `None`: the data packets at both ends; ACKs would double the memory.
    end: Option<End>,
    packets: Vec<CapturedPacket>,
    /// Byte position at which each segment begins.
    starts: Vec<u64>,
    /// One past the last byte sent.
    sent: u64,
}

impl Capture {
    pub fn new(end: Option<End>) -> Self {
        Capture { end, packets: Vec::new(), starts: Vec::new(), sent: 0 }
    }

    pub fn into_packets(self) -> Vec<CapturedPacket> {
        self.packets
    }

    /// Records a packet of the handshake.
    pub fn handshake(&mut self, at: Time, end: End, kind: PacketKind) {
        if self.end == Some(end) {
            self.packets.push(CapturedPacket { at, end, kind, marked: false });
        }
    }

    /// Records a data segment, which may be `marked`.
    pub fn data(&mut self, at: Time, end: End, data: &Segment, marked: bool) {
        let from = data.edge - u64::from(data.detail);
        let number = data.seq as usize;
        if self.starts.len() <= number {
            self.starts.resize(number + 1, from);
        }
        self.sent = self.sent.max(data.edge);
        if self.end.is_none_or(|only| only == end) {
            let kind = PacketKind::Data { from, to: data.edge, stamp: data.stamp };
            self.packets.push(CapturedPacket { at, end, kind, marked });
        }
    }

    /// Records an acknowledgment whose SACK information is still in `sacks`.
    pub fn ack(&mut self, at: Time, end: End, ack: &Segment, sacks: &SackStore) {
        if self.end != Some(end) || ack.kind != Kind::Ack {
            return;
        }
        let byte = |number: u64| self.starts.get(number as usize).copied().unwrap_or(self.sent);
        let mut blocks = [(0, 0); MAX_BLOCKS];
        if ack.detail != NO_SACK {
            let info = sacks.get(ack.detail);
            for (place, (from, to)) in blocks.iter_mut().zip(info.dsack.iter().chain(info.blocks())) {
                *place = (byte(*from), byte(*to));
            }
        }
        let kind = PacketKind::Ack { ack: byte(ack.seq), edge: ack.edge, echo: ack.stamp, blocks };
        self.packets.push(CapturedPacket { at, end, kind, marked: ack.ce > 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use fullpipe_experiment::Recording;
    use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};

    /// A transfer of ten packets, of which the fourth is lost (the list counts the two packets of
    /// the handshake).
    fn transfer() -> Scenario {
        let mut path =
            PathSpec::bottleneck("10mbit".parse().unwrap(), "40ms".parse().unwrap(), "1bdp".parse().unwrap());
        path.forward[0].loss = Some(serde_json::from_str(r#"{"kind": "list", "packets": [6]}"#).unwrap());
        let mut flow = FlowSpec::bulk("reno");
        flow.size = Some("14480B".parse().unwrap());
        let mut scenario = Scenario::new(path, vec![flow]);
        scenario.duration = "2s".parse().unwrap();
        scenario
    }

    fn captured(end: End) -> Vec<CapturedPacket> {
        Simulation::new(&transfer(), 1).run_captured(end).unwrap().1
    }

    #[test]
    fn captures_at_both_ends_agree() {
        let data = |passed: &[CapturedPacket]| {
            let sizes = passed.iter().filter_map(|p| match p.kind {
                PacketKind::Data { from, to, .. } => Some((from / 1448, to - from)),
                _ => None,
            });
            sizes.collect::<Vec<_>>()
        };
        let (sender, receiver) = (captured(End::Sender), captured(End::Receiver));
        let (left, arrived) = (data(&sender), data(&receiver));
        assert_eq!(left.len(), 11);
        assert_eq!(arrived.len(), 10);
        assert_eq!(left.iter().filter(|(n, _)| *n == 3).count(), 2);
        assert_eq!(arrived.last(), Some(&(3, 1448)));
        let blocks =
            sender.iter().filter(|p| matches!(p.kind, PacketKind::Ack { blocks, .. } if blocks[0].1 > 0));
        assert!(blocks.count() >= 3);
        assert!(matches!(sender.last().unwrap().kind, PacketKind::Ack { ack: 14_480, .. }));
        assert!(matches!(receiver.last().unwrap().kind, PacketKind::Ack { ack: 14_480, .. }));
        assert!(sender.is_sorted_by_key(|p| p.at) && receiver.is_sorted_by_key(|p| p.at));
    }

    #[test]
    fn capture_at_both_ends_has_the_data_packets_of_every_flow() {
        let mut scenario = transfer();
        let (alone, flows) = Simulation::new(&scenario, 1).run_captured_at_both_ends().unwrap();
        // Compared as JSON: missing samples are NaN.
        let json = |recording: &Recording| serde_json::to_string(recording).unwrap();
        assert_eq!(json(&alone), json(&Simulation::new(&scenario, 1).run().unwrap()));
        let [both] = &flows[..] else { panic!("{} flows", flows.len()) };
        assert!(both.is_sorted_by_key(|p| p.at));
        for end in [End::Sender, End::Receiver] {
            let at_end: Vec<_> = both.iter().filter(|p| p.end == end).copied().collect();
            let is_data = |p: &CapturedPacket| matches!(p.kind, PacketKind::Data { .. });
            let data: Vec<_> = captured(end).into_iter().filter(is_data).collect();
            assert_eq!(at_end, data);
        }
        scenario.flows.push(FlowSpec::bulk("cubic"));
        scenario.flows[1].count = 2;
        let (recording, flows) = Simulation::new(&scenario, 1).run_captured_at_both_ends().unwrap();
        assert_eq!(flows.len(), 3);
        for (flow, packets) in recording.flows.iter().zip(&flows) {
            let sent = packets.iter().filter(|p| p.end == End::Sender).count();
            assert_eq!(sent as u64, flow.summary.packets_sent, "{}", flow.label);
        }
    }
}
