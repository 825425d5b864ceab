//! Where a change is.

use super::{Seen, Watch};
use crate::place::Place;
use crate::record::Pair;
use crate::see::change::Metric;
use crate::see::series::Series;
use std::collections::BTreeSet;

/// Most of a site's directions.
const MOST: f64 = 0.6;

impl Watch {
    /// Where a change is, by what has shifted so far.
    pub(super) fn locate(&mut self, nth: usize) {
        let seen = &self.seen[nth];
        let shifts = &seen.change.shifts;
        let one_way = |metric| matches!(metric, Metric::Failures | Metric::Rate | Metric::Loss);
        let mut sure: BTreeSet<Pair> = BTreeSet::new();
        for shift in shifts {
            if shift.metric == Metric::Rtt {
                sure.extend([shift.pair, shift.pair.turned()]);
            } else if one_way(shift.metric) {
                sure.insert(shift.pair);
            }
        }
        if sure.is_empty() {
            sure.extend(shifts.iter().flat_map(|shift| [shift.pair, shift.pair.turned()]));
        }
        let mut likely = sure.clone();
        for key in &seen.suspects {
            likely.insert(key.pair);
            if !one_way(key.metric) {
                likely.insert(key.pair.turned());
            }
        }
        let place = self.place(&sure, &likely, seen);
        let now = self.numbers.last().copied().unwrap_or_default();
        let change = &mut self.seen[nth].change;
        if let Some(place) = place.filter(|place| *place != change.place) {
            change.place = place;
            change.located = now;
        }
    }

    fn place(&self, sure: &BTreeSet<Pair>, likely: &BTreeSet<Pair>, seen: &Seen) -> Option<Place> {
        let sites: BTreeSet<u16> = self.tracks.keys().flat_map(|pair| [pair.from, pair.to]).collect();
        let pairs: BTreeSet<Pair> = sure.iter().map(|pair| pair.both()).collect();
        if sites.len() > 2 && pairs.len() > 1 {
            // The site that most of it touches, of several the one that touches the most of its own.
            let touched = |site: u16| sure.iter().filter(|pair| pair.from == site || pair.to == site).count();
            let site = sites.iter().copied().max_by_key(|site| (touched(*site), u16::MAX - site))?;
            let share = |sends: bool| {
                let of = |pair: &&Pair| if sends { pair.from == site } else { pair.to == site };
                // Who has fallen silent since is not asked.
                let speaks = |pair: &&Pair| self.heard(**pair) >= seen.begin;
                let all = self.tracks.keys().filter(of).filter(speaks).count();
                (all > 0).then(|| likely.iter().filter(of).count() as f64 / all as f64)
            };
            let (sends, receives) = (share(true), share(false));
            let most = |share: Option<f64>| share.is_some_and(|share| share >= MOST);
            // Of a site that is gone nothing is heard.
            match (sends.is_none() || most(sends), receives.is_none() || most(receives)) {
                (true, true) if most(sends) || most(receives) => return Some(Place::Site(site)),
                (true, false) if most(sends) => return Some(Place::Sending(site)),
                (false, true) if most(receives) => return Some(Place::Receiving(site)),
                _ => {}
            }
        }
        let strongest = seen.change.shifts.iter().filter(|shift| sure.contains(&shift.pair));
        let pair = strongest.max_by(|a, b| a.evidence.total_cmp(&b.evidence))?.pair;
        let (there, back) = (sure.contains(&pair), sure.contains(&pair.turned()));
        // What is gone may be silent one way: of two sites, who can tell.
        Some(if there && back { Place::Both(pair.both()) } else { Place::Direction(pair) })
    }

    /// The last tick in which a direction's sender told anything.
    fn heard(&self, pair: Pair) -> u64 {
        let Some(track) = self.tracks.get(&pair) else { return 0 };
        let rates = track.rates.iter().filter_map(Series::newest).max();
        rates.max(track.failed.newest()).unwrap_or(0)
    }
}
