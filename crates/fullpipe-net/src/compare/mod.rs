//! Compares controllers on one path: interleaved rounds against one server, and a verdict.
//!
//! Rounds alternate (A B, B A, …) so that a drifting path favours neither controller. The beginning
//! of each test is omitted, and streams are reset at their end, so that the kernel caches no
//! metrics that would help later tests.

mod plan;
mod statistics;

pub use fullpipe_experiment::recording::{Estimate, Finding, Verdict};
pub use plan::{Plan, PlanError};
pub use statistics::{MIN_GAIN, MIN_PAIRS, compare, difference, estimate, median, median_interval};

use crate::client::{self, ClientError, Config, Interval, Outcome};
use crate::iperf3::Protocol;
use crate::recording::recording;
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{
    self as recorded, BbrChoice, ControllerRounds, TimeBreakdown, Variation, bbr_version,
};
use fullpipe_kernel::{socket, tcp_info};
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A round failed.
    #[error("round {round}, {controller}: {source}")]
    Round {
        /// Round, counted from 1.
        round: usize,
        /// The controller.
        controller: String,
        /// The cause.
        source: ClientError,
    },
    /// A sender did not use the requested controller.
    #[error("round {round}: the sender used {used} instead of {controller}")]
    NotUsed {
        /// Round, counted from 1.
        round: usize,
        /// The requested controller.
        controller: String,
        /// The controller used.
        used: String,
    },
}

