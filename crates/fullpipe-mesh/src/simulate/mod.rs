//! A simulated mesh: its paths in the simulator, with faults, and the records it would produce.
//!
//! Transfers are simulated by an engine that the caller passes ([`Simulate`]), on a standing
//! connection, alone on its path; probes go through the same [`fullpipe_path`]. A day of 56 pairs
//! would be 160 000 transfers: instead, some transfers are simulated for each state of each path
//! ([`SimulatedMesh::pool`]), and the day is resampled from runs of these, started at random and 8
//! long on average (the stationary bootstrap of Politis and Romano, *JASA* 89, 1994), which preserves
//! the order within runs. Interference between transfers of different controllers or pairs is not
//! simulated.

mod file;
mod pool;
mod resample;

pub(crate) use pool::State;
pub use resample::Pools;

use crate::location::Location;
use crate::record::{Pair, SiteId};
use fullpipe_experiment::Scenario;
use fullpipe_experiment::recording::Recording;
use fullpipe_path::{BernoulliSpec, LinkSpec, LossSpec, PolicerSpec};
use fullpipe_units::{Bytes, Fraction, Span};
use std::collections::BTreeMap;

/// Runs a scenario with a seed: the simulator, which this crate does not contain. An error is the
/// reason as text.
pub type Simulate = fn(&Scenario, u64) -> Result<Recording, String>;

/// A mesh to simulate.
#[derive(Clone, Debug)]
pub struct SimulatedMesh {
    /// Site names.
    pub sites: Vec<String>,
    /// Controllers by simulator name; the first is the baseline.
    pub controllers: Vec<String>,
    /// Time between the transfers of a controller.
    pub period: Span,
    /// Time limit of a transfer.
    pub limit: Span,
    /// Payload of a transfer.
    pub size: Bytes,
    /// The receivers' buffers (`tcp_rmem[2]`); `None` never limits.
    pub receive_buffer: Option<Bytes>,
    /// Start time, milliseconds since 1970 (UTC).
    pub start_ms: i64,
    /// Number of periods.
    pub periods: u32,
    /// Seed of the simulation.
    pub seed: u64,
    /// Transfers simulated for each state of each path.
    pub pool: u16,
    /// The link of each direction. Data takes the link of its direction, acknowledgements that of
    /// the reverse direction.
    pub links: BTreeMap<Pair, LinkSpec>,
    /// Faults.
    pub faults: Vec<InjectedFault>,
}

/// A fault with its location and time.
#[derive(Clone, PartialEq, Debug)]
pub struct InjectedFault {
    /// First period of the fault, counted from 0.
    pub from: u32,
    /// First period after the fault.
    pub until: u32,
    /// Location of the fault.
    pub location: Location,
    /// The fault.
    pub fault: Fault,
}

/// Kinds of faults.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// Random loss with this share.
    Loss(Fraction),
    /// The rate is multiplied by this factor.
    Rate(f64),
    /// Additional one-way delay in each direction of the location.
    Delay(Span),
    /// A policer.
    Policer(PolicerSpec),
    /// No packets pass, and sites wholly within the location store no records.
    Down,
}

/// Why a mesh cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// An invalid path, or one that is too large to simulate.
    #[error("{pair}: {reason}")]
    Path {
        /// The direction.
        pair: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The history would be too large.
    #[error("{0}")]
    TooLarge(String),
}

/// Maximum transfers of a simulated history: a month of 56 pairs and two controllers.
const MAX_TRANSFERS: u64 = 5_000_000;

impl SimulatedMesh {
    /// All directions between the sites.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> + use<> {
        let sites = SiteId::try_from(self.sites.len()).unwrap_or(SiteId::MAX);
        (0..sites)
            .flat_map(move |from| (0..sites).filter(move |to| *to != from).map(move |to| Pair { from, to }))
    }

    /// The link of a direction in a period; `None` if it is down.
    fn link(&self, pair: Pair, period: u32) -> Option<LinkSpec> {
        let mut link = self.links.get(&pair).cloned().unwrap_or_default();
        for injected in self.faults.iter().filter(|fault| (fault.from..fault.until).contains(&period)) {
            if !injected.location.contains(pair) {
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

    /// Whether a site is down in a period and stores no records.
    fn is_down(&self, site: SiteId, period: u32) -> bool {
        self.faults.iter().any(|fault| {
            fault.fault == Fault::Down
                && fault.location == Location::Site(site)
                && (fault.from..fault.until).contains(&period)
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The simulator, for all tests of the crate.
    pub(crate) fn simulate(scenario: &Scenario, seed: u64) -> Result<Recording, String> {
        fullpipe_sim::Simulation::new(scenario, seed).run().map_err(|e| e.to_string())
    }
}
