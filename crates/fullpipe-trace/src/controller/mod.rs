//! Identifies the congestion controller of a sender by comparing the connection with simulations of
//! each candidate.
//!
//! The [path](path) is estimated from the connection. What it did beyond a constant rate with a
//! drop-tail queue are its [conditions]. Every [candidate](candidates) is simulated on it several
//! times, as it was seen, and captured at the same end. The [features](features) of both are
//! compared, which gives the [identification](identification).

mod candidates;
mod conditions;
mod features;
mod identification;
mod path;

use crate::analysis::TracedConnection;
use crate::connection::Trajectory;
use crate::quantity::count;
use candidates::{CANDIDATES, simulate};
use conditions::Limits;
use features::{Features, SAME_TIMES, difference, features};
use fullpipe_experiment::connection::{Handshake, Heading, Limitation, Place, Sender};
use fullpipe_sim::End;
use fullpipe_units::{Rate, Span};
use identification::{Length, Opening, compare, nearest};
use path::{INITIAL_WINDOW, PathEstimate};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use candidates::simulate_capture;
pub use identification::{FeatureComparison, Identification};

/// Simulations of each candidate: enough to see the variation between runs.
const RUNS: u64 = 3;
/// Simulations of each candidate on each path as it was seen.
const RUNS_AS_SEEN: u64 = 2;
/// Simulations in total if the first ones do not decide.
const MAX_RUNS: u64 = 9;

/// Round trips that a connection needs.
const MIN_ROUNDS: u64 = 40;
/// Segments that a connection needs.
const MIN_SEGMENTS: u64 = 400;
/// Maximum share of the time in which application, receiver or send buffer limit the connection.
const MAX_OTHER_LIMITS: f64 = 0.4;

/// Up to an RTT of 25 ms (measured as slightly more) Hybla behaves like Reno (Caini and Firrincieli
/// 2004; `rtt0` in Linux's tcp_hybla.c).
const HYBLA_IS_RENO_RTT: Span = Span::from_millis(26);

/// The properties of one direction that depend on its controller.
pub(crate) struct Observation<'a> {
    pub(crate) end: End,
    pub(crate) trajectory: &'a Trajectory,
    pub(crate) rtprop: Span,
    pub(crate) wire_rate: Rate,
    pub(crate) rate: Rate,
    pub(crate) mss: u32,
    pub(crate) active: Span,
    pub(crate) receive_window: Option<u64>,
    /// Whether the handshake was captured.
    pub(crate) from_start: bool,
    /// Marked packets, and ACKs that echo marks.
    pub(crate) marks: (u64, u64),
}

impl<'a> Observation<'a> {
    /// The observation of one direction of `traced`, or the reason why the data is not sufficient.
    fn new(traced: &'a TracedConnection, heading: Heading) -> Result<Self, String> {
        let d = traced.record.direction(heading);
        let end = match d.place {
            Place::Sender => End::Sender,
            Place::Receiver => End::Receiver,
            Place::Between | Place::Unknown => {
                return Err("not captured at the sender or the receiver".to_owned());
            }
        };
        if end == End::Receiver && d.options.timestamps == Some(false) {
            return Err("without timestamps, data in flight is not visible at the receiver".to_owned());
        }
        if d.segments < MIN_SEGMENTS {
            return Err(format!("{} captured, at least {MIN_SEGMENTS} needed", count(d.segments, "segment")));
        }
        let trajectory = traced.trajectories[usize::from(heading == Heading::ToClient)].as_ref();
        let (Some(trajectory), Some(rtprop), Some(wire_rate), Some(rate), Some(mss)) =
            (trajectory, d.rtprop, d.btlbw_on_the_wire, d.btlbw, d.segment_bytes)
        else {
            return Err("RTprop or BtlBw of the path is unknown".to_owned());
        };
        if rtprop.is_zero() || rate.as_bytes_per_sec() == 0 {
            return Err("the RTT is too short to simulate".to_owned());
        }
        let rounds = d.active.as_nanos() / rtprop.as_nanos().max(1);
        if rounds < MIN_ROUNDS {
            return Err(format!("{} captured, at least {MIN_ROUNDS} needed", count(rounds, "round trip")));
        }
        let other_limits = [Limitation::Application, Limitation::ReceiveWindow, Limitation::SendBuffer]
            .map(|by| d.limits.share(by))
            .iter()
            .sum::<f64>();
        if other_limits > MAX_OTHER_LIMITS {
            return Err(format!(
                "application, receiver or send buffer limited the connection for {:.0} % of the time",
                other_limits * 100.0
            ));
        }
        Ok(Observation {
            end,
            trajectory,
            rtprop,
            wire_rate,
            rate,
            mss,
            active: d.active,
            receive_window: trajectory
                .full_window()
                .filter(|_| d.limits.share(Limitation::ReceiveWindow) > 0.02),
            marks: (d.ecn.marked_packets, d.ecn.echoes),
            from_start: traced.record.opening.handshake == Handshake::Seen,
        })
    }
}