impl Plan {
    /// Runs the rounds, and those beside a CUBIC flow. `begun` is called before each test with the
    /// number of the round, counted from 0.
    ///
    /// # Errors
    /// Fails before the first round if this host lacks a controller, then at the first test that
    /// fails or whose sender uses another controller.
    pub fn run(
        &self,
        interrupt: &AtomicBool,
        begun: &mut dyn FnMut(usize, &str),
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Comparison, CompareError> {
        self.check_local_controllers()?;
        let began = Instant::now();
        self.check_server_controllers(interrupt)?;
        let mut iperf2 = self.config.iperf2;
        let runs = self.interleaved(self.rounds, |round, name| {
            begun(round, name);
            let mut config = self.config.clone();
            config.iperf2 = iperf2;
            config.params.congestion = Some(name.to_owned());
            config.abort = true;
            // The idle path does not change between rounds.
            config.idle_probes = if round == 0 { config.idle_probes } else { LATER_IDLE_PROBES };
            let outcome = client::run(&config, interrupt, progress).map_err(|source| {
                CompareError::Round { round: round + 1, controller: name.to_owned(), source }
            })?;
            self.check_controller(round + 1, name, &outcome)?;
            // Detecting it again would take time and a connection.
            iperf2 |= outcome.iperf2.is_some();
            Ok::<_, CompareError>(outcome)
        })?;
        let mut comparison = Comparison {
            plan: self.clone(),
            runs,
            spent: TimeBreakdown::default(),
            shares: self.controllers.iter().map(|_| Vec::new()).collect(),
            no_shares_because: None,
        };
        let mut spent = TimeBreakdown::default();
        for outcome in comparison.runs.iter().flatten() {
            add_time(&mut spent, outcome);
        }
        if self.rounds_beside_cubic() > 0 && comparison.has_both_versions() {
            comparison.no_shares_because =
                self.add_shares_beside_cubic(&mut comparison, &mut spent, interrupt, begun).err();
        }
        spent.between_s = (began.elapsed().as_secs_f64() - spent.measured_s - spent.left_out_s).max(0.0);
        Ok(Comparison { spent, ..comparison })
    }

    /// Rounds beside a CUBIC flow, which follow the others: only a comparison of BBR v1 with v3 has
    /// them, if it can be conclusive and if this host sends without limit.
    pub fn rounds_beside_cubic(&self) -> usize {
        let params = &self.config.params;
        let sends_alone = params.client_sends() && !params.bidirectional && params.protocol == Protocol::Tcp;
        let is_unlimited = params.byte_budget().is_none() && params.rate == 0;
        let has = |version| self.controllers.iter().any(|name| bbr_version(name) == Some(version));
        if sends_alone && is_unlimited && self.rounds >= MIN_PAIRS && has(1) && has(3) {
            ROUNDS_BESIDE_CUBIC
        } else {
            0
        }
    }

    /// Measures the shares of the goodput beside a CUBIC flow. The rounds before are kept even if
    /// this fails; the error is text for the user.
    fn add_shares_beside_cubic(
        &self,
        comparison: &mut Comparison,
        spent: &mut TimeBreakdown,
        interrupt: &AtomicBool,
        begun: &mut dyn FnMut(usize, &str),
    ) -> Result<(), String> {
        if comparison.runs.iter().flatten().any(|outcome| outcome.server.is_none()) {
            return Err("the server is not fullpipe, and iperf3 runs one test at a time".to_owned());
        }
        comparison.shares = self.interleaved(ROUNDS_BESIDE_CUBIC, |round, name| {
            begun(self.rounds + round, name);
            let (own, cubic) = (self.config_beside(name), self.config_beside("cubic"));
            let (own, cubic) = std::thread::scope(|scope| {
                let run = || client::run(&cubic, interrupt, &mut |_| {});
                let other = std::thread::Builder::new().spawn_scoped(scope, run)?;
                Ok((client::run(&own, interrupt, &mut |_| {}), other.join()))
            })
            .map_err(|e: std::io::Error| format!("cubic: cannot start a thread: {e}"))?;
            let own = own.map_err(|e| format!("{name}: {e}"))?;
            let cubic = cubic.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let cubic = goodput(&cubic.map_err(|e| format!("cubic: {e}"))?);
            add_time(spent, &own);
            let own = goodput(&own);
            Ok::<_, String>(own / (own + cubic).max(1.0))
        })?;
        Ok(())
    }

    /// The test of a controller beside another test.
    fn config_beside(&self, controller: &str) -> Config {
        let mut config = self.config.clone();
        config.params.congestion = Some(controller.to_owned());
        (config.abort, config.idle_probes) = (true, 0);
        config
    }

    /// The name of a round as reported to `begun`, for people.
    pub fn round_name(&self, round: usize) -> String {
        match round.checked_sub(self.rounds) {
            None => format!("round {} of {}", round + 1, self.rounds),
            Some(beside) => {
                format!("beside cubic, round {} of {ROUNDS_BESIDE_CUBIC}", beside + 1)
            }
        }
    }

    /// Checks that the server has each controller, where it sends: with a test of one block each,
    /// because a stock server lists none.
    fn check_server_controllers(&self, interrupt: &AtomicBool) -> Result<(), CompareError> {
        if self.config.params.client_sends() && !self.config.params.bidirectional {
            return Ok(());
        }
        for name in &self.controllers {
            let mut config = self.config.clone();
            config.params.congestion = Some(name.clone());
            (config.params.seconds, config.params.omit) = (0, 0);
            (config.params.bytes, config.params.blocks) = (0, 1);
            (config.abort, config.idle_probes) = (true, 0);
            let found = |source| CompareError::Round { round: 1, controller: name.clone(), source };
            let outcome = client::run(&config, interrupt, &mut |_| {}).map_err(found)?;
            self.check_controller(1, name, &outcome)?;
        }
        Ok(())
    }

    /// Checks that the senders used the requested controller.
    fn check_controller(
        &self,
        round: usize,
        controller: &str,
        outcome: &Outcome,
    ) -> Result<(), CompareError> {
        let mut others = outcome.streams.iter().filter_map(|s| s.controller.clone());
        match others.find(|used| used != controller) {
            Some(used) => Err(CompareError::NotUsed { round, controller: controller.to_owned(), used }),
            None => Ok(()),
        }
    }

    /// Checks that this host has each controller: streams use it in both directions.
    fn check_local_controllers(&self) -> Result<(), CompareError> {
        for name in &self.controllers {
            let missing = |source| CompareError::Round { round: 1, controller: name.clone(), source };
            let socket = socket::tcp((Ipv4Addr::UNSPECIFIED, 0).into())
                .map_err(|e| missing(ClientError::System(e)))?;
            tcp_info::pin(&socket, name).map_err(|e| missing(e.into()))?;
        }
        Ok(())
    }
}

/// The results of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The plan.
    pub plan: Plan,
    /// Outcomes by controller, in the plan's order, then by round.
    pub runs: Vec<Vec<Outcome>>,
    /// Time spent.
    pub spent: TimeBreakdown,
    /// Shares of the goodput beside a CUBIC flow, by controller as `runs`.
    pub shares: Vec<Vec<f64>>,
    /// Why there are no shares, if their tests failed.
    pub no_shares_because: Option<String>,
}

