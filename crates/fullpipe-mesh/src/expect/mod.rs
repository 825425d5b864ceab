//! What a path should carry, simulated from its measurements, and why it carries something else.
//!
//! The minimum RTT, the best rate, the queue that loss-based controllers build and the loss of
//! probes define a path; the simulator moves the same bytes over it with each controller. Where the
//! measured ratio differs, other paths are simulated in the same way, and the one whose goodputs,
//! retransmissions and RTTs are nearest is the diagnosis: measurements are compared with simulated
//! behaviour, not with rules.

mod cause;
mod estimate;

pub use cause::{Cause, Diagnosis, diagnose};
pub use estimate::{ControllerStats, ESTIMATION_RECORDS, PathEstimate, estimate_path};

use crate::simulate::{Simulate, State};
use fullpipe_net::compare::{Estimate, median_interval};
use fullpipe_units::Rate;
use serde::Serialize;

/// Transfers simulated per controller.
const TRANSFERS: u16 = 8;
/// Factor by which a path derived from a few figures may be off.
const TOLERANCE: f64 = 1.25;

/// What a path should carry.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Expectation {
    /// Each controller's goodput in bit/s: median and range of the simulated transfers. `None` for
    /// a controller that the simulator lacks or whose transfers all time out.
    pub goodput: Vec<Option<Estimate>>,
    /// Each controller's goodput relative to the first's, with the range given by the transfers and
    /// by a path that is a quarter off.
    pub ratio: Vec<Option<Estimate>>,
}

impl Expectation {
    /// Simulates a path. The result is deterministic.
    pub fn simulate(path: &PathEstimate, simulate: Simulate) -> Expectation {
        let state = path.state();
        let goodputs: Vec<Vec<f64>> = path
            .controllers
            .iter()
            .enumerate()
            .map(|(nth, observed)| goodputs(&state, &observed.name, nth as u64, simulate))
            .collect();
        let goodput: Vec<Option<Estimate>> = goodputs.iter().map(|all| range(all)).collect();
        let first = goodput.first().copied().flatten();
        let ratio = |of: &Option<Estimate>| {
            let (of, first) = ((*of)?, first?);
            Some(Estimate {
                median: of.median / first.median,
                low: of.low / first.high / TOLERANCE,
                high: of.high / first.low * TOLERANCE,
            })
        };
        Expectation { ratio: goodput.iter().map(ratio).collect(), goodput }
    }

    /// Whether a measured ratio is plausible for the path; `None` where nothing is expected.
    pub fn agrees(&self, controller: u16, measured: &Estimate) -> Option<bool> {
        let expected = self.ratio.get(usize::from(controller)).copied().flatten()?;
        Some(measured.high >= expected.low && measured.low <= expected.high)
    }
}

/// The simulator's name of a kernel controller: those that fullpipe loads have the prefix `fp_`.
fn simulated(name: &str) -> &str {
    name.strip_prefix("fp_").unwrap_or(name)
}

/// Goodputs in bit/s of the simulated transfers that finish in time.
fn goodputs(state: &State, controller: &str, seed: u64, simulate: Simulate) -> Vec<f64> {
    let outcomes = state.transfers(simulated(controller), TRANSFERS, seed, simulate).unwrap_or_default();
    outcomes
        .iter()
        .filter_map(|outcome| outcome.done())
        .map(|done| done.goodput().as_bits_per_sec_f64())
        .collect()
}

fn range(all: &[f64]) -> Option<Estimate> {
    if all.is_empty() {
        return None;
    }
    let middle = median_interval(all).median;
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Estimate { median: middle, low, high: all.iter().copied().fold(0.0, f64::max) })
}

