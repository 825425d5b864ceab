//! What passes at one end of a simulated connection, as a capture there would have it.

use crate::segment::{Kind, NO_SACK, SackStore, Segment};
use fullpipe_cc::Time;

/// Where packets are captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where data is sent.
    Sender,
    /// Where it arrives.
    Receiver,
}

/// Most blocks of an acknowledgment.
const BLOCKS: usize = 4;

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Opens the connection.
    Syn,
    /// Answers that, and tells the window's first right edge.
    SynAck {
        /// First byte that may not be sent yet.
        edge: u64,
    },
    /// Completes the handshake.
    Established,
    /// Bytes `from` to `to` of the stream.
    Data {
        /// First.
        from: u64,
        /// One after the last.
        to: u64,
        /// When it left: its timestamp.
        stamp: Time,
    },
    /// An acknowledgment.
    Ack {
        /// First byte that has not arrived.
        ack: u64,
        /// First byte that may not be sent yet.
        edge: u64,
        /// Timestamp of the data that it answers.
        echo: Time,
        /// What has arrived twice or beyond a hole, in the order of the option; `(0, 0)` where there is no more.
        blocks: [(u64, u64); BLOCKS],
    },
}

/// A packet as it passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// Writes down what passes at one end.
#[derive(Debug)]
pub(crate) struct Capture {
    end: End,
    passed: Vec<Passed>,
    /// Where each segment begins in the stream.
    starts: Vec<u64>,
    /// One after the last byte sent.
    sent: u64,
}

impl Capture {
    pub fn new(end: End) -> Self {
        Capture { end, passed: Vec::new(), starts: Vec::new(), sent: 0 }
    }

    pub fn into_passed(self) -> Vec<Passed> {
        self.passed
    }

    /// A handshake's packet.
    pub fn handshake(&mut self, at: Time, end: End, what: What) {
        self.note(at, end, what);
    }

    /// Data leaves, or arrives.
    pub fn data(&mut self, at: Time, end: End, data: &Segment) {
        let from = data.edge - u64::from(data.detail);
        let number = data.seq as usize;
        if self.starts.len() <= number {
            self.starts.resize(number + 1, from);
        }
        self.sent = self.sent.max(data.edge);
        self.note(at, end, What::Data { from, to: data.edge, stamp: data.stamp });
    }

    /// An acknowledgment leaves, or arrives; its selective part is still in `sacks`.
    pub fn ack(&mut self, at: Time, end: End, ack: &Segment, sacks: &SackStore) {
        if end != self.end || ack.kind != Kind::Ack {
            return;
        }
        let byte = |number: u64| self.starts.get(number as usize).copied().unwrap_or(self.sent);
        let mut blocks = [(0, 0); BLOCKS];
        if ack.detail != NO_SACK {
            let info = sacks.get(ack.detail);
            for (place, (from, to)) in blocks.iter_mut().zip(info.dsack.iter().chain(info.blocks())) {
                *place = (byte(*from), byte(*to));
            }
        }
        let what = What::Ack { ack: byte(ack.seq), edge: ack.edge, echo: ack.stamp, blocks };
        self.note(at, end, what);
    }

    fn note(&mut self, at: Time, end: End, what: What) {
        if end == self.end {
            self.passed.push(Passed { at, what });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};

    /// Ten packets of which the fourth is lost (the handshake's two count), seen at `end`.
    fn seen(end: End) -> Vec<Passed> {
        let mut path =
            PathSpec::bottleneck("10mbit".parse().unwrap(), "40ms".parse().unwrap(), "1bdp".parse().unwrap());
        path.forward[0].loss = Some(serde_json::from_str(r#"{"kind": "list", "packets": [6]}"#).unwrap());
        let mut flow = FlowSpec::bulk("reno");
        flow.size = Some("14480B".parse().unwrap());
        let mut scenario = Scenario::new(path, vec![flow]);
        scenario.duration = "2s".parse().unwrap();
        Simulation::new(&scenario, 1).run_captured(end).unwrap().1
    }

    #[test]
    fn both_ends_see_the_same_connection_from_their_side() {
        let data = |passed: &[Passed]| {
            let sizes = passed.iter().filter_map(|p| match p.what {
                What::Data { from, to, .. } => Some((from / 1448, to - from)),
                _ => None,
            });
            sizes.collect::<Vec<_>>()
        };
        let (sender, receiver) = (seen(End::Sender), seen(End::Receiver));
        let (left, arrived) = (data(&sender), data(&receiver));
        assert_eq!(left.len(), 11);
        assert_eq!(arrived.len(), 10);
        assert_eq!(left.iter().filter(|(n, _)| *n == 3).count(), 2);
        assert_eq!(arrived.last(), Some(&(3, 1448)));
        let blocks = sender.iter().filter(|p| matches!(p.what, What::Ack { blocks, .. } if blocks[0].1 > 0));
        assert!(blocks.count() >= 3);
        assert!(matches!(sender.last().unwrap().what, What::Ack { ack: 14_480, .. }));
        assert!(matches!(receiver.last().unwrap().what, What::Ack { ack: 14_480, .. }));
        assert!(sender.is_sorted_by_key(|p| p.at) && receiver.is_sorted_by_key(|p| p.at));
    }
}
