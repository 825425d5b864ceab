//! A history woven from what was simulated of each state of each path.

use super::pool::State;
use super::{MOST_TRANSFERS, World, WorldError};
use crate::record::{ControllerId, History, Minute, Outcome, Pair, Transfer, Trouble};
use fullpipe_units::Span;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;

/// One in so many draws begins anywhere, the others go on.
const RUN: u64 = 8;
/// A probe a second.
const PROBES_EVERY: Span = Span::from_secs(1);

/// A place in what was simulated, that goes on or begins anywhere.
#[derive(Default)]
struct Walk(usize);

impl Walk {
    fn next<'a, T>(&mut self, all: &'a [T], random: &mut Pcg64Mcg) -> Option<&'a T> {
        self.0 += 1;
        if random.next_u64().is_multiple_of(RUN) || self.0 >= all.len() {
            self.0 = (random.next_u64() % all.len().max(1) as u64) as usize;
        }
        all.get(self.0)
    }
}

/// What was simulated of the states of paths, for worlds that differ in other things than these.
#[derive(Debug, Default)]
pub struct Pools {
    known: HashMap<String, Simulated>,
}

/// What was simulated of one state of a path.
#[derive(Debug)]
struct Simulated {
    transfers: Vec<Vec<Outcome>>,
    minutes: Vec<Minute>,
}

impl World {
    /// The records that such a mesh would leave behind. Same world, same records.
    ///
    /// # Errors
    /// See [`WorldError`].
    pub fn history(&self) -> Result<History, WorldError> {
        self.history_from(&mut Pools::default())
    }

    /// The same, with what `pools` has of the states of the paths; what it has not is added.
    ///
    /// # Errors
    /// See [`WorldError`].
    pub fn history_from(&self, pools: &mut Pools) -> Result<History, WorldError> {
        let pairs = self.pairs().count() as u64;
        let transfers = pairs * self.controllers.len() as u64 * u64::from(self.periods);
        if transfers > MOST_TRANSFERS {
            let reason = format!(
                "{transfers} transfers are more than the {MOST_TRANSFERS} that fit: fewer periods or sites"
            );
            return Err(WorldError::TooLarge(reason));
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
            self.weave(pair, nth as u64, pools, &mut history)?;
        }
        history.transfers.sort_by_key(|transfer| transfer.at_ms);
        history.minutes.sort_by_key(|minute| minute.at_ms);
        Ok(history)
    }

    fn weave(
        &self,
        pair: Pair,
        nth: u64,
        pools: &mut Pools,
        history: &mut History,
    ) -> Result<(), WorldError> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let known = &mut pools.known;
        let mut walks: Vec<Walk> = (0..=self.controllers.len()).map(|_| Walk::default()).collect();
        let period_ms = (self.period.as_nanos() / 1_000_000).max(1) as i64;
        let probes = (self.period.as_nanos() / PROBES_EVERY.as_nanos()).clamp(1, 600) as u16;
        let apart = period_ms / self.controllers.len().max(1) as i64;
        for period in 0..self.periods {
            if self.is_gone(pair.from, period) {
                continue;
            }
            let at_ms = self.start_ms + i64::from(period) * period_ms;
            let number = at_ms.div_euclid(period_ms);
            let links = self.link(pair, period).zip(self.link(pair.turned(), period));
            let transfer = |controller: usize, outcome: Outcome| Transfer {
                at_ms: at_ms + controller as i64 * apart,
                period: number,
                pair,
                controller: controller as ControllerId,
                outcome,
            };
            let Some((forward, reverse)) = links else {
                let failed =
                    (0..self.controllers.len()).map(|cc| transfer(cc, Outcome::Failed(Trouble::Unreachable)));
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
                let simulated = self.simulate(&state, probes, nth);
                let simulated =
                    simulated.map_err(|reason| WorldError::Path { pair: history.name(pair), reason })?;
                known.insert(key.clone(), simulated);
            }
            let Some(simulated) = known.get(&key) else { continue };
            for (cc, transfers) in simulated.transfers.iter().enumerate() {
                if let Some(outcome) = walks[cc].next(transfers, &mut random) {
                    history.transfers.push(transfer(cc, outcome.clone()));
                }
            }
            if let Some(minute) = walks[self.controllers.len()].next(&simulated.minutes, &mut random) {
                history.minutes.push(Minute { at_ms, pair, ..minute.clone() });
            }
        }
        Ok(())
    }

    fn simulate(&self, state: &State, probes: u16, nth: u64) -> Result<Simulated, String> {
        let mut random = Pcg64Mcg::seed_from_u64(nth);
        let n = self.pool.max(1);
        let transfers = self
            .controllers
            .iter()
            .map(|cc| state.transfers(cc, n, random.next_u64()))
            .collect::<Result<_, _>>()?;
        // Probes cost next to nothing, and what is rare among them matters.
        let minutes = state.minutes(n.saturating_mul(4), probes, random.next_u64())?;
        Ok(Simulated { transfers, minutes })
    }
}
