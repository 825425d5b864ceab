//! What a mesh saw, for people: figures and states of pairs and sites, in a terminal, as a page, as JSON.

mod bins;
mod figure;
mod page;
mod state;
mod text;

pub use figure::figure;
pub use page::page;
pub use state::State;
pub use text::terminal;

use crate::expect::{Diagnosis, Expectation, diagnose, found};
use crate::place::Place;
use crate::record::{History, Outcome, Pair, SiteId};
use crate::see::{Change, Ratio, changes, ratios};
use fullpipe_net::compare::median;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Pairs for which other paths are tried, which takes a second or so each: those farthest from what is expected.
const DIAGNOSED: usize = 12;
/// The newest transfers whose medians are told.
const NEWEST: usize = 240;

/// What a mesh saw.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Seen {
    /// The names of its sites.
    pub sites: Vec<String>,
    /// The names of its controllers; the first is what the others are compared with.
    pub controllers: Vec<String>,
    /// Of what time: milliseconds since 1970 (UTC), first and last record.
    pub from_ms: i64,
    /// See [`Seen::from_ms`].
    pub to_ms: i64,
    /// The length of a period, seconds.
    pub period_s: f64,
    /// Each direction of which anything is known.
    pub pairs: Vec<PairSeen>,
    /// Each site, in the order of `sites`.
    pub site_states: Vec<SiteSeen>,
    /// What changed, by time.
    pub changes: Vec<Told>,
}

/// A direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PairSeen {
    /// Which.
    pub pair: Pair,
    /// How it is now.
    pub state: State,
    /// Each controller's goodput over the first's, over all periods; of the first none.
    pub ratios: Vec<Option<Ratio>>,
    /// Each controller's median goodput of its newest transfers, bit/s.
    pub goodput_bps: Vec<Option<f64>>,
    /// The median round trip of the newest probes, milliseconds.
    pub rtt_ms: Option<f64>,
    /// The share of the newest probes that did not arrive.
    pub loss: Option<f64>,
    /// Transfers, and those of them that failed.
    pub transfers: u64,
    /// See [`PairSeen::transfers`].
    pub failed: u64,
    /// The routers on the way at last, nearest first.
    pub route: Vec<String>,
    /// What such a path should give, where that was asked for.
    pub expected: Option<Expectation>,
    /// Why it gives something else, where it does.
    pub diagnosis: Option<Diagnosis>,
}

/// A site.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SiteSeen {
    /// How it is now.
    pub state: State,
    /// The median of its directions' goodputs, by the best controller of each: what it sends and what it receives, bit/s.
    pub sends_bps: Option<f64>,
    /// See [`SiteSeen::sends_bps`].
    pub receives_bps: Option<f64>,
    /// Transfers from and to it, and those of them that failed.
    pub transfers: u64,
    /// See [`SiteSeen::transfers`].
    pub failed: u64,
}

/// A change, in words too.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Told {
    /// Where, in words.
    pub place: String,
    /// What, in a few words.
    pub kind: &'static str,
    /// What was seen.
    pub said: Vec<String>,
    /// The routers that were on the way before and after, where they were asked: which directions, and the routes.
    pub routes: Vec<(String, Vec<String>, Vec<String>)>,
    /// Since when, and until when if it is over: milliseconds since 1970 (UTC).
    pub begin_ms: i64,
    /// See [`Told::begin_ms`].
    pub end_ms: Option<i64>,
    /// The change itself.
    pub change: Change,
}

impl Seen {
    /// What a history says. Where `explain`, each path is simulated as well, and told why it differs: seconds for a mesh.
    pub fn of(history: &History, explain: bool) -> Seen {
        let long = crate::see::period_ms(history);
        let changes: Vec<Told> =
            changes(history).into_iter().map(|change| told(history, long, change)).collect();
        let times = history.transfers.iter().map(|t| t.at_ms).chain(history.minutes.iter().map(|m| m.at_ms));
        let (from_ms, to_ms) = times.fold((i64::MAX, i64::MIN), |(from, to), at| (from.min(at), to.max(at)));
        let mut pairs = pairs(history, &changes);
        if explain {
            explained(history, &mut pairs);
        }
        let site = |id: usize| site(id as SiteId, &pairs, &changes);
        Seen {
            site_states: (0..history.sites.len()).map(site).collect(),
            sites: history.sites.clone(),
            controllers: history.controllers.clone(),
            from_ms: if from_ms > to_ms { 0 } else { from_ms },
            to_ms: if from_ms > to_ms { 0 } else { to_ms },
            period_s: history.period.as_secs_f64(),
            pairs,
            changes,
        }
    }

