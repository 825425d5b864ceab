//! A history resampled from the simulated transfers of each state of each path.

use super::Simulate;
use super::pool::State;
use super::{MAX_TRANSFERS, SimulatedMesh, SimulationError};
use crate::record::{ControllerId, History, Minute, Outcome, Pair, Transfer, TransferError};
use fullpipe_units::Span;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;

/// Mean length of a run: one in so many draws starts at a random position.
const MEAN_RUN: u64 = 8;
/// Interval between probes.
const PROBE_INTERVAL: Span = Span::from_secs(1);

/// A position in a pool, which advances or jumps to a random start.
#[derive(Default)]
struct Resampler(usize);

impl Resampler {
    fn next<'a, T>(&mut self, all: &'a [T], random: &mut Pcg64Mcg) -> Option<&'a T> {
        self.0 += 1;
        if random.next_u64().is_multiple_of(MEAN_RUN) || self.0 >= all.len() {
            self.0 = (random.next_u64() % all.len().max(1) as u64) as usize;
        }
        all.get(self.0)
    }
}

/// Simulated pools by path state, shared by meshes that differ in other respects.
#[derive(Debug, Default)]
pub struct Pools {
    known: HashMap<String, PathPool>,
}

/// The pool of one path state.
#[derive(Debug)]
struct PathPool {
    transfers: Vec<Vec<Outcome>>,
    minutes: Vec<Minute>,
}

impl SimulatedMesh {
    /// The records that the mesh would produce. The result is deterministic.
    ///
    /// # Errors
    /// See [`SimulationError`].
    pub fn history(&self, simulate: Simulate) -> Result<History, SimulationError> {
        self.history_from(&mut Pools::default(), simulate)
    }

    /// The same, using and extending `pools`.
    ///
    /// # Errors
    /// See [`SimulationError`].
    pub fn history_from(&self, pools: &mut Pools, simulate: Simulate) -> Result<History, SimulationError> {
        let pairs = self.pairs().count() as u64;
        let transfers = pairs * self.controllers.len() as u64 * u64::from(self.periods);
        if transfers > MAX_TRANSFERS {
            let reason = format!(
                "{transfers} transfers exceed the limit of {MAX_TRANSFERS}: use fewer periods or sites"
            );
            return Err(SimulationError::TooLarge(reason));
        }
        let mut history = History {
            sites: self.sites.clone(),
            controllers: self.controllers.clone(),
            period: self.period,
            transfers: Vec::with_capacity(transfers as usize),
            minutes: Vec::with_capacity((pairs * u64::from(self.periods)) as usize),
            routes: Vec::new(),
        };
        for (nth, pair) in self.pairs().enumerate() {
            self.add_pair(pair, nth as u64, pools, &mut history, simulate)?;
        }
        history.transfers.sort_by_key(|transfer| transfer.at_ms);
        history.minutes.sort_by_key(|minute| minute.at_ms);
        Ok(history)
    }

    fn add_pair(
        &self,
        pair: Pair,
        nth: u64,
        pools: &mut Pools,
        history: &mut History,
        simulate: Simulate,
    ) -> Result<(), SimulationError> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let known = &mut pools.known;
        let mut resamplers: Vec<Resampler> =
            (0..=self.controllers.len()).map(|_| Resampler::default()).collect();
        let period_ms = (self.period.as_nanos() / 1_000_000).max(1) as i64;
        let probes = (self.period.as_nanos() / PROBE_INTERVAL.as_nanos()).clamp(1, 600) as u16;
        let apart = period_ms / self.controllers.len().max(1) as i64;
        for period in 0..self.periods {
            if self.is_down(pair.from, period) {
                continue;
            }
            let at_ms = self.start_ms + i64::from(period) * period_ms;
            let number = at_ms.div_euclid(period_ms);
            let links = self.link(pair, period).zip(self.link(pair.reversed(), period));
            let transfer = |controller: usize, outcome: Outcome| Transfer {
                at_ms: at_ms + controller as i64 * apart,
                period: number,
                pair,
                controller: controller as ControllerId,
                outcome,
            };
            let Some((forward, reverse)) = links else {
                let failed = (0..self.controllers.len())
                    .map(|cc| transfer(cc, Outcome::Failed(TransferError::Unreachable)));
                history.transfers.extend(failed);
                history.minutes.push(Minute {
                    at_ms,
                    pair,
                    sent: probes,
                    arrived: 0,
                    answered: 0,
                    rtt: None,
                });
                continue;
            };
            let key = format!(
                "{nth} {forward:?} {reverse:?} {} {} {:?}",
                self.size, self.limit, self.receive_buffer
            );
            if !known.contains_key(&key) {
                let state = State {
                    forward,
                    reverse,
                    size: self.size,
                    every: self.period,
                    limit: self.limit,
                    receive_buffer: self.receive_buffer,
                };
                let simulated = self.simulate(&state, probes, nth, simulate);
                let simulated =
                    simulated.map_err(|reason| SimulationError::Path { pair: history.name(pair), reason })?;
                known.insert(key.clone(), simulated);
            }
            let Some(simulated) = known.get(&key) else { continue };
            for (cc, transfers) in simulated.transfers.iter().enumerate() {
                if let Some(outcome) = resamplers[cc].next(transfers, &mut random) {
                    history.transfers.push(transfer(cc, outcome.clone()));
                }
            }
            if let Some(minute) = resamplers[self.controllers.len()].next(&simulated.minutes, &mut random) {
                history.minutes.push(Minute { at_ms, pair, ..minute.clone() });
            }
        }
        Ok(())
    }

    fn simulate(&self, state: &State, probes: u16, nth: u64, simulate: Simulate) -> Result<PathPool, String> {
        let mut random = Pcg64Mcg::seed_from_u64(nth);
        let n = self.pool.max(1);
        let transfers = self
            .controllers
            .iter()
            .map(|cc| state.transfers(cc, n, random.next_u64(), simulate))
            .collect::<Result<_, _>>()?;
        // Probes are cheap to simulate, and their rare losses matter.
        let minutes = state.minutes(n.saturating_mul(4), probes, random.next_u64())?;
        Ok(PathPool { transfers, minutes })
    }
}
