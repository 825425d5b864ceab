//! Receiver reports and scoreboard agree: whatever is lost, reordered or duplicated, and whichever
//! ACKs are lost, the sender learns what has arrived as soon as from a Linux receiver.

use super::scoreboard::Scoreboard;
use crate::receiver::Receiver;
use crate::segment::{Kind, SackStore, Segment};
use fullpipe_cc::{Span, Stamp, Time};
use fullpipe_experiment::scenario::FlowSpec;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Segments of a connection.
const SEGMENTS: u64 = 120;

/// A change of at most this many runs waits for an ACK (`TCP_SACK_BLOCKS_EXPECTED`).
const RUNS_PER_ACK: usize = 2;

/// Both ends of a connection whose data has all been sent.
struct Ends {
    receiver: Receiver,
    sacks: SackStore,
    board: Scoreboard,
    now: Time,
    arrived: BTreeSet<u64>,
    known: BTreeSet<u64>,
    /// What has arrived since the last ACK was sent.
    fresh: BTreeSet<u64>,
    acks_lost: usize,
}

impl Ends {
    fn new() -> Self {
        let mut board = Scoreboard::new();
        (0..SEGMENTS).for_each(|id| board.push(1000, Stamp { id, ..Stamp::default() }));
        Ends {
            receiver: Receiver::new(1000, &FlowSpec::bulk("cubic")),
            sacks: SackStore::default(),
            board,
            now: Time::ZERO,
            arrived: BTreeSet::new(),
            known: BTreeSet::new(),
            fresh: BTreeSet::new(),
            acks_lost: 0,
        }
    }

    fn arrives(&mut self, seq: u64, ack_is_lost: bool) {
        let rtt = Some(Span::from_millis(100));
        let (stamp, edge) = (self.now, (seq + 1) * 1000);
        let data = Segment { seq, stamp, edge, detail: 1000, ce: 0, kind: Kind::Data, push: false };
        if self.receiver.must_acknowledge_before(&data) {
            self.acknowledge(ack_is_lost);
        }
        if self.arrived.insert(seq) {
            self.fresh.insert(seq);
        }
        if self.receiver.on_data(self.now, &data, false, rtt) {
            self.acknowledge(ack_is_lost);
        }
    }

    /// Time passes, in which a held-back ACK may become due.
    fn wait(&mut self, span: Span, ack_is_lost: bool) {
        self.now += span;
        if self.receiver.ack_due() <= self.now {
            self.acknowledge(ack_is_lost);
        }
    }

    fn acknowledge(&mut self, is_lost: bool) {
        let ack = self.receiver.acknowledge(&mut self.sacks);
        let sack = self.sacks.remove(ack.detail);
        let fresh = std::mem::take(&mut self.fresh);
        if is_lost {
            self.acks_lost += 1;
            return;
        }
        let known = &mut self.known;
        let mut newly = |seq, _: &_| assert!(known.insert(seq), "{seq} is reported as new twice");
        self.board.sack(sack.blocks(), &mut newly);
        self.board.ack(ack.seq, &mut newly);
        assert!(self.known.is_subset(&self.arrived), "reported before it arrived");
        let missing: Vec<_> = fresh.difference(&self.known).collect();
        assert!(
            missing.is_empty(),
            "{missing:?} arrived since the last ACK and is not in {sack:?} up to {}",
            ack.seq
        );
    }

    /// Runs of arrived segments of which the sender does not know all.
    fn incomplete_runs(&self) -> usize {
        let starts = self.arrived.iter().filter(|seq| **seq == 0 || !self.arrived.contains(&(**seq - 1)));
        let run = |start: u64| (start..).take_while(|seq| self.arrived.contains(seq));
        starts.filter(|start| run(**start).any(|seq| !self.known.contains(&seq))).count()
    }
}

/// The next segments, of which some are lost; late or retransmitted ones; and pauses, in
/// microseconds.
fn events() -> impl Strategy<Value = Vec<(u8, u64, bool)>> {
    prop::collection::vec((0u8..10, 0u64..1000, any::<bool>()), 1..400)
}

/// Runs the events. A segment that is skipped is lost, until an event picks it.
fn run(events: Vec<(u8, u64, bool)>, acks_are_lost: bool, mut check: impl FnMut(&Ends)) -> Ends {
    let mut ends = Ends::new();
    let mut next = 0;
    for (kind, n, lost) in events {
        let lost = lost && acks_are_lost;
        match kind {
            0..=5 if next < SEGMENTS => {
                next = (next + n % 3).min(SEGMENTS - 1);
                ends.arrives(next, lost);
                next += 1;
            }
            9 => ends.wait(Span::from_micros(n * 3), lost),
            _ if next > 0 => ends.arrives(n % next, lost),
            _ => {}
        }
        check(&ends);
    }
    ends
}

proptest! {
    #[test]
    fn every_ack_reports_all_that_has_arrived(events in events()) {
        let mut ends = run(events, false, |_| {});
        ends.wait(Span::from_secs(1), false);
        prop_assert_eq!(&ends.known, &ends.arrived);
    }

    #[test]
    fn a_lost_ack_leaves_few_runs_unknown_until_they_are_retransmitted(events in events()) {
        let mut ends = run(events, true, |ends| {
            // Changes of one more ACK may be held back.
            assert!(ends.incomplete_runs() <= RUNS_PER_ACK * (ends.acks_lost + 1));
        });
        ends.wait(Span::from_secs(1), false);
        while let Some(&seq) = ends.arrived.difference(&ends.known).next() {
            ends.arrives(seq, false);
            prop_assert!(ends.known.contains(&seq), "the retransmission of {} is not reported", seq);
        }
    }
}
