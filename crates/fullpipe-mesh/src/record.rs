//! Records of a mesh: transfers, probes and routes.
//!
//! Each sender records what it sent, so everything about the direction `from → to` is in the
//! records of `from`. Site clocks need not agree: comparisons use transfers of one sender, and
//! combining several sites is meant to the minute.

use fullpipe_units::{Rate, Span};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A site, as an index into [`History::sites`].
pub type SiteId = u16;
/// A congestion controller, as an index into [`History::controllers`].
pub type ControllerId = u16;

/// One direction between two sites.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// The sender.
    pub from: SiteId,
    /// The receiver.
    pub to: SiteId,
}

/// One transfer, or attempted transfer, of a standing connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// Start time on the sender's clock, milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The period number, counted by the sender since 1970. Transfers of one pair and period are
    /// compared with each other.
    pub period: i64,
    /// The direction.
    pub pair: Pair,
    /// The controller used.
    pub controller: ControllerId,
    /// The result.
    pub outcome: Outcome,
}

/// The result of a transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// All bytes arrived, as confirmed by the receiver.
    Done(Box<Measurement>),
    /// The transfer failed.
    Failed(TransferError),
}

/// Measurements of a completed transfer: differences of the sender's `TCP_INFO` over the transfer,
/// and the receiver's confirmation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Payload in bytes.
    pub bytes: u64,
    /// From the first write until the receiver's confirmation.
    pub duration: Span,
    /// The kernel's last delivery-rate sample that was not application-limited, if any.
    pub delivery_rate: Option<Rate>,
    /// Smoothed RTT at the end.
    pub rtt: Span,
    /// Minimum RTT of the connection.
    pub min_rtt: Span,
    /// Data segments sent, including retransmissions.
    pub segments: u32,
    /// Segments retransmitted.
    pub retransmitted: u32,
    /// The share of busy time that was limited by the receiver's window, 0 to 1.
    pub receive_window_limited: f32,
    /// The share of busy time that was limited by the send buffer, 0 to 1.
    pub send_buffer_limited: f32,
    /// CPU time of the sending thread.
    pub cpu: Span,
}

impl Measurement {
    /// Payload divided by duration.
    pub fn goodput(&self) -> Rate {
        Rate::from_bytes_in(self.bytes, self.duration)
    }

    /// Retransmitted segments divided by segments sent.
    pub fn retransmitted_share(&self) -> f64 {
        if self.segments == 0 { 0.0 } else { f64::from(self.retransmitted) / f64::from(self.segments) }
    }
}

/// Why a transfer failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferError {
    /// No connection before the timeout: host down, unreachable, or a firewall that drops.
    Unreachable,
    /// Connection refused: no process listens.
    Refused,
    /// The peer is not the site in the mesh file, or does not accept this site as a member.
    NotAMember,
    /// The peer speaks another protocol version.
    Version,
    /// Small messages arrive and full-sized segments do not: an MTU black hole.
    MtuBlackHole,
    /// Data was sent, and nothing more was acknowledged.
    Stalled,
    /// The transfer progressed and did not complete within its time limit.
    TooSlow,
    /// The connection failed.
    Broken,
    /// The sender's daily budget is exhausted.
    SenderBudget,
    /// The receiver's daily budget is exhausted.
    ReceiverBudget,
    /// The sender's kernel does not have the controller or does not allow its use.
    NoSuchController,
    /// One of the ends was busy with other transfers for the whole period.
    Busy,
}

/// The UDP probes of one direction and minute, sent between transfers, one a second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Minute {
    /// Start time on the sender's clock, milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// Requester and replier; RTTs include both directions.
    pub pair: Pair,
    /// Requests sent.
    pub sent: u16,
    /// Requests that reached the peer, as counted by the peer.
    pub arrived: u16,
    /// Requests whose reply was received.
    pub answered: u16,
    /// RTTs of the replies; `None` without replies.
    pub rtt: Option<RttBand>,
}

/// RTT distribution of a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RttBand {
    /// Minimum.
    pub min: Span,
    /// Median.
    pub p50: Span,
    /// 95th percentile.
    pub p95: Span,
    /// Maximum.
    pub max: Span,
}

/// The routers of a path, traced when the path seems to have changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// Time on the sender's clock, milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The direction.
    pub pair: Pair,
    /// The routers, nearest first; `None` where one did not reply.
    pub hops: Vec<Option<IpAddr>>,
}

/// The records of a mesh over a time range.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct History {
    /// Site names.
    pub sites: Vec<String>,
    /// Controller names as the kernel spells them; the first is the baseline.
    pub controllers: Vec<String>,
    /// The period.
    pub period: Span,
    /// Transfers, by time.
    pub transfers: Vec<Transfer>,
    /// Probe minutes, by time.
    pub minutes: Vec<Minute>,
    /// Routes, by time.
    pub routes: Vec<Route>,
}