    /// The changes that are not over.
    pub fn open(&self) -> impl Iterator<Item = &Told> {
        self.changes.iter().filter(|told| told.end_ms.is_none())
    }

    /// In a sentence.
    pub fn verdict(&self) -> String {
        if self.pairs.is_empty() {
            return "Nothing was recorded yet".to_owned();
        }
        let mut said = Vec::new();
        for (nth, name) in self.controllers.iter().enumerate().skip(1) {
            let mut medians: Vec<f64> =
                self.pairs.iter().filter_map(|pair| Some((*pair.ratios.get(nth)?)?.ratio.median)).collect();
            medians.sort_by(f64::total_cmp);
            let (Some(least), Some(most)) = (medians.first(), medians.last()) else { continue };
            let first = self.controllers.first().map_or("", String::as_str);
            said.push(format!(
                "{name} carries {} times what {first} does{}",
                times(median(&medians)),
                match medians.len() {
                    1 => String::new(),
                    n => format!(" in the middle of {n} paths ({} to {})", times(*least), times(*most)),
                }
            ));
        }
        let open = self.open().count();
        said.push(match open {
            0 => "nothing is different from usual now".to_owned(),
            1 => "one thing is different from usual now".to_owned(),
            n => format!("{n} things are different from usual now"),
        });
        said.join("; ")
    }
}

/// `1 path`, `56 paths`.
pub(crate) fn paths(n: usize) -> String {
    format!("{n} path{}", if n == 1 { "" } else { "s" })
}

/// A ratio as people say it.
pub(crate) fn times(ratio: f64) -> String {
    if ratio >= 99.5 {
        format!("{ratio:.0}")
    } else if ratio >= 9.95 {
        format!("{ratio:.1}")
    } else {
        format!("{ratio:.2}")
    }
}

fn told(history: &History, long: i64, change: Change) -> Told {
    let at = |period: i64| period.saturating_mul(long);
    let begin_ms = at(change.begin);
    let mut routes = Vec::new();
    let named = |route: &crate::record::Route| -> Vec<String> {
        route.hops.iter().map(|hop| hop.map_or("*".to_owned(), |hop| hop.to_string())).collect()
    };
    let pairs: BTreeSet<Pair> = change.shifts.iter().flat_map(|s| [s.pair, s.pair.turned()]).collect();
    for pair in pairs.into_iter().filter(|pair| change.place.holds(*pair)) {
        let of = || history.routes.iter().filter(move |route| route.pair == pair);
        // A route is asked for when something seems to have changed: the first after it may be a few periods late.
        let before = of().rfind(|route| route.at_ms < begin_ms);
        let after = of().find(|route| {
            (begin_ms..begin_ms.saturating_add(long.saturating_mul(10))).contains(&route.at_ms)
        });
        if let (Some(before), Some(after)) = (before, after)
            && before.hops != after.hops
        {
            routes.push((history.name(pair), named(before), named(after)));
        }
    }
    Told {
        place: change.place.name(history),
        kind: change.kind(),
        said: change.said(history),
        routes,
        begin_ms,
        end_ms: change.end.map(at),
        change,
    }
}

