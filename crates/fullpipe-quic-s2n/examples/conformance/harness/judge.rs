//! The cases of the BBR draft, and those by outcome, over s2n-quic.

use super::S2n;
use fullpipe_conformance::{Case, CaseResult, Trial};
use fullpipe_experiment::recording::Recording;
use fullpipe_experiment::scenario::{self, App, Scenario};
use fullpipe_sim::Simulation;
use fullpipe_units::{Bytes, Rate};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a write that fits a packet of 1500 bytes with headers, tag and an ACK frame.
const WRITE_BYTES: u64 = 1400;

/// The writes of the cases that fill a packet without an ACK frame, in TCP and in other stacks.
const PACKET_FILLING: std::ops::RangeInclusive<u64> = WRITE_BYTES + 1..=1448;

/// Judges each of `cases` on all its paths.
///
/// # Errors
/// An invalid scenario.
pub fn judge(
    cc: &str,
    settings: &[(&str, &str)],
    cases: &[&'static Case],
) -> Result<Vec<CaseResult>, String> {
    let mut results = Vec::new();
    for case in cases {
        let trial = Trial::new(case, cc, settings)?;
        let runs: Vec<&scenario::Case> = trial.runs().collect();
        let recordings = in_parallel(&runs);
        results.extend(trial.judge(recordings));
    }
    Ok(results)
}

/// Records the runs, on all cores. `Err` is why a run has no recording.
fn in_parallel(runs: &[&scenario::Case]) -> Vec<Result<Recording, String>> {
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<Recording, String>>>> =
        runs.iter().map(|_| Mutex::default()).collect();
    let work = || {
        while let Some((slot, run)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            slots.get(index).zip(runs.get(index))
        } {
            *slot.lock().expect("no run panics while it is stored") = Some(record(&run.scenario));
        }
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get).min(runs.len());
        (0..cores).for_each(|_| {
            scope.spawn(work);
        });
    });
    let recorded = |slot: Mutex<Option<_>>| slot.into_inner().ok().flatten();
    slots.into_iter().map(|slot| recorded(slot).unwrap_or_else(|| Err("the run panicked".into()))).collect()
}

/// Runs `scenario` over s2n-quic.
///
/// # Errors
/// What is not supported, or why the connection failed.
pub fn record(scenario: &Scenario) -> Result<Recording, String> {
    let scenario = shorten_writes(scenario.clone());
    Simulation::new(&scenario, scenario.seed).transports(&S2n).run().map_err(|error| error.to_string())
}

/// Shortens writes that are to fill a packet, as many of them per second. s2n-quic's receiver elicits
/// an ACK with every fourth of its own (`RECOMMENDED_ELICITATION_INTERVAL`), so that most packets of
/// data carry an ACK frame, too: a write that leaves no room for it becomes a full packet and a tiny
/// one.
fn shorten_writes(mut scenario: Scenario) -> Scenario {
    let shorten = |app: &mut App| {
        if let App::Rate { rate, chunk } = app
            && PACKET_FILLING.contains(&chunk.0)
        {
            let bits = u128::from(rate.as_bits_per_sec()) * u128::from(WRITE_BYTES) / u128::from(chunk.0);
            *rate = Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX));
            *chunk = Bytes(WRITE_BYTES);
        }
    };
    scenario.flows.iter_mut().for_each(|flow| shorten(&mut flow.app));
    scenario.triggers.iter_mut().for_each(|trigger| trigger.then.app.iter_mut().for_each(shorten));
    scenario
}