impl History {
    /// The history with the sites and controllers of `head`, without records of others.
    pub fn with_names_of(mut self, head: &History) -> History {
        if self.sites == head.sites && self.controllers == head.controllers {
            return self;
        }
        let sites = places(&self.sites, &head.sites);
        let controllers = places(&self.controllers, &head.controllers);
        let renumber =
            |pair: &mut Pair| pair.renumbered(&sites).map(|renumbered| *pair = renumbered).is_some();
        self.transfers.retain_mut(|transfer| {
            let controller = place(&controllers, transfer.controller);
            controller.map(|id| transfer.controller = id).is_some() && renumber(&mut transfer.pair)
        });
        self.minutes.retain_mut(|minute| renumber(&mut minute.pair));
        self.routes.retain_mut(|route| renumber(&mut route.pair));
        History { sites: head.sites.clone(), controllers: head.controllers.clone(), ..self }
    }

    /// Whether both sites of a direction have names, and differ.
    pub(crate) fn has_pair(&self, pair: Pair) -> bool {
        let sites = self.sites.len();
        usize::from(pair.from) < sites && usize::from(pair.to) < sites && pair.from != pair.to
    }

    /// A pair as text: `lab → sea`.
    pub fn name(&self, pair: Pair) -> String {
        let of = |site: SiteId| self.sites.get(usize::from(site)).map_or("?", String::as_str);
        format!("{} → {}", of(pair.from), of(pair.to))
    }
}

/// The index in `names` of each of the `own` names.
pub(crate) fn places(own: &[String], names: &[String]) -> Vec<Option<u16>> {
    let place = |name| names.iter().position(|other| other == name).map(|place| place as u16);
    own.iter().map(place).collect()
}

/// The new index of a site or controller, if it has one.
pub(crate) fn place(places: &[Option<u16>], id: u16) -> Option<u16> {
    places.get(usize::from(id)).copied().flatten()
}

impl Pair {
    /// The direction with other indices of sites, if both have one.
    pub(crate) fn renumbered(self, sites: &[Option<u16>]) -> Option<Pair> {
        Some(Pair { from: place(sites, self.from)?, to: place(sites, self.to)? })
    }
}

/// Keeps the `most` names with the largest counts, the first of equals, in their order. Returns the
/// new index of each.
pub(crate) fn keep_largest(names: &mut Vec<String>, counts: &[u64], most: usize) -> Vec<Option<u16>> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(counts.get(*i).copied().unwrap_or(0)));
    let mut kept = vec![false; names.len()];
    for i in order.into_iter().take(most) {
        kept[i] = true;
    }
    let mut next = 0;
    let ids = kept.iter().map(|kept| {
        kept.then(|| {
            next += 1;
            next - 1
        })
    });
    let ids = ids.collect();
    let mut kept = kept.into_iter();
    names.retain(|_| kept.next() == Some(true));
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Samples;
    use crate::file::{MAX_CONTROLLERS, MAX_SITES};
    use crate::store::CompactHistory;
    use std::collections::BTreeSet;

    #[test]
    fn a_report_of_very_many_names_keeps_those_with_most_records() {
        let names = |letter: char, n: usize| (0..n).map(|i| format!("{letter}{i}")).collect::<Vec<_>>();
        let transfer = |from: u16, to: u16, controller: u16| Transfer {
            at_ms: 0,
            period: 0,
            pair: Pair { from, to },
            controller,
            outcome: Outcome::Failed(TransferError::Stalled),
        };
        let mut transfers: Vec<Transfer> = (0..999).map(|i| transfer(i, i + 1, i)).collect();
        transfers.extend([transfer(900, 3, 800), transfer(900, 3, 800), transfer(3, 900, 0)]);
        let mut history = History {
            sites: names('s', 1000),
            controllers: names('c', 1000),
            transfers,
            ..History::default()
        };
        let limit = |history: &History| {
            let mut records = CompactHistory::from(history);
            let removed = records.limit_names().unwrap();
            let mut transfers = Vec::new();
            let mut count = |pair, samples: &Samples| {
                transfers.extend(samples.transfers.iter().map(|sample| (pair, sample.controller)));
            };
            records.visit(&mut count).unwrap();
            let kept = history.clone().with_names_of(&records.head);
            let same = kept.transfers.iter().map(|t| (t.pair, u32::from(t.controller)));
            assert_eq!(same.collect::<BTreeSet<_>>(), transfers.iter().copied().collect());
            assert_eq!(kept.transfers.len(), transfers.len());
            (removed, kept)
        };
        let (removed, kept) = limit(&history);
        assert_eq!(removed, 1000 - MAX_SITES + 1000 - MAX_CONTROLLERS);
        history = kept;
        assert_eq!((history.sites.len(), history.controllers.len()), (MAX_SITES, MAX_CONTROLLERS));
        assert_eq!(history.controllers[0], "c0", "the baseline stays");
        let last = history.transfers.last().unwrap();
        assert_eq!(history.name(last.pair), "s3 → s900");
        let bbr =
            history.transfers.iter().filter(|t| history.controllers[usize::from(t.controller)] == "c800");
        assert_eq!(bbr.count(), 2, "that between s800 and s801 is not in it");
        let before = history.clone();
        assert_eq!(limit(&history), (0, before));
    }
}
