//! Which controller sent: what was seen of a connection, beside what each candidate does on the same path.
//!
//! The path is [estimated](path) from the connection, every candidate is [played](stage) on it in the simulator a few
//! times and seen from the same place, and the [habits](habits) of both are compared.

mod habits;
mod path;
mod stage;

use crate::analysis::Traced;
use crate::connection::Course;
use fullpipe_experiment::connection::{Handshake, Heading, Likelihood, Limitation, Place, Sender};
use fullpipe_sim::End;
use fullpipe_units::{Rate, Span};
use habits::{Form, HABITS, Habits, habits};
use path::{Guess, INITIAL_WINDOW};
use stage::{CANDIDATES, Candidate, play};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use stage::simulated;

/// How often each candidate is played: enough to see what varies from run to run,
const PLAYS: u64 = 3;
/// and where none is named by that, so often in all.
const MORE_PLAYS: u64 = 9;

/// Shorter than this in round trips, a connection shows no habit.
const ROUNDS: u64 = 40;
/// Fewer segments than this do not either.
const SEGMENTS: u64 = 400;
/// A controller shows only where neither the application nor the receiver limits for longer than this share.
const HELD_BACK: f64 = 0.4;

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
/// Up to 25 ms, which are measured as a little more, Hybla does what Reno does (Caini and Firrincieli 2004; `rtt0` of Linux's tcp_hybla.c).
const HYBLA_IS_RENO: Span = Span::from_millis(26);
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

/// One direction as far as it tells of its controller.
pub(crate) struct Seen<'a> {
    pub(crate) end: End,
    pub(crate) course: &'a Course,
    pub(crate) rtprop: Span,
    pub(crate) wire_rate: Rate,
    pub(crate) rate: Rate,
    pub(crate) mss: u32,
    pub(crate) active: Span,
    pub(crate) receive_window: Option<u64>,
    /// From its handshake on.
    pub(crate) whole: bool,
}

impl<'a> Seen<'a> {
    /// What `traced` shows of its data to `heading`, or why that is not enough.
    fn of(traced: &'a Traced, heading: Heading) -> Result<Self, String> {
        let d = traced.record.direction(heading);
        let end = match d.place {
            Place::Sender => End::Sender,
            Place::Receiver => End::Receiver,
            Place::Between | Place::Unknown => {
                return Err("it was not captured at one of its ends".to_owned());
            }
        };
        if end == End::Receiver && d.options.timestamps == Some(false) {
            return Err("without timestamps a receiver does not see what is in flight".to_owned());
        }
        if d.segments < SEGMENTS {
            return Err(format!("too few segments to show a habit: {}, of at least {SEGMENTS}", d.segments));
        }
        let course = traced.courses[usize::from(heading == Heading::ToClient)].as_ref();
        let (Some(course), Some(rtprop), Some(wire_rate), Some(rate), Some(mss)) =
            (course, d.rtprop, d.btlbw_on_the_wire, d.btlbw, d.segment_bytes)
        else {
            return Err("the path's RTprop or BtlBw is not known".to_owned());
        };
        if rtprop.is_zero() || rate.as_bytes_per_sec() == 0 {
            return Err("the path is too short to be simulated".to_owned());
        }
        let rounds = d.active.as_nanos() / rtprop.as_nanos().max(1);
        if rounds < ROUNDS {
            return Err(format!("too few round trips to show a habit: {rounds}, of at least {ROUNDS}"));
        }
        let held = [Limitation::Application, Limitation::ReceiveWindow, Limitation::SendBuffer]
            .map(|by| d.limits.share(by))
            .iter()
            .sum::<f64>();
        if held > HELD_BACK {
            return Err(format!(
                "the application, the receiver or a buffer held it back {:.0} % of the time",
                held * 100.0
            ));
        }
        Ok(Seen {
            end,
            course,
            rtprop,
            wire_rate,
            rate,
            mss,
            active: d.active,
            receive_window: course.full_window().filter(|_| d.limits.share(Limitation::ReceiveWindow) > 0.02),
            whole: traced.record.opening.handshake == Handshake::Seen,
        })
    }
}

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

