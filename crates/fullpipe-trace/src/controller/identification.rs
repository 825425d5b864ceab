//! Compares the features of a connection with those of each candidate.

use super::candidates::{CANDIDATES, Candidate};
use super::conditions::Limits;
use super::features::{FEATURES, Features, Format};
use super::path::INITIAL_WINDOW;
use fullpipe_experiment::connection::{Likelihood, Sender};
use fullpipe_units::Span;

/// Maximum difference of a feature in standard errors: a single outlier must not outweigh all
/// others.
const MAX_DISTANCE: f64 = 3.0;
/// Difference if only one of the two has the feature.
const MISSING_DISTANCE: f64 = 2.0;
/// Round trips below which the squared errors more than double.
const SHORT_ROUNDS: f64 = 60.0;
/// The same for the bandwidth-delay product in segments: a small window moves in steps.
const SMALL_BDP: f64 = 10.0;
/// Hybla's initial window is one segment for each of these (`rtt0` and `hybla_init()` in Linux's
/// tcp_hybla.c).
const HYBLA_RTT0: Span = Span::from_millis(25);
/// Probability of an initial window that is neither the controller's nor that of RFC 6928, as with
/// a route setting.
const UNUSUAL_WINDOW: f64 = 0.05;
/// Features that count periodic dips, which may differ by one between equal connections.
const DIP_FEATURES: [usize; 2] = [25, 26];
/// Features after losses: how much of the data in flight is left, its median and lower quartile.
const REDUCTIONS: [usize; 2] = [28, 29];
/// Distance from every candidate at which a feature speaks against all,
const UNLIKE_DISTANCE: f64 = 2.0;
/// and the number of such features that are evidence of an unknown controller.
const MIN_UNLIKE_FEATURES: usize = 3;
/// Candidates that are farther away than the nearest one by more than this are not simulated again.
const FAR: f64 = 0.4;
/// Difference of the distances of two candidates that may be chance.
const ALIKE: f64 = 0.1;
/// Minimum probability to name a controller.
const MIN_PROBABILITY: f64 = 0.8;

/// A feature of the connection and of each candidate.
#[derive(Clone, Debug)]
pub struct FeatureComparison {
    /// Name.
    pub feature: &'static str,
    /// Value of the connection; NaN if it has none.
    pub observed: f64,
    /// Standard error between a capture and simulations of its own controller.
    pub error: f64,
    /// Mean and standard deviation over the simulations of each candidate.
    pub candidates: Vec<(f64, f64)>,
}

/// The identified controller with the comparison behind it.
#[derive(Clone, Debug)]
pub struct Identification {
    /// The result.
    pub sender: Sender,
    /// Names of the candidates.
    pub candidates: Vec<&'static str>,
    /// Features.
    pub compared: Vec<FeatureComparison>,
    /// Distance of each candidate (root mean square, in standard errors).
    pub distances: Vec<f64>,
    /// Conditions of the path.
    pub conditions: Vec<(&'static str, f64)>,
}

impl Identification {
    /// The candidates worth more simulations.
    pub(super) fn near(&self) -> Vec<usize> {
        let least = self.distances.iter().copied().fold(f64::INFINITY, f64::min);
        (0..self.distances.len()).filter(|c| self.distances[*c] <= least + FAR).collect()
    }
}

fn mean_and_deviation(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.filter(|v| !v.is_nan()).collect();
    let n = values.len() as f64;
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    (mean, square.sqrt())
}

/// Squared distance of a feature from that of a candidate, in standard errors.
fn squared_distance(observed: f64, (mean, deviation): (f64, f64), error: f64) -> f64 {
    match (observed.is_nan(), mean.is_nan()) {
        (true, true) => 0.0,
        (false, false) => {
            let z = (observed - mean) / error.hypot(deviation);
            (z * z).min(MAX_DISTANCE * MAX_DISTANCE)
        }
        _ => MISSING_DISTANCE * MISSING_DISTANCE,
    }
}

/// The initial window of a connection, and the RTT of its path.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub(super) segments: u32,
    pub(super) rtt: Span,
}

impl Opening {
    /// The initial window of Linux's Hybla, which ignores route settings.
    pub(super) fn hybla_window(self) -> u32 {
        (self.rtt.as_nanos() / HYBLA_RTT0.as_nanos()).clamp(1, 200) as u32
    }

