//! A mesh that is not there: its paths in the simulator, with faults, and the records that it would leave behind.
//!
//! Transfers are those of `fullpipe-sim` on a standing connection, alone on their path, and probes go through the same
//! [`fullpipe_path`]. A day of 56 pairs would be 160 000 transfers: instead, for each state of each path some are simulated one after the
//! other ([`World::pool`]), and the day is woven from runs of these, begun at random and 8 long on average (the stationary bootstrap of
//! Politis and Romano, *JASA* 89, 1994), so that what follows upon what stays as it is. What transfers of different controllers or pairs do
//! to each other is not simulated.

mod file;
mod pool;
mod weave;

pub(crate) use pool::State;
pub use weave::Pools;

use crate::place::Place;
use crate::record::{Pair, SiteId};
use fullpipe_path::{BernoulliSpec, LinkSpec, LossSpec, PolicerSpec};
use fullpipe_units::{Bytes, Fraction, Span};
use std::collections::BTreeMap;

/// A mesh to simulate.
#[derive(Clone, Debug)]
pub struct World {
    /// The names of its sites.
    pub sites: Vec<String>,
    /// The controllers, by the simulator's names; the first is what the others are compared with.
    pub controllers: Vec<String>,
    /// How often each controller moves its bytes.
    pub period: Span,
    /// The longest that a transfer may take.
    pub limit: Span,
    /// How much each transfer moves.
    pub size: Bytes,
    /// The receivers' buffers (`tcp_rmem[2]`); none never limits.
    pub receive_buffer: Option<Bytes>,
    /// When it begins: milliseconds since 1970 (UTC).
    pub start_ms: i64,
    /// How many periods it lasts.
    pub periods: u32,
    /// Of all that is random.
    pub seed: u64,
    /// How many transfers are simulated of each state of each path.
    pub pool: u16,
    /// The link of each direction. What a direction sends goes over its link, what acknowledges it over that of the other.
    pub links: BTreeMap<Pair, LinkSpec>,
    /// What goes wrong.
    pub faults: Vec<Injected>,
}

/// A fault, where and when.
#[derive(Clone, PartialEq, Debug)]
pub struct Injected {
    /// The first period that it is there, counted from 0.
    pub from: u32,
    /// The first that it is there no more.
    pub until: u32,
    /// Where.
    pub place: Place,
    /// What.
    pub fault: Fault,
}

/// What can go wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// Packets are lost at random, this share of them.
    Loss(Fraction),
    /// The rate is so many times what it was.
    Rate(f64),
    /// The packets take a way that is so much longer, in each direction of the place.
    Delay(Span),
    /// A policer.
    Policer(PolicerSpec),
    /// Nothing passes, and sites that are wholly in the place leave no records.
    Down,
}

/// Why a mesh cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A path that is no path, or more than can be simulated.
    #[error("{pair}: {reason}")]
    Path {
        /// Which direction.
        pair: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More than can be held.
    #[error("{0}")]
    TooLarge(String),
}

/// The most transfers that a simulated history may hold: a month of 56 pairs and two controllers.
const MOST_TRANSFERS: u64 = 5_000_000;

impl World {
    /// All directions between its sites.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> + use<> {
        let sites = SiteId::try_from(self.sites.len()).unwrap_or(SiteId::MAX);
        (0..sites)
            .flat_map(move |from| (0..sites).filter(move |to| *to != from).map(move |to| Pair { from, to }))
    }

    /// The link of a direction in a period; none where nothing passes.
    fn link(&self, pair: Pair, period: u32) -> Option<LinkSpec> {
        let mut link = self.links.get(&pair).cloned().unwrap_or_default();
        for injected in self.faults.iter().filter(|fault| (fault.from..fault.until).contains(&period)) {
            if !injected.place.holds(pair) {
                continue;
            }
            match &injected.fault {
                Fault::Loss(share) => link.loss = Some(LossSpec::Bernoulli(BernoulliSpec { share: *share })),
                Fault::Rate(times) => {
                    link.rate = link.rate.map(|rate| {
                        fullpipe_units::Rate::from_bits_per_sec((rate.as_bits_per_sec_f64() * times) as u64)
                    });
                }
                Fault::Delay(more) => link.delay += *more,
                Fault::Policer(policer) => link.policer = Some(*policer),
                Fault::Down => return None,
            }
        }
        Some(link)
    }

    /// Whether a site is gone in a period: it writes nothing down.
    fn is_gone(&self, site: SiteId, period: u32) -> bool {
        self.faults.iter().any(|fault| {
            fault.fault == Fault::Down
                && fault.place == Place::Site(site)
                && (fault.from..fault.until).contains(&period)
        })
    }
}