/// Which controller sent the data of `traced` to `heading`.
pub fn identify(traced: &Traced, heading: Heading) -> Conclusion {
    let not_enough = |why: String| Conclusion {
        sender: Sender { words: format!("not enough seen: {why}"), ..Sender::default() },
        candidates: Vec::new(),
        compared: Vec::new(),
        distances: Vec::new(),
    };
    let seen = match Seen::of(traced, heading) {
        Ok(seen) => seen,
        Err(why) => return not_enough(why),
    };
    let guess = Guess::of(&seen);
    let of = |course: &Course| {
        habits(course, seen.rtprop, seen.rate, seen.mss, seen.end == End::Sender, seen.whole)
    };
    let found = of(seen.course);
    let mut played = plays(&guess, seen.end, 1..=PLAYS, &of);
    if played.iter().any(Vec::is_empty) {
        return not_enough("the path that was estimated from it cannot be simulated".to_owned());
    }
    let bdp = seen.rate.bytes_in(seen.rtprop) as f64 / f64::from(seen.mss);
    let opening = guess.began.then_some(Opening { segments: guess.initial_window, rtt: seen.rtprop });
    let length = Length {
        rounds: seen.active.as_secs_f64() / seen.rtprop.as_secs_f64(),
        seconds: seen.active.as_secs_f64(),
        bdp: bdp.max(1.0),
        hybla_is_reno: seen.rtprop <= HYBLA_IS_RENO,
    };
    let mut conclusion = conclude(&found, &played, &length, opening);
    if conclusion.sender.name.is_none() {
        let more = plays(&guess, seen.end, PLAYS + 1..=MORE_PLAYS, &of);
        played.iter_mut().zip(more).for_each(|(played, more)| played.extend(more));
        conclusion = conclude(&found, &played, &length, opening);
    }
    let named = conclusion.sender.name.as_deref();
    if length.hybla_is_reno && matches!(named, Some("reno" | "hybla")) {
        let same = match opening {
            None => "they cannot be told apart here".to_owned(),
            Some(opening) => {
                format!("they are told apart by a first window of {}", segments(opening.segments))
            }
        };
        let same = format!("hybla does the same as reno on round trips up to 25 ms: {same}");
        conclusion.sender.evidence.push(same);
    } else if let (Some("hybla"), Some(opening)) = (named, opening) {
        let (begun, own) = (segments(opening.segments), opening.of_hybla());
        conclusion.sender.evidence.push(format!(
            "it began with {begun}; hybla begins with one for each 25 ms of its round trip ({own} here), others with {INITIAL_WINDOW} unless told otherwise"
        ));
    }
    conclusion.sender.evidence.push(guess.words());
    conclusion
}

/// The habits of each candidate in each play of these `seeds`, on as many threads as there are processors.
fn plays(
    guess: &Guess,
    end: End,
    seeds: RangeInclusive<u64>,
    of: &(impl Fn(&Course) -> Habits + Sync),
) -> Vec<Vec<Habits>> {
    let next = AtomicUsize::new(0);
    let all: Vec<(&Candidate, u64)> =
        CANDIDATES.iter().flat_map(|c| seeds.clone().map(move |seed| (c, seed))).collect();
    let work = || {
        let mut done = Vec::new();
        while let Some(&(candidate, seed)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let played = play(candidate, guess, end, seed).ok().flatten();
            if let Some(course) = played.as_ref().and_then(|t| t.courses[0].as_ref()) {
                done.push((candidate, seed, of(course)));
            }
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all.len());
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().unwrap_or_default());
        }
        done
    });
    done.sort_by_key(|(_, seed, _)| *seed);
    let of_one = |c: &Candidate| {
        done.iter().filter(|(d, ..)| std::ptr::eq(*d, c)).map(|(.., habits)| *habits).collect()
    };
    CANDIDATES.iter().map(of_one).collect()
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

fn segments(n: u32) -> String {
    format!("{n} segment{}", if n == 1 { "" } else { "s" })
}

/// The first window of a connection, and its path's round-trip time.
#[derive(Clone, Copy)]
struct Opening {
    segments: u32,
    rtt: Span,
}