    /// Likelihood of this initial window for `candidate`.
    fn likelihood(self, candidate: &str) -> f64 {
        let usual = if candidate == "hybla" {
            // Hybla uses the first RTT sample, which is longer than the minimum.
            (self.hybla_window()..=self.hybla_window() + 1).contains(&self.segments)
        } else {
            self.segments == INITIAL_WINDOW
        };
        if usual { 1.0 } else { UNUSUAL_WINDOW }
    }
}

/// The length of a connection.
pub(super) struct Length {
    /// Round trips.
    pub(super) rounds: f64,
    pub(super) seconds: f64,
    /// Bandwidth-delay product in segments.
    pub(super) bdp: f64,
    pub(super) hybla_is_reno: bool,
}

/// Distances of a connection from each candidate.
struct Distances {
    compared: Vec<FeatureComparison>,
    /// Squared distance of each feature, per candidate.
    squares: Vec<Vec<f64>>,
    /// Number of features that the connection has.
    count: f64,
    /// Root mean square over all features, per candidate.
    all: Vec<f64>,
}

impl Distances {
    fn new(measured: &Features, simulated: &[Vec<Features>], length: &Length) -> Self {
        // The features of short connections and of small windows are less exact.
        let blur = (1.0 + SHORT_ROUNDS / length.rounds + SMALL_BDP / length.bdp).sqrt();
        let one_more = 0.5 * (1.0 + 10.0 / length.seconds).log2();
        let compared: Vec<FeatureComparison> = FEATURES
            .iter()
            .enumerate()
            .map(|(i, feature)| FeatureComparison {
                feature: feature.name,
                observed: measured[i],
                error: if DIP_FEATURES.contains(&i) { feature.error.hypot(one_more) } else { feature.error }
                    * blur,
                candidates: simulated
                    .iter()
                    .map(|runs| mean_and_deviation(runs.iter().map(|f| f[i])))
                    .collect(),
            })
            .collect();
        let squares: Vec<Vec<f64>> = (0..simulated.len())
            .map(|c| {
                let each = compared.iter();
                each.map(|k| squared_distance(k.observed, k.candidates[c], k.error)).collect()
            })
            .collect();
        let count = compared.iter().filter(|k| !k.observed.is_nan()).count().max(1) as f64;
        let distance = |c: usize| match simulated[c].is_empty() {
            true => f64::INFINITY,
            false => (squares[c].iter().sum::<f64>() / count).sqrt(),
        };
        let mut all: Vec<f64> = (0..simulated.len()).map(distance).collect();
        // Equal controllers differ only by chance.
        if length.hybla_is_reno {
            let both = |c: &usize| matches!(CANDIDATES[*c].name, "reno" | "hybla");
            let least = (0..all.len()).filter(both).map(|c| all[c]).fold(f64::MAX, f64::min);
            (0..all.len()).filter(both).for_each(|c| all[c] = least);
        }
        Distances { compared, squares, count, all }
    }

    /// The features that no candidate has.
    fn unlike(&self) -> Vec<usize> {
        let far = |i: &usize| {
            let nearest = self.squares.iter().map(|s| s[*i]).fold(f64::MAX, f64::min);
            nearest >= UNLIKE_DISTANCE * UNLIKE_DISTANCE && !self.compared[*i].observed.is_nan()
        };
        (0..FEATURES.len()).filter(far).collect()
    }

    /// Distance of the reductions after losses from those of a candidate.
    fn reductions(&self, candidate: usize) -> f64 {
        REDUCTIONS.iter().map(|i| self.squares[candidate][*i].sqrt()).sum::<f64>() / REDUCTIONS.len() as f64
    }

    /// The features that most favour the candidate `best` over the `second`.
    fn evidence(&self, best: usize, second: usize) -> Vec<String> {
        let mut order: Vec<usize> = (0..FEATURES.len()).collect();
        // Prefer features that are visible in plots.
        let weight = |i: usize| {
            let difference = self.squares[second][i] - self.squares[best][i];
            if FEATURES[i].format == Format::Plain { difference / 2.0 } else { difference }
        };
        order.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
        let most = order.iter().take(3).filter(|i| weight(**i) > 1.0).map(|&i| {
            let format = FEATURES[i].format;
            let k = &self.compared[i];
            format!(
                "{}: {} observed, {} for {}, {} for {}",
                k.feature,
                format.show(k.observed),
                format.show(k.candidates[best].0),
                name(best),
                format.show(k.candidates[second].0),
                name(second)
            )
        });
        most.collect()
    }
}

