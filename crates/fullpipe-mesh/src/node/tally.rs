//! What a node has seen since it started, counted by pair and controller.

use crate::file::Mesh;
use crate::record::{ControllerId, Measured, Minute, Outcome, Pair, RttBand, SiteId, Transfer, Trouble};
use std::collections::BTreeMap;

/// Of all its transfers and probes.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By the receiving site and the controller.
    pub transfers: BTreeMap<(SiteId, ControllerId), PairTally>,
    /// By the site asked.
    pub probes: BTreeMap<SiteId, ProbeTally>,
    /// Records that could not be kept.
    pub lost: u64,
    /// Callers that were not let in.
    pub rejected: u64,
    /// Bytes of the day that were moved.
    pub spent: u64,
    /// Bytes that may be moved in a day.
    pub budget: u64,
}

/// Of the transfers to one site by one controller.
#[derive(Clone, Debug, Default)]
pub struct PairTally {
    /// Those that arrived.
    pub done: u64,
    /// Those that did not, by what was wrong.
    pub failed: BTreeMap<Trouble, u64>,
    /// Payload moved, bytes.
    pub bytes: u64,
    /// Segments sent.
    pub segments: u64,
    /// Of these, sent again.
    pub retransmitted: u64,
    /// The last that arrived.
    pub last: Option<Measured>,
    /// What the last one was, if it did not arrive.
    pub trouble: Option<Trouble>,
}

/// Of the small probes to one site.
#[derive(Clone, Debug, Default)]
pub struct ProbeTally {
    /// Sent.
    pub sent: u64,
    /// Arrived there.
    pub arrived: u64,
    /// Answered.
    pub answered: u64,
    /// Round-trip times of the last minute in which one was answered.
    pub rtt: Option<RttBand>,
}

impl Tally {
    /// Of a site of a mesh, with all its pairs: what has not happened is zero, not missing.
    pub fn new(mesh: &Mesh, site: SiteId) -> Tally {
        let mut tally = Tally::default();
        for peer in (0..mesh.sites.len() as SiteId).filter(|id| *id != site) {
            tally.probes.insert(peer, ProbeTally::default());
            for controller in 0..mesh.controllers.len() as ControllerId {
                tally.transfers.insert((peer, controller), PairTally::default());
            }
        }
        tally
    }

    pub(super) fn add(&mut self, transfer: &Transfer) {
        let of = self.transfers.entry((transfer.pair.to, transfer.controller)).or_default();
        match &transfer.outcome {
            Outcome::Done(measured) => {
                of.done += 1;
                of.bytes += measured.bytes;
                of.segments += u64::from(measured.segments);
                of.retransmitted += u64::from(measured.retransmitted);
                of.last = Some((**measured).clone());
                of.trouble = None;
            }
            Outcome::Failed(trouble) => {
                *of.failed.entry(*trouble).or_default() += 1;
                of.trouble = Some(*trouble);
            }
        }
    }

    pub(super) fn add_minute(&mut self, minute: &Minute) {
        let Pair { to, .. } = minute.pair;
        let of = self.probes.entry(to).or_default();
        of.sent += u64::from(minute.sent);
        of.arrived += u64::from(minute.arrived);
        of.answered += u64::from(minute.answered);
        of.rtt = minute.rtt.or(of.rtt);
    }
}