/// Identifies the controller that sent the data of `traced` in the direction `heading`.
pub fn identify(traced: &TracedConnection, heading: Heading) -> Identification {
    let insufficient = |reason: String| Identification {
        sender: Sender { words: format!("insufficient data: {reason}"), ..Sender::default() },
        candidates: Vec::new(),
        compared: Vec::new(),
        distances: Vec::new(),
        conditions: Vec::new(),
    };
    let observed = match Observation::new(traced, heading) {
        Ok(observed) => observed,
        Err(reason) => return insufficient(reason),
    };
    let conditions = conditions::measure(&observed);
    let path = PathEstimate::new(&observed);
    let paths = path.variants(&conditions);
    let (rtprop, at_sender) = (observed.rtprop, observed.end == End::Sender);
    let measure = |trajectory: &Trajectory| {
        let mut features =
            features(trajectory, rtprop, observed.rate, observed.mss, at_sender, observed.from_start);
        if !conditions.is_plain() {
            // The path of the simulation does the same at the same times.
            features[SAME_TIMES] = difference(trajectory, observed.trajectory, rtprop, at_sender);
        }
        features
    };
    let measured = measure(observed.trajectory);
    let bdp = observed.rate.bytes_in(observed.rtprop) as f64 / f64::from(observed.mss);
    let opening =
        path.initial_window_seen.then_some(Opening { segments: path.initial_window, rtt: observed.rtprop });
    let length = Length {
        rounds: observed.active.as_secs_f64() / observed.rtprop.as_secs_f64(),
        seconds: observed.active.as_secs_f64(),
        bdp: bdp.max(1.0),
        hybla_is_reno: observed.rtprop <= HYBLA_IS_RENO_RTT,
    };
    let trials = Trials {
        paths: &paths,
        end: observed.end,
        measure,
        measured,
        length: &length,
        opening,
        limits: conditions.limits(),
    };
    // Where the losses are given, runs differ little.
    let runs = if conditions.is_plain() { RUNS } else { RUNS_AS_SEEN };
    let Some(mut simulated) = trials.of_all(runs) else {
        return insufficient("the estimated path cannot be simulated".to_owned());
    };
    let mut identification = trials.compare(&simulated);
    if identification.sender.name.is_none() && conditions.is_plain() {
        let more = trials.simulate(&identification.near(), &path, RUNS + 1..=MAX_RUNS);
        extend(&mut simulated, more);
        identification = trials.compare(&simulated);
    }
    let named = identification.sender.name.as_deref();
    if length.hybla_is_reno && matches!(named, Some("reno" | "hybla")) {
        let difference = match opening {
            None => "they cannot be distinguished here".to_owned(),
            Some(opening) => {
                format!("distinguished by the initial window of {}", segments(opening.segments))
            }
        };
        let evidence = format!("hybla behaves like reno on RTTs up to 25 ms: {difference}");
        identification.sender.evidence.push(evidence);
    } else if let (Some("hybla"), Some(opening)) = (named, opening) {
        let (begun, own) = (segments(opening.segments), opening.hybla_window());
        identification.sender.evidence.push(format!(
            "initial window of {begun}; that of hybla is one segment per 25 ms of RTT ({own} here), that of \
             others {INITIAL_WINDOW} by default"
        ));
    }
    identification.sender.evidence.push(path.description());
    identification.conditions = conditions.raw.clone();
    identification.sender.conditions =
        conditions.evidence().into_iter().map(|(what, how)| format!("{what}: {how}")).collect();
    identification
}