fn name(candidate: usize) -> &'static str {
    CANDIDATES[candidate].name
}

/// Probabilities; they add up to 1.
struct Likelihoods {
    /// The most likely candidate of each controller, in falling order.
    each: Vec<(usize, f64)>,
    /// None of the candidates.
    none: f64,
}

impl Likelihoods {
    fn new(distances: &Distances, hybla_is_reno: bool, opening: Option<Opening>, limits: &Limits) -> Self {
        let weigh =
            |distance: f64| (-0.5 * distance * distance * distances.count * limits.independence).exp();
        let mut each: Vec<(usize, f64)> = Vec::new();
        let is_distinct = |c: &Candidate| opening.is_some() || !(hybla_is_reno && c.name == "hybla");
        for (c, candidate) in CANDIDATES.iter().enumerate().filter(|(_, c)| is_distinct(c)) {
            let opened = opening.map_or(1.0, |o| o.likelihood(candidate.name));
            let weight = candidate.prior * weigh(distances.all[c]) * opened;
            match each.iter_mut().find(|(other, _)| name(*other) == candidate.name) {
                Some(other) if other.1 < weight => *other = (c, weight),
                Some(_) => {}
                None => each.push((c, weight)),
            }
        }
        let unknown = weigh(limits.unlike) * opening.map_or(1.0, |o| o.likelihood("none of these"));
        let total = each.iter().map(|(_, w)| w).sum::<f64>() + unknown;
        for (_, weight) in &mut each {
            *weight /= total;
        }
        each.sort_by(|a, b| b.1.total_cmp(&a.1));
        Likelihoods { each, none: unknown / total }
    }

    /// The rare controllers that would have behaved as the most likely one does.
    fn alike(&self, distances: &Distances) -> Option<String> {
        let least = distances.all[self.each[0].0];
        let same = |c: &&(usize, f64)| CANDIDATES[c.0].is_rare() && distances.all[c.0] <= least + ALIKE;
        let names: Vec<&str> = self.each[1..].iter().filter(same).map(|c| name(c.0)).collect();
        let also = || format!("not distinguishable here, but hardly deployed: {}", names.join(", "));
        (!names.is_empty()).then(also)
    }

    /// The controller, if its probability suffices, and the description.
    fn verdict(&self, distances: &Distances, limits: &Limits) -> (Option<String>, String) {
        let (best, second) = (self.each[0], self.each[1]);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let distance = distances.all[best.0];
        let matches = distance <= limits.named && distances.reductions(best.0) <= limits.reductions;
        let is_unlike = distance > limits.unlike || self.none > 0.5;
        if best.1 >= MIN_PROBABILITY && matches {
            (Some(name(best.0).to_owned()), format!("{} ({})", name(best.0), percent(best.1)))
        } else if let Some(reason) = limits.reason
            && (is_unlike || !matches)
        {
            (None, format!("cannot tell, because {reason}; the nearest is {}", name(best.0)))
        } else if is_unlike && distances.unlike().len() >= MIN_UNLIKE_FEATURES {
            (None, format!("none of the known controllers; the nearest is {}", name(best.0)))
        } else if best.1 + second.1 >= MIN_PROBABILITY && best.1 < MIN_PROBABILITY && !is_unlike {
            let (a, b) = ((name(best.0), percent(best.1)), (name(second.0), percent(second.1)));
            (None, format!("{} ({}) or {} ({}): not distinguishable here", a.0, a.1, b.0, b.1))
        } else {
            let reason = limits.reason.unwrap_or("no known controller is near enough");
            (
                None,
                format!(
                    "cannot tell, because {reason}; the nearest is {} ({})",
                    name(best.0),
                    percent(best.1)
                ),
            )
        }
    }
}

/// The reaction to losses, if it is the same each time: it does not depend on the path.
fn reduction(measured: &Features) -> Option<String> {
    let [median, low, high] = [28, 29, 30].map(|i: usize| measured[i].exp2());
    if !(median > 0.0 && high / low < 1.35) {
        return None;
    }
    let by = match median {
        0.42..=0.58 => ", as reno and hybla do",
        0.66..=0.74 => ", as cubic and bbr3 do",
        _ => "",
    };
    Some(format!("after losses, ×{median:.2} of the data in flight is left{by}"))
}

