//! The report on a mesh: figures and states of pairs and sites, as text, HTML page and JSON.

mod bins;
mod figure;
mod page;
mod state;
mod text;

pub use figure::figure;
pub use page::page;
pub use state::State;
pub use text::terminal;

use crate::analysis::{Change, Ratio, changes, ratios};
use crate::expect::{Diagnosis, Expectation, PathEstimate, diagnose, estimate_path};
use crate::file::SIZE_RANGE;
use crate::location::Location;
use crate::record::{History, Outcome, Pair, SiteId};
use fullpipe_net::compare::median;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum pairs that are diagnosed, which takes about a second each: those farthest from their
/// expectation.
const MAX_DIAGNOSED: usize = 12;
/// Maximum pairs that are simulated: those whose controllers differ most.
const MAX_EXPECTED: usize = 64;
/// Pairs that are diagnosed where not all are simulated.
const MAX_DIAGNOSED_OF_MANY: usize = 4;
/// Transfers of more bytes are not simulated; a mesh file allows less.
const MAX_SIMULATED_SIZE: u64 = SIZE_RANGE[1];
/// The newest transfers that count for medians.
const RECENT_TRANSFERS: usize = 240;

/// A report on a mesh.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Site names.
    pub sites: Vec<String>,
    /// Controller names; the first is the baseline.
    pub controllers: Vec<String>,
    /// Time of the first record, milliseconds since 1970 (UTC).
    pub from_ms: i64,
    /// Time of the last record, milliseconds since 1970 (UTC).
    pub to_ms: i64,
    /// The period, seconds.
    pub period_s: f64,
    /// The directions with records.
    pub pairs: Vec<PathReport>,
    /// The sites, in the order of `sites`.
    pub site_states: Vec<SiteReport>,
    /// Detected changes, by time.
    pub changes: Vec<ChangeReport>,
}

/// A direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PathReport {
    /// The direction.
    pub pair: Pair,
    /// Current state.
    pub state: State,
    /// Each controller's goodput relative to the first, over all periods; `None` for the first.
    pub ratios: Vec<Option<Ratio>>,
    /// Each controller's median goodput of its newest transfers, bit/s.
    pub goodput_bps: Vec<Option<f64>>,
    /// Median RTT of the newest probes, milliseconds.
    pub rtt_ms: Option<f64>,
    /// Loss share of the newest probes, 0 to 1.
    pub loss: Option<f64>,
    /// Number of transfers.
    pub transfers: u64,
    /// Number of failed transfers.
    pub failed: u64,
    /// The routers of the last traced route, nearest first.
    pub route: Vec<String>,
    /// The simulated expectation, if requested.
    pub expected: Option<Expectation>,
    /// The diagnosis, where the path differs from its expectation.
    pub diagnosis: Option<Diagnosis>,
}

/// A site.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SiteReport {
    /// Current state.
    pub state: State,
    /// Median goodput of the directions it sends on, by the best controller of each, bit/s.
    pub sends_bps: Option<f64>,
    /// The same for the directions it receives on, bit/s.
    pub receives_bps: Option<f64>,
    /// Number of transfers from and to the site.
    pub transfers: u64,
    /// Number of failed transfers from and to the site.
    pub failed: u64,
}

/// A change with its description.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ChangeReport {
    /// Location, as text.
    pub location: String,
    /// A short description.
    pub kind: &'static str,
    /// Details, as text.
    pub details: Vec<String>,
    /// Routes before and after the change, where traced: direction, routers before, routers after.
    pub routes: Vec<(String, Vec<String>, Vec<String>)>,
    /// Start of the change, milliseconds since 1970 (UTC).
    pub begin_ms: i64,
    /// End of the change, if it has ended.
    pub end_ms: Option<i64>,
    /// The detected change.
    pub cause: Change,
}