/// Adds further simulations of each candidate.
fn extend(simulated: &mut [Vec<Features>], more: Vec<Vec<Features>>) {
    simulated.iter_mut().zip(more).for_each(|(runs, more)| runs.extend(more));
}

/// Simulations of candidates, to be compared with a connection. A candidate without simulations is
/// not compared.
struct Trials<'a, M> {
    paths: &'a [PathEstimate],
    end: End,
    /// The features of a trajectory.
    measure: M,
    /// The features of the connection.
    measured: Features,
    length: &'a Length,
    opening: Option<Opening>,
    limits: Limits,
}

impl<M: Fn(&Trajectory) -> Features + Sync> Trials<'_, M> {
    fn compare(&self, simulated: &[Vec<Features>]) -> Identification {
        compare(&self.measured, simulated, self.length, self.opening, &self.limits)
    }

    /// The features of each candidate on the path on which it is nearest, in `runs` simulations. Those
    /// that are [rare](Candidate::is_rare) have none if the first is far from the connection.
    fn of_all(&self, runs: u64) -> Option<Vec<Vec<Features>>> {
        let marks = self.paths.iter().any(|path| path.marks);
        let is_compared = |c: &usize| marks || !CANDIDATES[*c].needs_marks();
        let (rare, usual): (Vec<usize>, Vec<usize>) =
            (0..CANDIDATES.len()).filter(is_compared).partition(|c| CANDIDATES[*c].is_rare());
        let mut each = self.on_each_path(&usual, 1..=runs);
        each.retain(|simulated| usual.iter().all(|c| !simulated[*c].is_empty()));
        let of_usual = nearest(&self.measured, &each, self.length)?;
        let with = |each: &[Vec<Vec<Features>>]| {
            let mut all = of_usual.clone();
            let of_rare = nearest(&self.measured, each, self.length).unwrap_or_default();
            extend(&mut all, of_rare);
            all
        };
        let mut each = self.on_each_path(&rare, 1..=1);
        let near = self.compare(&with(&each)).near();
        let (near, far): (Vec<usize>, Vec<usize>) = rare.iter().partition(|c| near.contains(c));
        let more = self.on_each_path(&near, 2..=runs);
        for (simulated, more) in each.iter_mut().zip(more) {
            far.iter().for_each(|c| simulated[*c].clear());
            extend(simulated, more);
        }
        Some(with(&each))
    }

    fn on_each_path(&self, which: &[usize], seeds: RangeInclusive<u64>) -> Vec<Vec<Vec<Features>>> {
        self.paths.iter().map(|path| self.simulate(which, path, seeds.clone())).collect()
    }

    /// The features of each candidate, of those in `which`, in a simulation for each of `seeds`,
    /// computed on all processors.
    fn simulate(
        &self,
        which: &[usize],
        path: &PathEstimate,
        seeds: RangeInclusive<u64>,
    ) -> Vec<Vec<Features>> {
        let next = AtomicUsize::new(0);
        let all: Vec<(usize, u64)> =
            which.iter().flat_map(|c| seeds.clone().map(move |seed| (*c, seed))).collect();
        let work = || {
            let mut done = Vec::new();
            while let Some(&(candidate, seed)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                let traced = simulate(&CANDIDATES[candidate], path, self.end, seed).ok().flatten();
                if let Some(trajectory) = traced.as_ref().and_then(|t| t.trajectories[0].as_ref()) {
                    done.push((candidate, seed, (self.measure)(trajectory)));
                }
            }
            done
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all.len());
        let mut done = std::thread::scope(|scope| {
            // Where no more threads are allowed, those that there are do the work.
            let other = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..threads).filter_map(other).collect();
            let mut done = work();
            for other in others {
                done.extend(other.join().unwrap_or_default());
            }
            done
        });
        done.sort_by_key(|(_, seed, _)| *seed);
        let runs_of =
            |c: usize| done.iter().filter(|(done, ..)| *done == c).map(|(.., features)| *features).collect();
        (0..CANDIDATES.len()).map(runs_of).collect()
    }
}

fn segments(n: u32) -> String {
    format!("{n} segment{}", if n == 1 { "" } else { "s" })
}