/// For each candidate, its simulations on that of the paths on which they are nearest.
pub(super) fn nearest(
    measured: &Features,
    paths: &[Vec<Vec<Features>>],
    length: &Length,
) -> Option<Vec<Vec<Features>>> {
    let distances: Vec<Vec<f64>> =
        paths.iter().map(|simulated| Distances::new(measured, simulated, length).all).collect();
    let candidates = 0..paths.first()?.len();
    candidates
        .map(|c| {
            let near = (0..paths.len()).min_by(|a, b| distances[*a][c].total_cmp(&distances[*b][c]))?;
            Some(paths[near][c].clone())
        })
        .collect()
}

/// Compares the `measured` features with those of each candidate in each simulation.
pub(super) fn compare(
    measured: &Features,
    simulated: &[Vec<Features>],
    length: &Length,
    opening: Option<Opening>,
    limits: &Limits,
) -> Identification {
    let distances = Distances::new(measured, simulated, length);
    let likelihoods = Likelihoods::new(&distances, length.hybla_is_reno, opening, limits);
    let (best, second) = (likelihoods.each[0].0, likelihoods.each[1].0);
    let (named, words) = likelihoods.verdict(&distances, limits);
    let mut evidence = Vec::new();
    if words.starts_with("none") {
        evidence.extend(distances.unlike().into_iter().take(3).map(|i| {
            let (k, format) = (&distances.compared[i], FEATURES[i].format);
            let (observed, nearest) = (format.show(k.observed), format.show(k.candidates[best].0));
            format!("{}: {observed} observed, {nearest} for {}, others differ, too", k.feature, name(best))
        }));
    } else {
        evidence.extend(distances.evidence(best, second));
    }
    if named.is_none() {
        evidence.extend(reduction(measured));
    } else {
        evidence.extend(likelihoods.alike(&distances));
    }
    let sender = Sender {
        name: named,
        words,
        conditions: Vec::new(),
        evidence,
        likelihoods: likelihoods
            .each
            .iter()
            .filter(|(c, _)| distances.all[*c].is_finite())
            .map(|(c, share)| Likelihood { name: name(*c).to_owned(), share: *share })
            .chain([Likelihood { name: "none of these".to_owned(), share: likelihoods.none }])
            .collect(),
    };
    Identification {
        sender,
        candidates: CANDIDATES.iter().map(|c| c.name).collect(),
        compared: distances.compared,
        distances: distances.all,
        conditions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::RUNS;
    use crate::controller::conditions::Conditions;

    /// The result if the features of candidate `c` are `4 c` errors and those of `alike` equal the
    /// first of them.
    fn identified(seen: f64, alike: &[usize]) -> Identification {
        identified_with(seen, alike, None, false)
    }

    /// The same with an initial window.
    fn identified_with(
        seen: f64,
        alike: &[usize],
        opening: Option<Opening>,
        hybla_is_reno: bool,
    ) -> Identification {
        let of = |c: usize| if alike.contains(&c) { alike[0] } else { c } as f64 * 4.0;
        let is_simulated = |c: usize| !CANDIDATES[c].is_rare() || alike.contains(&c) || of(c) == seen;
        let simulated: Vec<Vec<Features>> = (0..CANDIDATES.len())
            .map(|c| {
                let runs = if is_simulated(c) { RUNS as usize } else { 0 };
                vec![std::array::from_fn(|i| of(c) * FEATURES[i].error); runs]
            })
            .collect();
        let length = Length { rounds: 1e6, seconds: 1e6, bdp: 1e6, hybla_is_reno };
        let limits = Conditions::default().limits();
        compare(&std::array::from_fn(|i| seen * FEATURES[i].error), &simulated, &length, opening, &limits)
    }

    fn opening(segments: u32, ms: u64) -> Opening {
        Opening { segments, rtt: Span::from_millis(ms) }
    }

    #[test]
    fn candidate_with_equal_features_is_named() {
        let c = identified(4.0, &[]);
        assert_eq!(c.sender.name.as_deref(), Some("bbr3"), "{:?}", c.sender);
        assert!(c.sender.likelihoods[0].share > 0.95);
    }

    #[test]
    fn equal_candidates_are_not_named() {
        let c = identified(16.0, &[4, 5]);
        assert_eq!(c.sender.name, None, "{:?}", c.sender);
        assert_eq!(c.sender.words, "reno (70 %) or hybla (30 %): not distinguishable here");
    }

    /// The place of a candidate.
    fn place(name: &str) -> usize {
        CANDIDATES.iter().position(|c| c.name == name).unwrap()
    }

    #[test]
    fn rare_controller_is_named_if_no_usual_one_is_like_it() {
        let c = identified(4.0 * place("westwood") as f64, &[]);
        assert_eq!(c.sender.name.as_deref(), Some("westwood"), "{:?}", c.sender);
        assert!(c.sender.likelihoods.iter().all(|l| l.name != "veno"), "{:?}", c.sender);
        assert_eq!(c.near(), [place("westwood")]);
    }

    #[test]
    fn rare_controllers_that_are_like_the_named_one_are_listed() {
        let alike = ["reno", "htcp", "veno"].map(place);
        let c = identified(4.0 * alike[0] as f64, &alike);
        assert_eq!(c.sender.name.as_deref(), Some("reno"), "{:?}", c.sender);
        assert_eq!(
            c.sender.evidence.last().unwrap(),
            "not distinguishable here, but hardly deployed: htcp, veno"
        );
        assert_eq!(c.near(), alike);
    }

    #[test]
    fn initial_window_is_hyblas_or_the_standard_one() {
        // `hybla_init()`: one segment per 25 ms of RTT, at least one.
        for (ms, own) in [(8, 1), (25, 1), (49, 1), (50, 2), (110, 4), (600, 24)] {
            let o = opening(own, ms);
            assert_eq!(o.hybla_window(), own, "{ms} ms");
            assert_eq!(
                (o.likelihood("hybla"), o.likelihood("reno"), o.likelihood("none of these")),
                (1.0, UNUSUAL_WINDOW, UNUSUAL_WINDOW),
                "{ms} ms"
            );
            // An RTT that was measured slightly longer.
            assert_eq!(opening(own + 1, ms).likelihood("hybla"), 1.0);
        }
        let usual = opening(INITIAL_WINDOW, 110);
        assert_eq!((usual.likelihood("hybla"), usual.likelihood("reno")), (UNUSUAL_WINDOW, 1.0));
        // The window of a route setting favours no candidate.
        let route = opening(32, 110);
        assert_eq!((route.likelihood("hybla"), route.likelihood("reno")), (UNUSUAL_WINDOW, UNUSUAL_WINDOW));
    }

    #[test]
    fn equal_candidates_are_distinguished_by_the_initial_window() {
        for (segments, name) in [(INITIAL_WINDOW, "reno"), (4, "hybla")] {
            let c = identified_with(16.0, &[4, 5], Some(opening(segments, 110)), false);
            assert_eq!(c.sender.name.as_deref(), Some(name), "{:?}", c.sender);
        }
        let c = identified_with(16.0, &[4, 5], Some(opening(32, 110)), false);
        assert_eq!(c.sender.words, "reno (70 %) or hybla (30 %): not distinguishable here");
        // It does not outweigh features.
        let c = identified_with(16.0, &[], Some(opening(4, 110)), false);
        assert_eq!(c.sender.name.as_deref(), Some("reno"), "{:?}", c.sender);
    }

    #[test]
    fn hybla_on_short_rtts_is_identified_by_its_initial_window_only() {
        // Here the simulations of both differ as much as those of others.
        for (segments, name) in [(INITIAL_WINDOW, "reno"), (1, "hybla")] {
            for seen in [16.0, 20.0] {
                let c = identified_with(seen, &[], Some(opening(segments, 12)), true);
                assert_eq!(c.sender.name.as_deref(), Some(name), "{:?}", c.sender);
            }
        }
        let c = identified_with(20.0, &[], None, true);
        assert_eq!(c.sender.name.as_deref(), Some("reno"), "{:?}", c.sender);
        assert!(c.sender.likelihoods.iter().all(|l| l.name != "hybla"), "{:?}", c.sender);
    }

    #[test]
    fn features_of_no_candidate_give_none() {
        for opening in [None, Some(opening(4, 110)), Some(opening(32, 110))] {
            let c = identified_with(42.0, &[], opening, false);
            assert_eq!(c.sender.name, None);
            assert!(c.sender.words.starts_with("none of the known controllers"), "{:?}", c.sender);
        }
    }
}
