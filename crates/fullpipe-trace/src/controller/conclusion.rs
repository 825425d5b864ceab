//! What is concluded from habits, beside those of each candidate.

use super::habits::{Form, HABITS, Habits};
use super::path::INITIAL_WINDOW;
use super::stage::{CANDIDATES, Candidate};
use fullpipe_experiment::connection::{Likelihood, Sender};
use fullpipe_units::Span;

/// A difference of a habit counts for no more than this many errors: one that went wrong must not outweigh all others.
const MOST: f64 = 3.0;
/// For a habit that only one of two shows.
const UNSHARED: f64 = 2.0;
/// Habits are related to each other: their evidence counts for less than that of as many independent ones.
const INDEPENDENT: f64 = 0.25;
/// Round trips in which the errors of habits double, squared.
const SHORT: f64 = 60.0;
/// Segments of a bandwidth-delay product in which they do, too: a window of few segments moves in steps.
const STEPS: f64 = 10.0;
/// The round-trip time of which Hybla's first window is so many (`rtt0` and `hybla_init()` of Linux's tcp_hybla.c).
const HYBLA_ROUND: Span = Span::from_millis(25);
/// How often a first window is just this one, if it is not what the controller or RFC 6928 says: some other route's, or miscounted.
const RARE: f64 = 0.05;
/// Dips that come every so many seconds are one more or less in a connection, however alike two are.
const DIPS: [usize; 2] = [25, 26];
/// A candidate whose habits differ by more than this, root mean square in errors, is none.
const STRANGE: f64 = 1.5;
/// The least probability with which a controller is named.
const SURE: f64 = 0.8;

/// A habit as seen and as each candidate has it.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Which.
    pub habit: &'static str,
    /// As seen; NaN where it was not.
    pub seen: f64,
    /// How far a capture is from a simulation of its own controller.
    pub error: f64,
    /// Its mean and standard deviation over the plays of each candidate, in their order.
    pub candidates: Vec<(f64, f64)>,
}

/// What was concluded, and what from.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// For the record.
    pub sender: Sender,
    /// Names of the candidates.
    pub candidates: Vec<&'static str>,
    /// Habits.
    pub compared: Vec<Compared>,
    /// How far each candidate is, root mean square in errors.
    pub distances: Vec<f64>,
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

/// How far a habit is from a candidate's, squared, in errors.
fn apart(seen: f64, (mean, deviation): (f64, f64), error: f64) -> f64 {
    match (seen.is_nan(), mean.is_nan()) {
        (true, true) => 0.0,
        (false, false) => {
            let z = (seen - mean) / error.hypot(deviation);
            (z * z).min(MOST * MOST)
        }
        _ => UNSHARED * UNSHARED,
    }
}

/// The first window of a connection, and its path's round-trip time.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub(super) segments: u32,
    pub(super) rtt: Span,
}

impl Opening {
    /// What Linux's Hybla begins with, whatever the route says.
    pub(super) fn of_hybla(self) -> u32 {
        (self.rtt.as_nanos() / HYBLA_ROUND.as_nanos()).clamp(1, 200) as u32
    }

    /// How likely it is of `candidate`.
    fn of(self, candidate: &str) -> f64 {
        let usual = if candidate == "hybla" {
            // By the first measured round trip, which is longer than the shortest.
            (self.of_hybla()..=self.of_hybla() + 1).contains(&self.segments)
        } else {
            self.segments == INITIAL_WINDOW
        };
        if usual { 1.0 } else { RARE }
    }
}

/// How much of a connection there was to see.
pub(super) struct Length {
    /// In round trips.
    pub(super) rounds: f64,
    pub(super) seconds: f64,
    /// The path's, in segments.
    pub(super) bdp: f64,
    pub(super) hybla_is_reno: bool,
}

/// How far what was seen is from what each candidate does.
struct Distances {
    compared: Vec<Compared>,
    /// Of each candidate each habit, squared, in errors.
    squares: Vec<Vec<f64>>,
    /// How many habits were seen.
    shown: f64,
    /// Of each candidate all habits, root mean square.
    all: Vec<f64>,
}

impl Distances {
    fn of(found: &Habits, played: &[Vec<Habits>], length: &Length) -> Self {
        // A short connection shows its habits less exactly, and so does one of few segments a round trip.
        let blur = (1.0 + SHORT / length.rounds + STEPS / length.bdp).sqrt();
        let one_more = 0.5 * (1.0 + 10.0 / length.seconds).log2();
        let compared: Vec<Compared> = HABITS
            .iter()
            .enumerate()
            .map(|(i, habit)| Compared {
                habit: habit.name,
                seen: found[i],
                error: if DIPS.contains(&i) { habit.error.hypot(one_more) } else { habit.error } * blur,
                candidates: played.iter().map(|p| mean_and_deviation(p.iter().map(|h| h[i]))).collect(),
            })
            .collect();
        let squares: Vec<Vec<f64>> = (0..played.len())
            .map(|c| {
                let each = compared.iter();
                each.map(|k| apart(k.seen, k.candidates[c], k.error)).collect()
            })
            .collect();
        let shown = compared.iter().filter(|k| !k.seen.is_nan()).count().max(1) as f64;
        let mut all: Vec<f64> = squares.iter().map(|s| (s.iter().sum::<f64>() / shown).sqrt()).collect();
        // What does the same differs by how it was played only.
        if length.hybla_is_reno {
            let both = |c: &usize| matches!(CANDIDATES[*c].name, "reno" | "hybla");
            let least = (0..all.len()).filter(both).map(|c| all[c]).fold(f64::MAX, f64::min);
            (0..all.len()).filter(both).for_each(|c| all[c] = least);
        }
        Distances { compared, squares, shown, all }
    }