impl Opening {
    /// What Linux's Hybla begins with, whatever the route says.
    fn of_hybla(self) -> u32 {
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
struct Length {
    /// In round trips.
    rounds: f64,
    seconds: f64,
    /// The path's, in segments.
    bdp: f64,
    hybla_is_reno: bool,
}

fn conclude(found: &Habits, played: &[Vec<Habits>], length: &Length, opening: Option<Opening>) -> Conclusion {
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
    let mut distances: Vec<f64> = squares.iter().map(|s| (s.iter().sum::<f64>() / shown).sqrt()).collect();
    // What does the same differs by how it was played only.
    if length.hybla_is_reno {
        let both = |c: &usize| matches!(CANDIDATES[*c].name, "reno" | "hybla");
        let least = (0..distances.len()).filter(both).map(|c| distances[c]).fold(f64::MAX, f64::min);
        (0..distances.len()).filter(both).for_each(|c| distances[c] = least);
    }
    // What nobody here does counts as a candidate that is this far away.
    let weigh = |distance: f64| (-0.5 * distance * distance * shown * INDEPENDENT).exp();
    let mut likelihoods: Vec<(usize, f64)> = Vec::new();
    let told_apart = |c: &Candidate| opening.is_some() || !(length.hybla_is_reno && c.name == "hybla");
    for (c, candidate) in CANDIDATES.iter().enumerate().filter(|(_, c)| told_apart(c)) {
        let weight = weigh(distances[c]) * opening.map_or(1.0, |o| o.of(candidate.name));
        match likelihoods.iter_mut().find(|(other, _)| CANDIDATES[*other].name == candidate.name) {
            Some(other) if other.1 < weight => *other = (c, weight),
            Some(_) => {}
            None => likelihoods.push((c, weight)),
        }
    }
    let strange = weigh(STRANGE) * opening.map_or(1.0, |o| o.of("none of these"));
    let total = likelihoods.iter().map(|(_, w)| w).sum::<f64>() + strange;
    for (_, weight) in &mut likelihoods {
        *weight /= total;
    }
    likelihoods.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (best, second) = (likelihoods[0], likelihoods[1]);
    let name = |c: usize| CANDIDATES[c].name;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let none = strange / total;
    let (named, words) = if distances[best.0] > STRANGE {
        (None, format!("none of those known here; nearest is {}", name(best.0)))
    } else if best.1 >= SURE {
        (Some(name(best.0).to_owned()), format!("{} ({})", name(best.0), percent(best.1)))
    } else if none > 0.5 {
        (None, format!("none of those known here; nearest is {}", name(best.0)))
    } else if best.1 + second.1 >= SURE && best.1 < SURE {
        let (a, b) = ((name(best.0), percent(best.1)), (name(second.0), percent(second.1)));
        (None, format!("{} ({}) or {} ({}): not told apart here", a.0, a.1, b.0, b.1))
    } else {
        (None, format!("unknown; nearest is {} ({})", name(best.0), percent(best.1)))
    };
    // What spoke most for the best against the second.
    let mut order: Vec<usize> = (0..HABITS.len()).collect();
    // Of two that say as much, the one that a reader can see in the plots.
    let speaks = |i: usize| {
        let says = squares[second.0][i] - squares[best.0][i];
        if HABITS[i].form == Form::Plain { says / 2.0 } else { says }
    };
    order.sort_by(|a, b| speaks(*b).total_cmp(&speaks(*a)));
    let evidence = order.iter().take(3).filter(|i| speaks(**i) > 1.0).map(|&i| {
        let form = HABITS[i].form;
        let k = &compared[i];
        format!(
            "{}: {} seen, {} from {}, {} from {}",
            k.habit,
            form.show(k.seen),
            form.show(k.candidates[best.0].0),
            name(best.0),
            form.show(k.candidates[second.0].0),
            name(second.0)
        )
    });
    let sender = Sender {
        name: named,
        words,
        evidence: evidence.collect(),
        likelihoods: likelihoods
            .iter()
            .map(|(c, share)| Likelihood { name: name(*c).to_owned(), share: *share })
            .chain([Likelihood { name: "none of these".to_owned(), share: none }])
            .collect(),
    };
    Conclusion { sender, candidates: CANDIDATES.iter().map(|c| c.name).collect(), compared, distances }
}

#[cfg(test)]
mod tests {
    use super::*;

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