/// The wire rate of a goodput: 1500 bytes for 1448 of payload.
fn wire_rate(goodput_bps: f64) -> Rate {
    Rate::from_bits_per_sec((goodput_bps * 1500.0 / 1448.0).max(1e3) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{History, Pair, Transfer};
    use crate::simulate::tests::simulate;
    use fullpipe_path::{BernoulliSpec, Limit, LinkSpec, LossSpec, PolicerSpec};
    use fullpipe_units::{Bytes, Fraction, Span};

    const PAIR: Pair = Pair { from: 0, to: 1 };

    /// The records that a mesh would have of a path.
    fn measured(forward: LinkSpec, receive_buffer: Option<u64>) -> (History, PathEstimate) {
        let state = State {
            reverse: LinkSpec { delay: forward.delay, ..LinkSpec::default() },
            forward,
            size: Bytes(8_000_000),
            every: Span::from_secs(60),
            limit: Span::from_secs(20),
            receive_buffer: receive_buffer.map(Bytes),
        };
        let controllers = vec!["cubic".to_owned(), "bbr".to_owned()];
        let mut history = History {
            sites: vec!["a".into(), "b".into()],
            period: state.every,
            controllers: controllers.clone(),
            minutes: state.minutes(40, 60, 3).unwrap(),
            ..History::default()
        };
        history.minutes.iter_mut().for_each(|minute| minute.pair = PAIR);
        for (nth, cc) in controllers.iter().enumerate() {
            for (period, outcome) in state.transfers(cc, 20, 77, simulate).unwrap().into_iter().enumerate() {
                let (at_ms, period) = (period as i64 * 60_000, period as i64);
                history.transfers.push(Transfer {
                    at_ms,
                    period,
                    pair: PAIR,
                    controller: nth as u16,
                    outcome,
                });
            }
        }
        let path = estimate_path(&history, PAIR).unwrap();
        (history, path)
    }

    fn link(mbit: u64, one_way: u64, buffer: f64) -> LinkSpec {
        LinkSpec {
            rate: Some(Rate::from_bits_per_sec(mbit * 1_000_000)),
            delay: Span::from_millis(one_way),
            queue: Some(Limit::Bdp(buffer).into()),
            ..LinkSpec::default()
        }
    }

    fn lossy(link: LinkSpec, share: f64) -> LinkSpec {
        let share = Fraction::from_billionths((share * 1e9) as u32);
        LinkSpec { loss: Some(LossSpec::Bernoulli(BernoulliSpec { share })), ..link }
    }

    #[test]
    fn a_plain_path_meets_its_expectation() {
        for forward in [link(100, 20, 1.0), link(50, 40, 2.0), lossy(link(100, 30, 1.0), 0.01)] {
            let (history, path) = measured(forward.clone(), None);
            let expected = Expectation::simulate(&path, simulate);
            let report = crate::report::Report::new(&history, None);
            if let Some(ratio) = report.pairs[0].ratios[1] {
                assert_eq!(
                    expected.agrees(1, &ratio.ratio),
                    Some(true),
                    "{forward:?}: {ratio:?} {expected:?}"
                );
            }
        }
    }

    #[test]
    fn each_cause_is_diagnosed_from_its_effects() {
        let policed = |mbit: u64, burst: u64| LinkSpec {
            policer: Some(PolicerSpec {
                rate: Rate::from_bits_per_sec(mbit * 1_000_000),
                burst: Bytes(burst),
                initial: None,
                from: None,
            }),
            ..link(200, 25, 1.0)
        };
        type Case = (&'static str, LinkSpec, Option<u64>, fn(&Cause) -> bool);
        let cases: [Case; 10] = [
            ("plain", link(100, 20, 1.0), None, |c| matches!(c, Cause::Rate { .. })),
            ("plain, deep", link(60, 45, 2.0), None, |c| matches!(c, Cause::Rate { .. })),
            ("loss", lossy(link(100, 20, 1.0), 0.005), None, |c| matches!(c, Cause::RandomLoss { .. })),
            ("loss, far", lossy(link(80, 60, 1.5), 0.002), None, |c| matches!(c, Cause::RandomLoss { .. })),
            ("shallow", link(100, 20, 0.04), None, |c| matches!(c, Cause::ShallowBuffer { .. })),
            ("shallow, far", link(150, 50, 0.08), None, |c| matches!(c, Cause::ShallowBuffer { .. })),
            ("policer", policed(20, 100_000), None, |c| matches!(c, Cause::Policer { .. })),
            ("policer, deep bucket", policed(10, 400_000), None, |c| matches!(c, Cause::Policer { .. })),
            ("window", link(500, 40, 1.0), Some(600_000), |c| matches!(c, Cause::ReceiveWindow { .. })),
            ("window, near", link(500, 15, 1.0), Some(200_000), |c| matches!(c, Cause::ReceiveWindow { .. })),
        ];
        let wrong: Vec<String> = cases
            .into_iter()
            .filter_map(|(name, forward, buffer, right)| {
                let path = measured(forward, buffer).1;
                let diagnosis = diagnose(&path, simulate);
                (!right(&diagnosis.cause)).then(|| format!("{name}: {diagnosis:?} of {path:?}"))
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_busy_cpu_is_diagnosed_as_the_sender() {
        let (mut history, _) = measured(link(100, 20, 1.0), None);
        for transfer in &mut history.transfers {
            if let crate::record::Outcome::Done(done) = &mut transfer.outcome {
                done.cpu = done.duration;
            }
        }
        let diagnosis = diagnose(&estimate_path(&history, PAIR).unwrap(), simulate);
        assert!(matches!(diagnosis.cause, Cause::Sender { .. }), "{diagnosis:?}");
    }

    #[test]
    fn an_empty_history_has_no_path_estimate() {
        assert_eq!(estimate_path(&History::default(), PAIR), None);
    }
}
