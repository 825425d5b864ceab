//! The report on a mesh: figures and states of pairs and sites, as text, HTML page and JSON.

mod bins;
mod figure;
mod page;
mod state;
mod summary;
mod text;

pub use figure::figure;
pub use page::page;
pub use state::State;
pub use summary::Summary;
pub use text::terminal;

use crate::analysis::{Change, Ratio, changes};
use crate::expect::{Diagnosis, Expectation, PathEstimate, diagnose, estimate_path};
use crate::file::SIZE_RANGE;
use crate::location::Location;
use crate::record::{History, Pair, Route, SiteId};
use crate::simulate::Simulate;
use crate::store::StoreError;
use fullpipe_net::compare::median;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum pairs that are diagnosed, which takes about a second each: those farthest from their
/// expectation.
const MAX_DIAGNOSED: usize = 12;
/// Maximum pairs that are simulated: those whose controllers differ most.
const MAX_EXPECTED: usize = 64;
/// Pairs that are diagnosed where not all are simulated.
const MAX_DIAGNOSED_OF_MANY: usize = 4;
/// Transfers of more bytes are not simulated; a mesh file allows less.
const MAX_SIMULATED_SIZE: u64 = SIZE_RANGE[1];

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
    /// Time from which on changes were looked for, milliseconds since 1970 (UTC).
    pub changes_from_ms: i64,
}