/// Rounds beside a CUBIC flow: enough to distinguish starvation from sharing.
const ROUNDS_BESIDE_CUBIC: usize = 3;

/// Adds the time of a test.
fn add_time(spent: &mut TimeBreakdown, outcome: &Outcome) {
    spent.measured_s += outcome.streams.iter().map(|s| s.sent_seconds).fold(0.0, f64::max);
    spent.left_out_s += f64::from(outcome.params.omit);
}

/// Idle probes in rounds after the first, when the path is known.
const LATER_IDLE_PROBES: usize = 3;

/// Description of the estimator.
const ESTIMATOR: &str = "medians over rounds; ratios and differences are those of the medians; \
    intervals: 95 %, bootstrap of whole rounds, \
                         widened to the order statistics of the rounds";

/// One figure of each round of a controller.
fn figures(runs: &[Outcome], figure: fn(&Outcome) -> f64) -> Vec<f64> {
    runs.iter().map(figure).collect()
}

/// Goodput of both directions together, bit/s.
fn goodput(outcome: &Outcome) -> f64 {
    [true, false].into_iter().filter_map(|sends| outcome.sum(sends)).map(|s| s.goodput()).sum()
}

/// Retransmitted segments, percent of segments sent.
fn retransmits(outcome: &Outcome) -> f64 {
    let mss =
        outcome.streams.iter().find_map(|s| s.socket.as_ref()).map_or(1448.0, |s| f64::from(s.mss.max(1)));
    let sums = || [true, false].into_iter().filter_map(|sends| outcome.sum(sends));
    let again: f64 = sums().filter_map(|s| s.retransmits).map(|n| n as f64).sum();
    let segments = sums().map(|s| s.sent.unwrap_or(s.delivered().0) as f64).sum::<f64>() / mss + again;
    100.0 * again / segments.max(1.0)
}

/// Segments with an ECN mark, percent of segments delivered; `None` if they are not counted.
fn marked(runs: &[Outcome]) -> Option<f64> {
    let mut counted = (0.0, 0.0);
    for socket in runs.iter().flat_map(|outcome| &outcome.streams).filter_map(|s| s.socket.as_ref()) {
        let segments = socket.bytes_acked? as f64 / f64::from(socket.mss.max(1));
        counted = (counted.0 + socket.delivered_ce? as f64, counted.1 + segments);
    }
    (counted.1 > 0.0).then(|| 100.0 * counted.0 / counted.1)
}

/// The BBR version that the senders' sockets reported, or that the controller's name suggests.
fn version(name: &str, runs: &[Outcome]) -> Option<u8> {
    let mut sockets = runs.iter().flat_map(|outcome| &outcome.streams).filter_map(|s| s.socket.as_ref());
    sockets.find_map(|socket| socket.bbr_version).or(bbr_version(name))
}

/// Milliseconds.
fn loaded_rtt(outcome: &Outcome) -> f64 {
    outcome.latency.loaded.unwrap_or(f64::NAN) * 1e3
}

impl Comparison {
    fn runs_of(&self, controller: &str) -> &[Outcome] {
        let place = self.plan.controllers.iter().position(|c| c == controller).unwrap_or(0);
        &self.runs[place]
    }

    /// The only controllers that are BBR v1 and v3.
    fn versions(&self) -> Option<(&str, &str)> {
        let only = |wanted| {
            let mut found =
                self.plan.controllers.iter().filter(|name| version(name, self.runs_of(name)) == Some(wanted));
            found.next().filter(|_| found.next().is_none())
        };
        Some((only(1)?, only(3)?))
    }

    fn has_both_versions(&self) -> bool {
        self.versions().is_some()
    }