impl Report {
    /// Analyses a history. With `explain`, each path is simulated as well, and deviations are
    /// diagnosed, which takes seconds.
    pub fn new(history: &History, explain: bool) -> Report {
        let long = crate::analysis::period_ms(history);
        let changes: Vec<ChangeReport> =
            changes(history).into_iter().map(|change| describe_change(history, long, change)).collect();
        let times = history.transfers.iter().map(|t| t.at_ms).chain(history.minutes.iter().map(|m| m.at_ms));
        let (from_ms, to_ms) = times.fold((i64::MAX, i64::MIN), |(from, to), at| (from.min(at), to.max(at)));
        let mut pairs = pairs(history, &changes);
        if explain {
            add_expectations(history, &mut pairs);
        }
        let site = |id: usize| site(id as SiteId, &pairs, &changes);
        Report {
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

    /// The changes that have not ended.
    pub fn ongoing(&self) -> impl Iterator<Item = &ChangeReport> {
        self.changes.iter().filter(|change| change.end_ms.is_none())
    }

    /// The summary sentence.
    pub fn verdict(&self) -> String {
        if self.pairs.is_empty() {
            return "No records yet".to_owned();
        }
        let mut details = Vec::new();
        for (nth, name) in self.controllers.iter().enumerate().skip(1) {
            let mut medians: Vec<f64> =
                self.pairs.iter().filter_map(|pair| Some((*pair.ratios.get(nth)?)?.ratio.median)).collect();
            medians.sort_by(f64::total_cmp);
            let (Some(least), Some(most)) = (medians.first(), medians.last()) else { continue };
            let first = self.controllers.first().map_or("", String::as_str);
            details.push(format!(
                "{name}: {} times the goodput of {first}{}",
                times(median(&medians)),
                match medians.len() {
                    1 => String::new(),
                    n => format!(" (median of {n} paths, range {} to {})", times(*least), times(*most)),
                }
            ));
        }
        let open = self.ongoing().count();
        details.push(match open {
            0 => "no ongoing changes".to_owned(),
            1 => "1 ongoing change".to_owned(),
            n => format!("{n} ongoing changes"),
        });
        details.join("; ")
    }
}

/// `1 path`, `56 paths`.
pub(crate) fn paths(n: usize) -> String {
    format!("{n} path{}", if n == 1 { "" } else { "s" })
}

/// Formats a ratio.
pub(crate) fn times(ratio: f64) -> String {
    if ratio >= 99.5 {
        format!("{ratio:.0}")
    } else if ratio >= 9.95 {
        format!("{ratio:.1}")
    } else {
        format!("{ratio:.2}")
    }
}

fn describe_change(history: &History, long: i64, change: Change) -> ChangeReport {
    let at = |period: i64| period.saturating_mul(long);
    let begin_ms = at(change.begin);
    let mut routes = Vec::new();
    let named = |route: &crate::record::Route| -> Vec<String> {
        route.hops.iter().map(|hop| hop.map_or("*".to_owned(), |hop| hop.to_string())).collect()
    };
    let pairs: BTreeSet<Pair> = change.shifts.iter().flat_map(|s| [s.pair, s.pair.reversed()]).collect();
    for pair in pairs.into_iter().filter(|pair| change.location.contains(*pair)) {
        let of = || history.routes.iter().filter(move |route| route.pair == pair);
        // Routes are traced after a suspected change, so the first may be a few periods late.
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
    ChangeReport {
        location: change.location.name(history),
        kind: change.kind(),
        details: change.details(history),
        routes,
        begin_ms,
        end_ms: change.end.map(at),
        cause: change,
    }
}

fn pairs(history: &History, changes: &[ChangeReport]) -> Vec<PathReport> {
    let controllers = history.controllers.len();
    let mut all: BTreeMap<Pair, PathReport> = BTreeMap::new();
    let fresh = |pair: Pair| PathReport {
        pair,
        state: State::Normal,
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
        let newest = &of[of.len().saturating_sub(RECENT_TRANSFERS)..];
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
        if rtts.len() < RECENT_TRANSFERS {
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
        pair.state = states.get(at).copied().unwrap_or(State::Normal);
    }
    all.into_values().collect()
}

fn add_expectations(history: &History, pairs: &mut [PathReport]) {
    let gain = |path: &PathReport| {
        let ratios = path.ratios.iter().flatten();
        ratios.map(|ratio| ratio.ratio.median.ln().abs()).filter(|gain| gain.is_finite()).fold(0.0, f64::max)
    };
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by(|a, b| gain(&pairs[*b]).total_cmp(&gain(&pairs[*a])));
    order.truncate(MAX_EXPECTED);
    let diagnosed = if pairs.len() > MAX_EXPECTED { MAX_DIAGNOSED_OF_MANY } else { MAX_DIAGNOSED };
    let selected: Vec<(usize, Pair)> = order.into_iter().map(|nth| (nth, pairs[nth].pair)).collect();
    let expected = in_parallel(&selected, |(_, pair)| {
        // Sizes come from other sites.
        let estimate = estimate_path(history, *pair).filter(|path| path.size <= MAX_SIMULATED_SIZE)?;
        let expected = Expectation::simulate(&estimate);
        Some((estimate, expected))
    });
    let mut off: Vec<(f64, usize, PathEstimate)> = Vec::new();
    for ((nth, _), expected) in selected.into_iter().zip(expected) {
        let Some((estimate, expected)) = expected else { continue };
        let path = &mut pairs[nth];
        let distances = path.ratios.iter().enumerate().filter_map(|(cc, ratio)| {
            let measured = (*ratio)?.ratio;
            let should = expected.ratio.get(cc).copied().flatten()?;
            (expected.agrees(cc as u16, &measured) == Some(false))
                .then(|| (measured.median / should.median).ln().abs())
        });
        let farthest = distances.fold(0.0, f64::max);
        if farthest > 0.0 {
            off.push((farthest, nth, estimate));
        }
        path.expected = Some(expected);
    }
    off.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    off.truncate(diagnosed);
    let diagnoses = in_parallel(&off, |(_, _, estimate)| diagnose(estimate));
    for ((_, nth, _), diagnosis) in off.into_iter().zip(diagnoses) {
        pairs[nth].diagnosis = Some(diagnosis);
    }
}

/// The results of a function, in order, computed by as many threads as there are processors.
fn in_parallel<T: Sync, R: Send>(all: &[T], compute: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all.len()).max(1);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let nth = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(one) = all.get(nth) else { return results };
            results.push((nth, compute(one)));
        }
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut results = work();
        for handle in handles {
            match handle.join() {
                Ok(others) => results.extend(others),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_by_key(|(nth, _)| *nth);
    results.into_iter().map(|(_, result)| result).collect()
}

fn site(id: SiteId, pairs: &[PathReport], changes: &[ChangeReport]) -> SiteReport {
    let best = |pair: &PathReport| pair.goodput_bps.iter().copied().flatten().reduce(f64::max);
    let middle = |of: &dyn Fn(&PathReport) -> bool| {
        let all: Vec<f64> = pairs.iter().filter(|pair| of(pair)).filter_map(best).collect();
        (!all.is_empty()).then(|| median(&all))
    };
    let own = || pairs.iter().filter(move |pair| pair.pair.from == id || pair.pair.to == id);
    let is_site = |change: &&ChangeReport| {
        matches!(change.cause.location, Location::Site(site) | Location::Sending(site)
        | Location::Receiving(site) if site == id)
    };
    let open = changes.iter().filter(|change| change.end_ms.is_none()).find(is_site);
    let silent = own().filter(|pair| pair.pair.from == id).all(|pair| pair.state == State::Silent);
    let state = match open {
        Some(change) => State::from_change(change),
        None if silent && own().any(|pair| pair.pair.from == id) => State::Silent,
        None => State::Normal,
    };
    SiteReport {
        state,
        sends_bps: middle(&|pair| pair.pair.from == id),
        receives_bps: middle(&|pair| pair.pair.to == id),
        transfers: own().map(|pair| pair.transfers).sum(),
        failed: own().map(|pair| pair.failed).sum(),
    }
}

/// Formats a time as `2026-11-23 18:04`, UTC.
pub(crate) fn clock(at_ms: i64) -> String {
    let text = fullpipe_experiment::calendar::rfc3339(u64::try_from(at_ms / 1000).unwrap_or(0));
    text.get(..16).unwrap_or(&text).replace('T', " ")
}