    /// What spoke most for the candidate `best` against the `second`.
    fn evidence(&self, best: usize, second: usize) -> Vec<String> {
        let mut order: Vec<usize> = (0..HABITS.len()).collect();
        // Of two that say as much, the one that a reader can see in the plots.
        let speaks = |i: usize| {
            let says = self.squares[second][i] - self.squares[best][i];
            if HABITS[i].form == Form::Plain { says / 2.0 } else { says }
        };
        order.sort_by(|a, b| speaks(*b).total_cmp(&speaks(*a)));
        let most = order.iter().take(3).filter(|i| speaks(**i) > 1.0).map(|&i| {
            let form = HABITS[i].form;
            let k = &self.compared[i];
            format!(
                "{}: {} seen, {} from {}, {} from {}",
                k.habit,
                form.show(k.seen),
                form.show(k.candidates[best].0),
                name(best),
                form.show(k.candidates[second].0),
                name(second)
            )
        });
        most.collect()
    }
}

fn name(candidate: usize) -> &'static str {
    CANDIDATES[candidate].name
}

/// Shares of one.
struct Likelihoods {
    /// The likeliest candidate of each controller's name; the likeliest first.
    each: Vec<(usize, f64)>,
    /// That it was none of these.
    none: f64,
}

impl Likelihoods {
    fn of(distances: &Distances, hybla_is_reno: bool, opening: Option<Opening>) -> Self {
        // What nobody here does counts as a candidate that is `STRANGE` away.
        let weigh = |distance: f64| (-0.5 * distance * distance * distances.shown * INDEPENDENT).exp();
        let mut each: Vec<(usize, f64)> = Vec::new();
        let told_apart = |c: &Candidate| opening.is_some() || !(hybla_is_reno && c.name == "hybla");
        for (c, candidate) in CANDIDATES.iter().enumerate().filter(|(_, c)| told_apart(c)) {
            let weight = weigh(distances.all[c]) * opening.map_or(1.0, |o| o.of(candidate.name));
            match each.iter_mut().find(|(other, _)| name(*other) == candidate.name) {
                Some(other) if other.1 < weight => *other = (c, weight),
                Some(_) => {}
                None => each.push((c, weight)),
            }
        }
        let strange = weigh(STRANGE) * opening.map_or(1.0, |o| o.of("none of these"));
        let total = each.iter().map(|(_, w)| w).sum::<f64>() + strange;
        for (_, weight) in &mut each {
            *weight /= total;
        }
        each.sort_by(|a, b| b.1.total_cmp(&a.1));
        Likelihoods { each, none: strange / total }
    }

    /// The controller, if one is sure enough, and what to say; the likeliest is so far away.
    fn named(&self, distance: f64) -> (Option<String>, String) {
        let (best, second) = (self.each[0], self.each[1]);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        if distance > STRANGE {
            (None, format!("none of those known here; nearest is {}", name(best.0)))
        } else if best.1 >= SURE {
            (Some(name(best.0).to_owned()), format!("{} ({})", name(best.0), percent(best.1)))
        } else if self.none > 0.5 {
            (None, format!("none of those known here; nearest is {}", name(best.0)))
        } else if best.1 + second.1 >= SURE && best.1 < SURE {
            let (a, b) = ((name(best.0), percent(best.1)), (name(second.0), percent(second.1)));
            (None, format!("{} ({}) or {} ({}): not told apart here", a.0, a.1, b.0, b.1))
        } else {
            (None, format!("unknown; nearest is {} ({})", name(best.0), percent(best.1)))
        }
    }
}

