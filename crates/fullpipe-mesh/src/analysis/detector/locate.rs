//! Locating a change.

use super::{Detector, TrackedChange};
use crate::analysis::change::Metric;
use crate::analysis::series::Series;
use crate::location::Location;
use crate::record::Pair;
use std::collections::BTreeSet;

/// The share of a site's directions that makes it the location.
const MOST_OF_SITE: f64 = 0.6;

impl Detector {
    /// Locates a change by its shifts so far.
    pub(super) fn locate(&mut self, nth: usize) {
        let tracked = &self.tracked[nth];
        let shifts = &tracked.change.shifts;
        let one_way = |metric| matches!(metric, Metric::Failures | Metric::Rate | Metric::Loss);
        let mut sure: BTreeSet<Pair> = BTreeSet::new();
        for shift in shifts {
            if shift.metric == Metric::Rtt {
                sure.extend([shift.pair, shift.pair.reversed()]);
            } else if one_way(shift.metric) {
                sure.insert(shift.pair);
            }
        }
        if sure.is_empty() {
            sure.extend(shifts.iter().flat_map(|shift| [shift.pair, shift.pair.reversed()]));
        }
        let mut likely = sure.clone();
        for key in &tracked.suspects {
            likely.insert(key.pair);
            if !one_way(key.metric) {
                likely.insert(key.pair.reversed());
            }
        }
        let location = self.location(&sure, &likely, tracked);
        let now = self.numbers.back().copied().unwrap_or_default();
        let change = &mut self.tracked[nth].change;
        if let Some(location) = location.filter(|location| *location != change.location) {
            change.location = location;
            change.located = now;
        }
    }

    fn location(
        &self,
        sure: &BTreeSet<Pair>,
        likely: &BTreeSet<Pair>,
        tracked: &TrackedChange,
    ) -> Option<Location> {
        let sites: BTreeSet<u16> = self.tracks.keys().flat_map(|pair| [pair.from, pair.to]).collect();
        let pairs: BTreeSet<Pair> = sure.iter().map(|pair| pair.unordered()).collect();
        if sites.len() > 2 && pairs.len() > 1 {
            // The site with the most affected directions; of several, the one with the larger share
            // of its own.
            let touched = |site: u16| sure.iter().filter(|pair| pair.from == site || pair.to == site).count();
            let site = sites.iter().copied().max_by_key(|site| (touched(*site), u16::MAX - site))?;
            let share = |sends: bool| {
                let of = |pair: &&Pair| if sends { pair.from == site } else { pair.to == site };
                // Directions that have been silent since are not counted.
                let speaks = |pair: &&Pair| self.votes(**pair) >= tracked.begin;
                let all = self.tracks.keys().filter(of).filter(speaks).count();
                (all > 0).then(|| likely.iter().filter(of).count() as f64 / all as f64)
            };
            let (sends, receives) = (share(true), share(false));
            let most = |share: Option<f64>| share.is_some_and(|share| share >= MOST_OF_SITE);
            // A site that is down sends no records.
            match (sends.is_none() || most(sends), receives.is_none() || most(receives)) {
                (true, true) if most(sends) || most(receives) => return Some(Location::Site(site)),
                (true, false) if most(sends) => return Some(Location::Sending(site)),
                (false, true) if most(receives) => return Some(Location::Receiving(site)),
                _ => {}
            }
        }
        let strongest = tracked.change.shifts.iter().filter(|shift| sure.contains(&shift.pair));
        let pair = strongest.max_by(|a, b| a.evidence.total_cmp(&b.evidence))?.pair;
        let (forward, backward) = (sure.contains(&pair), sure.contains(&pair.reversed()));
        // A site that is down may be silent in one direction, so of two sites the location is
        // ambiguous.
        Some(if forward && backward { Location::Both(pair.unordered()) } else { Location::Direction(pair) })
    }

    /// The last tick with a record of a direction's sender.
    fn votes(&self, pair: Pair) -> u64 {
        let Some(track) = self.tracks.get(&pair) else { return 0 };
        let rates = track.rates.iter().filter_map(Series::newest).max();
        rates.max(track.failed.newest()).unwrap_or(0)
    }
}
