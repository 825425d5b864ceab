//! Counters of a node since its start, by pair and controller.

use crate::file::Mesh;
use crate::record::{
    ControllerId, Measurement, Minute, Outcome, Pair, RttBand, SiteId, Transfer, TransferError,
};
use std::collections::BTreeMap;

/// Counters of all transfers and probes.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By receiving site and controller.
    pub transfers: BTreeMap<(SiteId, ControllerId), PairTally>,
    /// By probed site.
    pub probes: BTreeMap<SiteId, ProbeTally>,
    /// Records that could not be stored.
    pub lost: u64,
    /// Rejected connections.
    pub rejected: u64,
    /// Bytes spent today.
    pub spent: u64,
    /// Daily limit in bytes.
    pub budget: u64,
}

/// Counters of the transfers to one site with one controller.
#[derive(Clone, Debug, Default)]
pub struct PairTally {
    /// Completed transfers.
    pub done: u64,
    /// Failed transfers by error.
    pub failed: BTreeMap<TransferError, u64>,
    /// Payload of completed transfers, bytes.
    pub bytes: u64,
    /// Segments sent.
    pub segments: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// The last completed transfer.
    pub last: Option<Measurement>,
    /// The error of the last transfer, if it failed.
    pub error: Option<TransferError>,
}

/// Counters of the UDP probes to one site.
#[derive(Clone, Debug, Default)]
pub struct ProbeTally {
    /// Requests sent.
    pub sent: u64,
    /// Requests that arrived.
    pub arrived: u64,
    /// Replies received.
    pub answered: u64,
    /// RTTs of the last minute with a reply.
    pub rtt: Option<RttBand>,
}

impl Tally {
    /// Counters of a site with all its pairs, so that idle pairs are zero and not missing.
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
                of.error = None;
            }
            Outcome::Failed(error) => {
                *of.failed.entry(*error).or_default() += 1;
                of.error = Some(*error);
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