/// Changes, and how far back they were looked for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DetectedChanges {
    /// The changes.
    pub changes: Vec<Change>,
    /// Time from which on changes were looked for, if not in all records of a report, milliseconds
    /// since 1970 (UTC).
    pub from_ms: Option<i64>,
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
    /// Analyses a history. With `simulate`, each path is simulated as well, and deviations are
    /// diagnosed, which takes seconds.
    pub fn new(history: &History, simulate: Option<Simulate>) -> Report {
        let detected = DetectedChanges { changes: changes(history), from_ms: None };
        let mut report = Report::from_summary(&Summary::from(history), detected);
        if let Some(simulate) = simulate {
            report.add_expectations_from(history, report.to_simulate(), simulate);
        }
        report
    }

    /// Simulates the paths whose controllers differ most, and diagnoses deviations, which takes
    /// seconds. `rows` gives the newest records of these directions.
    ///
    /// # Errors
    /// If `rows` fails.
    pub fn add_expectations(
        &mut self,
        rows: impl FnOnce(&[Pair]) -> Result<History, StoreError>,
        simulate: Simulate,
    ) -> Result<(), StoreError> {
        let selected = self.to_simulate();
        let pairs: Vec<Pair> = selected.iter().map(|(_, pair)| *pair).collect();
        let history = rows(&pairs)?;
        self.add_expectations_from(&history, selected, simulate);
        Ok(())
    }

    /// The report of a summary, without simulated expectations.
    pub fn from_summary(summary: &Summary, detected: DetectedChanges) -> Report {
        let head = &summary.head;
        let long = crate::analysis::period_ms(head);
        let DetectedChanges { changes, from_ms } = detected;
        let mut routes: HashMap<Pair, Vec<&Route>> = HashMap::new();
        head.routes.iter().for_each(|route| routes.entry(route.pair).or_default().push(route));
        let changes: Vec<ChangeReport> =
            changes.into_iter().map(|change| describe_change(head, &routes, long, change)).collect();
        let pairs = pairs(summary, &changes);
        let site = |id: usize| site(id as SiteId, &pairs, &changes);
        Report {
            site_states: (0..head.sites.len()).map(site).collect(),
            sites: head.sites.clone(),
            controllers: head.controllers.clone(),
            from_ms: summary.from_ms,
            to_ms: summary.to_ms,
            period_s: head.period.as_secs_f64(),
            pairs,
            changes,
            changes_from_ms: from_ms.unwrap_or(summary.from_ms).max(summary.from_ms),
        }
    }

    /// Whether changes were looked for in a part of the records only.
    pub fn changes_are_partial(&self) -> bool {
        self.changes_from_ms as f64 > self.from_ms as f64 + 1e3 * self.period_s
    }

    /// The sorted median ratios of all directions for a controller: figure 7 of the paper.
    pub fn gains(&self, controller: usize) -> Vec<f64> {
        let ratio = |pair: &PathReport| Some((*pair.ratios.get(controller)?)?.ratio.median);
        let mut all: Vec<f64> = self.pairs.iter().filter_map(ratio).collect();
        all.sort_by(f64::total_cmp);
        all
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
            let medians = self.gains(nth);
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

fn describe_change(
    history: &History,
    traced: &HashMap<Pair, Vec<&Route>>,
    long: i64,
    change: Change,
) -> ChangeReport {
    let at = |period: i64| period.saturating_mul(long);
    let begin_ms = at(change.begin);
    let mut routes = Vec::new();
    let pairs: BTreeSet<Pair> = change.shifts.iter().flat_map(|s| [s.pair, s.pair.reversed()]).collect();
    for pair in pairs.into_iter().filter(|pair| change.location.contains(*pair)) {
        let Some(traced) = traced.get(&pair) else { continue };
        // Routes are traced after a suspected change, so the first may be a few periods late.
        let before = traced.iter().rfind(|route| route.at_ms < begin_ms);
        let after = traced.iter().find(|route| {
            (begin_ms..begin_ms.saturating_add(long.saturating_mul(10))).contains(&route.at_ms)
        });
        if let (Some(before), Some(after)) = (before, after)
            && before.hops != after.hops
        {
            routes.push((history.name(pair), hop_names(before), hop_names(after)));
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

fn pairs(summary: &Summary, changes: &[ChangeReport]) -> Vec<PathReport> {
    let head = &summary.head;
    let controllers = head.controllers.len();
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
    let states = state::states(&summary.paths, changes);
    let path = |path: &summary::PathSummary| PathReport {
        state: states.get(&path.pair).copied().unwrap_or(State::Normal),
        ratios: path.ratios.clone(),
        goodput_bps: path.goodput_bps.clone(),
        rtt_ms: path.rtt_ms,
        loss: path.loss,
        transfers: path.transfers,
        failed: path.failed,
        ..fresh(path.pair)
    };
    let mut all: BTreeMap<Pair, PathReport> = summary.paths.iter().map(|one| (one.pair, path(one))).collect();
    for route in head.routes.iter().filter(|route| head.has_pair(route.pair)) {
        all.entry(route.pair).or_insert_with(|| fresh(route.pair)).route = hop_names(route);
    }
    all.into_values().collect()
}

/// The routers of a path, nearest first.
fn hop_names(route: &Route) -> Vec<String> {
    route.hops.iter().map(|hop| hop.map_or("*".to_owned(), |hop| hop.to_string())).collect()
}

impl Report {
    /// The paths whose controllers differ most.
    fn to_simulate(&self) -> Vec<(usize, Pair)> {
        let gain = |path: &PathReport| {
            let ratios = path.ratios.iter().flatten();
            ratios
                .map(|ratio| ratio.ratio.median.ln().abs())
                .filter(|gain| gain.is_finite())
                .fold(0.0, f64::max)
        };
        let mut order: Vec<(usize, f64)> = self.pairs.iter().map(gain).enumerate().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        order.truncate(MAX_EXPECTED);
        order.into_iter().map(|(nth, _)| (nth, self.pairs[nth].pair)).collect()
    }

    fn add_expectations_from(&mut self, history: &History, selected: Vec<(usize, Pair)>, simulate: Simulate) {
        let pairs = &mut self.pairs;
        let diagnosed = if pairs.len() > MAX_EXPECTED { MAX_DIAGNOSED_OF_MANY } else { MAX_DIAGNOSED };
        let expected = in_parallel(&selected, |(_, pair)| {
            // Sizes come from other sites.
            let estimate = estimate_path(history, *pair).filter(|path| path.size <= MAX_SIMULATED_SIZE)?;
            let expected = Expectation::simulate(&estimate, simulate);
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
        let diagnoses = in_parallel(&off, |(_, _, estimate)| diagnose(estimate, simulate));
        for ((_, nth, _), diagnosis) in off.into_iter().zip(diagnoses) {
            pairs[nth].diagnosis = Some(diagnosis);
        }
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
        // Where no more threads are allowed, those that there are do the work.
        let other = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let handles: Vec<_> = (1..threads).filter_map(other).collect();
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
