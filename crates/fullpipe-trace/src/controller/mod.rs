//! Which controller sent: what was seen of a connection, beside what each candidate does on the same path.
//!
//! The path is [estimated](path) from the connection, every candidate is [played](stage) on it in the simulator a few
//! times and seen from the same place, and the [habits](habits) of both are compared: what is [concluded](conclusion).

mod conclusion;
mod habits;
mod path;
mod stage;

use crate::analysis::Traced;
use crate::connection::Course;
use conclusion::{Length, Opening, conclude};
use fullpipe_experiment::connection::{Handshake, Heading, Limitation, Place, Sender};
use fullpipe_sim::End;
use fullpipe_units::{Rate, Span};
use habits::{Habits, habits};
use path::{Guess, INITIAL_WINDOW};
use stage::{CANDIDATES, Candidate, play};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use conclusion::{Compared, Conclusion};
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

/// Up to 25 ms, which are measured as a little more, Hybla does what Reno does (Caini and Firrincieli 2004; `rtt0` of Linux's tcp_hybla.c).
const HYBLA_IS_RENO: Span = Span::from_millis(26);
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

fn segments(n: u32) -> String {
    format!("{n} segment{}", if n == 1 { "" } else { "s" })
}