/// What the habits that were `found` say, beside those of each candidate in each play.
pub(super) fn conclude(
    found: &Habits,
    played: &[Vec<Habits>],
    length: &Length,
    opening: Option<Opening>,
) -> Conclusion {
    let distances = Distances::of(found, played, length);
    let likelihoods = Likelihoods::of(&distances, length.hybla_is_reno, opening);
    let (best, second) = (likelihoods.each[0].0, likelihoods.each[1].0);
    let (named, words) = likelihoods.named(distances.all[best]);
    let sender = Sender {
        name: named,
        words,
        evidence: distances.evidence(best, second),
        likelihoods: likelihoods
            .each
            .iter()
            .map(|(c, share)| Likelihood { name: name(*c).to_owned(), share: *share })
            .chain([Likelihood { name: "none of these".to_owned(), share: likelihoods.none }])
            .collect(),
    };
    Conclusion {
        sender,
        candidates: CANDIDATES.iter().map(|c| c.name).collect(),
        compared: distances.compared,
        distances: distances.all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::PLAYS;

    /// What is concluded where candidate `c` shows `c + 1` errors, and those of `alike` the same as the first of them.
    fn conclusion(seen: f64, alike: &[usize]) -> Conclusion {
        begun(seen, alike, None, false)
    }

    /// The same of a connection that began with `opening`.
    fn begun(seen: f64, alike: &[usize], opening: Option<Opening>, hybla_is_reno: bool) -> Conclusion {
        let of = |c: usize| if alike.contains(&c) { alike[0] } else { c } as f64 * 4.0;
        let played: Vec<Vec<Habits>> = (0..CANDIDATES.len())
            .map(|c| vec![std::array::from_fn(|i| of(c) * HABITS[i].error); PLAYS as usize])
            .collect();
        let length = Length { rounds: 1e6, seconds: 1e6, bdp: 1e6, hybla_is_reno };
        conclude(&std::array::from_fn(|i| seen * HABITS[i].error), &played, &length, opening)
    }

    fn opening(segments: u32, ms: u64) -> Opening {
        Opening { segments, rtt: Span::from_millis(ms) }
    }

    #[test]
    fn the_one_that_does_the_same_is_named() {
        let c = conclusion(4.0, &[]);
        assert_eq!(c.sender.name.as_deref(), Some("bbr3"), "{:?}", c.sender);
        assert!(c.sender.likelihoods[0].share > 0.95);
    }

    #[test]
    fn what_two_would_have_done_alike_is_given_to_neither() {
        let c = conclusion(16.0, &[4, 5]);
        assert_eq!(c.sender.name, None, "{:?}", c.sender);
        assert_eq!(c.sender.words, "reno (50 %) or hybla (50 %): not told apart here");
    }

    #[test]
    fn a_first_window_is_hyblas_or_what_the_standard_says() {
        // `hybla_init()`: as many as 25 ms go into the round trip, one at least.
        for (ms, own) in [(8, 1), (25, 1), (49, 1), (50, 2), (110, 4), (600, 24)] {
            let o = opening(own, ms);
            assert_eq!(o.of_hybla(), own, "{ms} ms");
            assert_eq!((o.of("hybla"), o.of("reno"), o.of("none of these")), (1.0, RARE, RARE), "{ms} ms");
            // A round trip that was measured a little longer.
            assert_eq!(opening(own + 1, ms).of("hybla"), 1.0);
        }
        let usual = opening(INITIAL_WINDOW, 110);
        assert_eq!((usual.of("hybla"), usual.of("reno")), (RARE, 1.0));
        // A route of its own says nothing.
        let route = opening(32, 110);
        assert_eq!((route.of("hybla"), route.of("reno")), (RARE, RARE));
    }

    #[test]
    fn what_two_would_have_done_alike_is_told_apart_by_the_first_window() {
        for (segments, name) in [(INITIAL_WINDOW, "reno"), (4, "hybla")] {
            let c = begun(16.0, &[4, 5], Some(opening(segments, 110)), false);
            assert_eq!(c.sender.name.as_deref(), Some(name), "{:?}", c.sender);
        }
        let c = begun(16.0, &[4, 5], Some(opening(32, 110)), false);
        assert_eq!(c.sender.words, "reno (50 %) or hybla (50 %): not told apart here");
        // It does not outweigh habits.
        let c = begun(16.0, &[], Some(opening(4, 110)), false);
        assert_eq!(c.sender.name.as_deref(), Some("reno"), "{:?}", c.sender);
    }

    #[test]
    fn hybla_that_is_reno_is_told_by_its_first_window_only() {
        // Here the plays of both differ, by chance, as much as those of others do.
        for (segments, name) in [(INITIAL_WINDOW, "reno"), (1, "hybla")] {
            for seen in [16.0, 20.0] {
                let c = begun(seen, &[], Some(opening(segments, 12)), true);
                assert_eq!(c.sender.name.as_deref(), Some(name), "{:?}", c.sender);
            }
        }
        let c = begun(20.0, &[], None, true);
        assert_eq!(c.sender.name.as_deref(), Some("reno"), "{:?}", c.sender);
        assert!(c.sender.likelihoods.iter().all(|l| l.name != "hybla"), "{:?}", c.sender);
    }

    #[test]
    fn what_none_would_have_done_is_none_of_them() {
        for opening in [None, Some(opening(4, 110)), Some(opening(32, 110))] {
            let c = begun(40.0, &[], opening, false);
            assert_eq!(c.sender.name, None);
            assert!(c.sender.words.starts_with("none of those known here"), "{:?}", c.sender);
        }
    }
}