    /// Verdicts of all candidates against the baseline.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let candidates = self.plan.controllers.iter().filter(|c| **c != self.plan.baseline);
        candidates.map(|c| self.verdict(c, &self.plan.baseline)).collect()
    }

    fn verdict(&self, controller: &str, baseline: &str) -> Verdict {
        let (a, b) = (self.runs_of(controller), self.runs_of(baseline));
        let (ratio, finding) = compare(&figures(a, goodput), &figures(b, goodput), self.plan.seed);
        let added = |figure: fn(&Outcome) -> f64| {
            let (a, b) = (figures(a, figure), figures(b, figure));
            a.iter().chain(&b).all(|v| v.is_finite()).then(|| difference(&a, &b, self.plan.seed))
        };
        // The choice between versions of BBR may keep another than the faster one.
        let is_advice = self
            .versions()
            .is_none_or(|(v1, v3)| [(v1, v3), (v3, v1)].iter().all(|pair| *pair != (controller, baseline)));
        let words = verdict_text(controller, baseline, &ratio, finding, a.len(), is_advice);
        Verdict {
            controller: controller.to_owned(),
            baseline: baseline.to_owned(),
            ratio,
            finding,
            retransmits_added: difference(&figures(a, retransmits), &figures(b, retransmits), self.plan.seed),
            rtt_added_ms: added(loaded_rtt),
            words,
        }
    }

    /// The comparison as a recording.
    pub fn to_recording(&self) -> recorded::Comparison {
        let controllers =
            self.plan.controllers.iter().zip(&self.runs).enumerate().map(|(i, (name, runs))| {
                let goodputs = figures(runs, goodput);
                let rtts = figures(runs, loaded_rtt);
                let known = rtts.iter().all(|rtt| rtt.is_finite());
                ControllerRounds {
                    controller: name.clone(),
                    bbr_version: version(name, runs),
                    goodput: estimate(&goodputs, self.plan.seed),
                    goodput_bps: goodputs,
                    retransmits_percent: figures(runs, retransmits),
                    marked_percent: marked(runs),
                    loaded_rtt: known.then(|| estimate(&rtts, self.plan.seed)),
                    loaded_rtt_ms: rtts
                        .into_iter()
                        .map(|rtt| Some(rtt).filter(|rtt| rtt.is_finite()))
                        .collect(),
                    shares_beside_cubic: self.shares.get(i).cloned().unwrap_or_default(),
                }
            });
        let mut comparison = recorded::Comparison {
            baseline: self.plan.baseline.clone(),
            rounds: self.plan.rounds,
            seed: self.plan.seed,
            estimator: ESTIMATOR.to_owned(),
            time: self.spent,
            idle_rtt_ms: self.idle_rtt_ms(),
            controllers: controllers.collect(),
            verdicts: self.verdicts(),
            no_shares_because: self.no_shares_because.clone(),
            bbr_choice: None,
        };
        let rounds = |name: &str| comparison.controllers.iter().find(|c| c.controller == name);
        comparison.bbr_choice = self.versions().and_then(|(v1, v3)| {
            BbrChoice::new(rounds(v1)?, rounds(v3)?, &self.verdict(v1, v3), comparison.idle_rtt_ms)
        });
        comparison
    }

    /// The lowest RTT of the idle path: all rounds use one path.
    fn idle_rtt_ms(&self) -> Option<f64> {
        let idle = self.runs.iter().flatten().filter_map(|outcome| outcome.latency.idle);
        idle.reduce(f64::min).map(|seconds| seconds * 1e3)
    }

    /// All rounds as recordings, in the order they ran, with the comparison.
    pub fn results(&self) -> Results {
        let mut runs = Vec::new();
        let idle = self.idle_rtt_ms();
        for round in 0..self.plan.rounds {
            for name in self.plan.order(round) {
                let Some(outcome) = self.runs_of(name).get(round) else { continue };
                let mut run = recording(outcome, &format!("{name}, round {}", round + 1), self.plan.seed);
                run.contender = Some(name.to_owned());
                run.varied = vec![
                    Variation::new("flow.cc", name),
                    Variation::new(Variation::ROUND, (round + 1).to_string()),
                ];
                run.path.base_rtt_ms = idle;
                runs.push(run);
            }
        }
        Results { comparison: Some(self.to_recording()), ..Results::new(runs) }
    }
}

/// Formats a ratio: `4.9× `, or `12 % ` when it is near one.
fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 10.0 => format!("{r:.0}× "),
        r if r >= 1.5 => format!("{r:.1}× "),
        r => format!("{:.0} % ", (r - 1.0) * 100.0),
    }
}