fn pairs(history: &History, changes: &[Told]) -> Vec<PairSeen> {
    let controllers = history.controllers.len();
    let mut all: BTreeMap<Pair, PairSeen> = BTreeMap::new();
    let fresh = |pair: Pair| PairSeen {
        pair,
        state: State::Fine,
        ratios: vec![None; controllers],
        goodput_bps: vec![None; controllers],
        rtt_ms: None,
        loss: None,
        transfers: 0,
        failed: 0,
        route: Vec::new(),
        expected: None,
        diagnosis: None,
    };
    let known = |pair: Pair| {
        let sites = history.sites.len();
        usize::from(pair.from) < sites && usize::from(pair.to) < sites && pair.from != pair.to
    };
    let mut goodputs: BTreeMap<(Pair, usize), Vec<f64>> = BTreeMap::new();
    for transfer in history.transfers.iter().filter(|transfer| known(transfer.pair)) {
        let pair = all.entry(transfer.pair).or_insert_with(|| fresh(transfer.pair));
        pair.transfers += 1;
        match &transfer.outcome {
            Outcome::Done(done) => {
                let of = goodputs.entry((transfer.pair, usize::from(transfer.controller))).or_default();
                of.push(done.goodput().as_bits_per_sec_f64());
            }
            Outcome::Failed(_) => pair.failed += 1,
        }
    }
    for ((pair, cc), of) in goodputs {
        let newest = &of[of.len().saturating_sub(NEWEST)..];
        if let Some(slot) = all.get_mut(&pair).and_then(|pair| pair.goodput_bps.get_mut(cc)) {
            *slot = Some(median(newest));
        }
    }
    for cc in 1..controllers {
        for ratio in ratios(history, cc as u16) {
            if let Some(slot) = all.get_mut(&ratio.pair).and_then(|pair| pair.ratios.get_mut(cc)) {
                *slot = Some(ratio);
            }
        }
    }
    let mut probes: BTreeMap<Pair, (Vec<f64>, u64, u64)> = BTreeMap::new();
    for minute in history.minutes.iter().rev().filter(|minute| known(minute.pair)) {
        let (rtts, sent, arrived) = probes.entry(minute.pair).or_default();
        if rtts.len() < NEWEST {
            rtts.extend(minute.rtt.map(|rtt| rtt.p50.as_millis_f64()));
            *sent += u64::from(minute.sent);
            *arrived += u64::from(minute.arrived);
        }
    }
    for (at, (rtts, sent, arrived)) in probes {
        let pair = all.entry(at).or_insert_with(|| fresh(at));
        pair.rtt_ms = (!rtts.is_empty()).then(|| median(&rtts));
        pair.loss = (sent > 0).then(|| sent.saturating_sub(arrived) as f64 / sent as f64);
    }
    for route in history.routes.iter().filter(|route| known(route.pair)) {
        let hops = route.hops.iter().map(|hop| hop.map_or("*".to_owned(), |hop| hop.to_string())).collect();
        all.entry(route.pair).or_insert_with(|| fresh(route.pair)).route = hops;
    }
    let states = state::states(history, changes);
    for (at, pair) in &mut all {
        pair.state = states.get(at).copied().unwrap_or(State::Fine);
    }
    all.into_values().collect()
}

fn explained(history: &History, pairs: &mut [PairSeen]) {
    let mut off: Vec<(f64, usize)> = Vec::new();
    for (nth, seen) in pairs.iter_mut().enumerate() {
        let Some(found) = found(history, seen.pair) else { continue };
        let expected = Expectation::of(&found);
        let distances = seen.ratios.iter().enumerate().filter_map(|(cc, ratio)| {
            let measured = (*ratio)?.ratio;
            let should = expected.ratio.get(cc).copied().flatten()?;
            (expected.agrees(cc as u16, &measured) == Some(false))
                .then(|| (measured.median / should.median).ln().abs())
        });
        let farthest = distances.fold(0.0, f64::max);
        if farthest > 0.0 {
            off.push((farthest, nth));
        }
        seen.expected = Some(expected);
    }
    off.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, nth) in off.into_iter().take(DIAGNOSED) {
        if let Some(seen) = pairs.get_mut(nth) {
            seen.diagnosis = found(history, seen.pair).map(|found| diagnose(&found));
        }
    }
}

fn site(id: SiteId, pairs: &[PairSeen], changes: &[Told]) -> SiteSeen {
    let best = |pair: &PairSeen| pair.goodput_bps.iter().copied().flatten().reduce(f64::max);
    let middle = |of: &dyn Fn(&PairSeen) -> bool| {
        let all: Vec<f64> = pairs.iter().filter(|pair| of(pair)).filter_map(best).collect();
        (!all.is_empty()).then(|| median(&all))
    };
    let own = || pairs.iter().filter(move |pair| pair.pair.from == id || pair.pair.to == id);
    let place_is_site = |told: &&Told| matches!(told.change.place, Place::Site(site) | Place::Sending(site) | Place::Receiving(site) if site == id);
    let open = changes.iter().filter(|told| told.end_ms.is_none()).find(place_is_site);
    let silent = own().filter(|pair| pair.pair.from == id).all(|pair| pair.state == State::Silent);
    let state = match open {
        Some(told) => State::of_change(told),
        None if silent && own().any(|pair| pair.pair.from == id) => State::Silent,
        None => State::Fine,
    };
    SiteSeen {
        state,
        sends_bps: middle(&|pair| pair.pair.from == id),
        receives_bps: middle(&|pair| pair.pair.to == id),
        transfers: own().map(|pair| pair.transfers).sum(),
        failed: own().map(|pair| pair.failed).sum(),
    }
}

/// A time as it is written: `2026-11-23 18:04`, UTC.
pub(crate) fn clock(at_ms: i64) -> String {
    let text = fullpipe_experiment::calendar::rfc3339(u64::try_from(at_ms / 1000).unwrap_or(0));
    text.get(..16).unwrap_or(&text).replace('T', " ")
}