fn verdict_text(
    controller: &str,
    baseline: &str,
    ratio: &Estimate,
    finding: Finding,
    rounds: usize,
    is_advice: bool,
) -> String {
    let interval = |low: f64, high: f64| format!("(95 % CI {low:.2} to {high:.2} times)");
    match finding {
        Finding::Faster => format!(
            "{controller} is {}faster than {baseline} {}",
            times(ratio.median),
            interval(ratio.low, ratio.high)
        ),
        Finding::Slower => format!(
            "{} {}faster than {controller} {}",
            if is_advice { format!("keep {baseline}: it is") } else { format!("{baseline} is") },
            times(1.0 / ratio.median),
            interval(1.0 / ratio.high, 1.0 / ratio.low)
        ),
        Finding::Same => format!(
            "{}no relevant difference in goodput; {controller} has {:.2} times as much {}",
            if is_advice { format!("keep {baseline}: ") } else { String::new() },
            ratio.median,
            interval(ratio.low, ratio.high)
        ),
        // The range of few rounds is not a confidence interval.
        Finding::Inconclusive { more_rounds } if rounds < MIN_PAIRS => format!(
            "too few rounds for a verdict: {controller} had {:.2} times the goodput of {baseline} ({:.2} \
                to {:.2} times in {rounds}); \
             an interval needs {MIN_PAIRS} rounds, {more_rounds} more",
            ratio.median, ratio.low, ratio.high
        ),
        Finding::Inconclusive { more_rounds } => format!(
            "inconclusive: {controller} has {:.2} times the goodput of {baseline} {}; needs about \
                {more_rounds} more rounds",
            ratio.median,
            interval(ratio.low, ratio.high)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{self, Limits, Server};

    fn plan(names: &[&str], rounds: usize) -> Result<Plan, PlanError> {
        let names = names.iter().map(|&n| n.to_owned()).collect();
        Plan::new(Config::new("localhost", 5201), names, None, rounds, 1)
    }

    #[test]
    fn rounds_alternate_their_order() {
        let plan = plan(&["bbr", "cubic", "hybla"], 2).unwrap();
        assert_eq!(plan.order(0), ["bbr", "cubic", "hybla"]);
        assert_eq!(plan.order(1), ["hybla", "cubic", "bbr"]);
        assert_eq!(plan.order(2), ["bbr", "cubic", "hybla"]);
    }

    #[test]
    fn the_usual_baseline_is_cubic() {
        assert_eq!(plan(&["cubic", "bbr"], 1).unwrap().baseline, "cubic");
        assert_eq!(plan(&["bbr", "reno"], 1).unwrap().baseline, "reno");
    }

    #[test]
    fn only_bbr_v1_and_v3_are_tested_beside_cubic_and_only_where_this_host_sends_tcp() {
        let rounds = |names: &[&str], rounds| plan(names, rounds).unwrap().rounds_beside_cubic();
        assert_eq!([rounds(&["bbr", "fp_bbr3"], 6), rounds(&["bbr3", "cubic", "bbr"], 9)], [3, 3]);
        assert_eq!([rounds(&["bbr", "cubic"], 6), rounds(&["bbr3", "fp_bbr3"], 6)], [0, 0]);
        assert_eq!(rounds(&["bbr", "fp_bbr3"], 5), 0, "too few for a verdict");
        let mut reverse = plan(&["bbr", "fp_bbr3"], 6).unwrap();
        assert_eq!(reverse.round_name(5), "round 6 of 6");
        assert_eq!(reverse.round_name(6), "beside cubic, round 1 of 3");
        reverse.config.params.reverse = true;
        assert_eq!(reverse.rounds_beside_cubic(), 0);
        let mut udp = plan(&["bbr", "fp_bbr3"], 6).unwrap();
        udp.config.params.protocol = Protocol::Udp;
        assert_eq!(udp.rounds_beside_cubic(), 0);
        let limited = |limit: fn(&mut Config)| {
            let mut plan = plan(&["bbr", "fp_bbr3"], 6).unwrap();
            limit(&mut plan.config);
            plan.rounds_beside_cubic()
        };
        let limits: [fn(&mut Config); 3] =
            [|c| c.params.bytes = 1000, |c| c.params.blocks = 5, |c| c.params.rate = 1_000_000];
        assert_eq!(limits.map(limited), [0; 3]);
    }

    /// Shares of two controllers that this host has, with a server on loopback that runs `clients`
    /// tests at once; the rounds before are one short test each.
    fn shares_with(clients: usize) -> Comparison {
        let limits = Limits { clients, ..Limits::default() };
        let server = Server::bind(server::Config { port: 0, limits, ..server::Config::default() }, |_| {});
        let server = server.unwrap();
        let (address, handle) = (server.address(), server.handle());
        let thread = std::thread::spawn(move || server.run().unwrap());
        let mut config = Config::new("127.0.0.1", address.port());
        (config.params.seconds, config.params.omit) = (1, 0);
        let names = ["reno", "cubic"].map(str::to_owned).to_vec();
        let plan = Plan::new(config, names, None, 6, 1).unwrap();
        let interrupt = AtomicBool::new(false);
        let runs = plan.controllers.iter().map(|name| {
            let mut config = plan.config_beside(name);
            (config.params.seconds, config.params.blocks) = (0, 1);
            vec![client::run(&config, &interrupt, &mut |_| {}).unwrap()]
        });
        let mut comparison = Comparison {
            runs: runs.collect(),
            spent: TimeBreakdown::default(),
            shares: Vec::new(),
            no_shares_because: None,
            plan: plan.clone(),
        };
        let mut spent = TimeBreakdown::default();
        comparison.no_shares_because =
            plan.add_shares_beside_cubic(&mut comparison, &mut spent, &interrupt, &mut |_, _| {}).err();
        comparison.spent = spent;
        handle.stop();
        thread.join().unwrap();
        comparison
    }

    #[test]
    fn shares_beside_cubic_are_of_two_tests_at_once() {
        let comparison = shares_with(64);
        assert_eq!(comparison.no_shares_because, None);
        assert_eq!(comparison.shares.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert!(comparison.shares.iter().flatten().all(|share| (0.0..=1.0).contains(share)));
        assert!(comparison.spent.measured_s > 5.0, "six tests of a second: {:?}", comparison.spent);
        let recorded = comparison.to_recording();
        assert_eq!(recorded.controllers[1].shares_beside_cubic, comparison.shares[1]);
    }

    #[test]
    fn a_server_that_refuses_the_second_test_costs_the_shares_only() {
        let comparison = shares_with(1);
        let why = comparison.no_shares_because.clone().unwrap();
        assert!(why.contains("busy"), "{why}");
        assert!(comparison.shares.iter().all(Vec::is_empty));
        let recorded = comparison.to_recording();
        assert_eq!((recorded.controllers.len(), recorded.no_shares_because), (2, Some(why)));
    }

    #[test]
    fn plans_without_two_controllers_or_rounds_are_refused() {
        assert!(plan(&["bbr"], 1).is_err());
        assert!(plan(&["bbr", "bbr"], 1).is_err());
        assert!(plan(&["bbr", "cubic"], 0).is_err());
        let names = vec!["bbr".to_owned(), "cubic".to_owned()];
        assert!(Plan::new(Config::new("h", 1), names, Some("reno".into()), 1, 1).is_err());
    }

    #[test]
    fn a_missing_local_controller_fails_before_the_first_test() {
        let mut begun = 0;
        let plan = plan(&["cubic", "reno", "no_such_one"], 1).unwrap();
        let e = plan.run(&AtomicBool::new(false), &mut |_, _| begun += 1, &mut |_| {}).unwrap_err();
        assert!(matches!(e, CompareError::Round { source: ClientError::Pin(_), .. }), "{e}");
        assert!(e.to_string().contains("no_such_one"), "{e}");
        assert_eq!(begun, 0);
    }

    #[test]
    fn verdicts_read_as_sentences() {
        let e = |median, low, high| Estimate { median, low, high };
        let text = |e: Estimate, f| verdict_text("bbr", "cubic", &e, f, 6, true);
        assert_eq!(
            text(e(4.9, 4.5, 5.25), Finding::Faster),
            "bbr is 4.9× faster than cubic (95 % CI 4.50 to 5.25 times)"
        );
        assert_eq!(
            text(e(0.5, 0.4, 0.625), Finding::Slower),
            "keep cubic: it is 2.0× faster than bbr (95 % CI 1.60 to 2.50 times)"
        );
        assert!(text(e(1.0, 0.99, 1.01), Finding::Same).contains("no relevant difference in goodput"));
        assert!(
            text(e(1.2, 0.8, 1.9), Finding::Inconclusive { more_rounds: 7 }).contains("about 7 more rounds")
        );
        let few = Finding::Inconclusive { more_rounds: 3 };
        assert_eq!(
            verdict_text("bbr", "cubic", &e(15.2, 13.07, 19.33), few, 3, true),
            "too few rounds for a verdict: bbr had 15.20 times the goodput of cubic (13.07 to 19.33 \
                times in 3); \
             an interval needs 6 rounds, 3 more"
        );
        assert_eq!(times(1.12), "12 % ");
    }
}
