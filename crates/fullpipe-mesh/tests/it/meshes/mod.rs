//! Simulated days with and without faults, and the changes detected in them.

use fullpipe_experiment::{Recording, Scenario};
use fullpipe_mesh::analysis::{Change, Detector, changes, periods};
use fullpipe_mesh::location::Location;
use fullpipe_mesh::record::{Pair, SiteId};
use fullpipe_mesh::simulate::{Fault, InjectedFault, Pools, SimulatedMesh};
use fullpipe_path::{BernoulliSpec, GilbertElliottSpec, JitterSpec, LinkSpec, LossSpec, PolicerSpec};
use fullpipe_units::{Bytes, Fraction, Rate, Span};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const SITES: SiteId = 8;

/// The kinds of paths of a mesh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paths {
    /// 20 to 500 Mbit/s, 10 to 220 ms, buffers of a fifth to two BDP, up to 0.1 % random loss on a
    /// third of them.
    Mixed,
    /// As in figure 7 of the paper: 0.1 to 2.5 Gbit/s, 20 to 250 ms, buffers of 2 to 30 % of a BDP,
    /// and bursts of loss everywhere, 0.002 to 0.5 % in total.
    Bursty,
}

/// A mesh of eight sites with 56 different directions.
pub fn world(paths: Paths, seed: u64, periods: u32) -> SimulatedMesh {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut between = |low: f64, high: f64| {
        let u = random.next_u64() as f64 / u64::MAX as f64;
        low * (high / low).powf(u)
    };
    let mut world = SimulatedMesh {
        sites: (0..SITES).map(|site| format!("s{site}")).collect(),
        controllers: vec!["cubic".into(), "bbr".into()],
        period: Span::from_secs(60),
        limit: Span::from_secs(20),
        size: Bytes(8_000_000),
        receive_buffer: (paths == Paths::Bursty).then_some(Bytes(8_000_000)),
        start_ms: 1_700_000_040_000,
        periods,
        seed,
        pool: 16,
        links: Default::default(),
        faults: Vec::new(),
    };
    let share = |loss: f64| Fraction::from_billionths((loss * 1e9) as u32);
    for pair in world.pairs().filter(|pair| pair.from < pair.to).collect::<Vec<_>>() {
        let (one_way, moves) = match paths {
            Paths::Mixed => (between(0.005, 0.11), 0.02),
            Paths::Bursty => (between(0.01, 0.125), 0.005),
        };
        for pair in [pair, pair.reversed()] {
            let (rate, buffer, loss) = match paths {
                Paths::Mixed => {
                    let loss = (between(1.0, 3.0) > 2.0).then(|| between(1e-5, 1e-3));
                    let loss = loss.map(|loss| LossSpec::Bernoulli(BernoulliSpec { share: share(loss) }));
                    (between(20e6, 500e6), between(0.2, 2.0), loss)
                }
                Paths::Bursty => {
                    let share = Some(share(between(2e-5, 5e-3)));
                    let bursts = GilbertElliottSpec {
                        share,
                        burst: Some(3.0),
                        p: None,
                        r: None,
                        good_loss: None,
                        bad_loss: None,
                    };
                    (between(100e6, 2.5e9), between(0.02, 0.3), Some(LossSpec::GilbertElliott(bursts)))
                }
            };
            world.links.insert(
                pair,
                LinkSpec {
                    rate: Some(Rate::from_bits_per_sec(rate as u64)),
                    delay: Span::from_secs_f64(one_way),
                    queue: Some(format!("{buffer:.3}bdp").parse::<fullpipe_path::Limit>().unwrap().into()),
                    jitter: Some(JitterSpec::from(Span::from_secs_f64(one_way * moves))),
                    loss,
                    ..LinkSpec::default()
                },
            );
        }
    }
    world
}

/// The faults to locate, each for one hour with an hour between them, after five hours for the
/// baseline.
fn faults(seed: u64) -> Vec<InjectedFault> {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0xfa);
    let mut pair = || {
        let from = (random.next_u64() % u64::from(SITES)) as SiteId;
        let to = (from + 1 + (random.next_u64() % u64::from(SITES - 1)) as SiteId) % SITES;
        Pair { from, to }
    };
    let policer = PolicerSpec {
        rate: Rate::from_bits_per_sec(8_000_000),
        burst: Bytes(100_000),
        initial: None,
        from: None,
    };
    let all = [
        (Location::Direction(pair()), Fault::Loss(Fraction::from_billionths(10_000_000))),
        (Location::Direction(pair()), Fault::Rate(0.5)),
        (Location::Both(pair().unordered()), Fault::Delay(Span::from_millis(25))),
        (Location::Direction(pair()), Fault::Policer(policer)),
        (Location::Site(pair().from), Fault::Down),
        (Location::Sending(pair().from), Fault::Rate(0.5)),
        (Location::Receiving(pair().from), Fault::Loss(Fraction::from_billionths(10_000_000))),
    ];
    let at = |nth: usize| 300 + 120 * nth as u32;
    all.into_iter()
        .enumerate()
        .map(|(nth, (location, fault))| InjectedFault { from: at(nth), until: at(nth) + 60, location, fault })
        .collect()
}

/// The detections of one day.
/// The simulator.
pub fn simulate(scenario: &Scenario, seed: u64) -> Result<Recording, String> {
    fullpipe_sim::Simulation::new(scenario, seed).run().map_err(|e| e.to_string())
}

#[derive(Debug)]
pub struct Day {
    /// Faults, with the number of periods until each was reported at the right location.
    pub faults: Vec<(InjectedFault, Option<u32>)>,
    /// Other reported changes.
    pub besides: Vec<Change>,
}

/// A day without faults.
pub fn quiet_day(world: &SimulatedMesh, pools: &mut Pools) -> Day {
    let history = world.history_from(pools, simulate).unwrap();
    Day { faults: Vec::new(), besides: changes(&history) }
}

/// Twenty hours with seven faults, which depend on `nth`.
pub fn bad_day(world: &SimulatedMesh, nth: u64, pools: &mut Pools) -> Day {
    let world = SimulatedMesh { faults: faults(nth), ..world.clone() };
    let history = world.history_from(pools, simulate).unwrap();
    let periods = periods(&history);
    let mut detector = Detector::new(2, world.period);
    let mut delays: Vec<Option<u32>> = vec![None; world.faults.len()];
    let coincides = |change: &Change, fault: &InjectedFault| {
        let begin = change.begin - periods[0].number;
        // A change begins where its first pair's does, which chance losses date up to three periods
        // back: mesh 1, day 5, whose fault is located in its first period.
        begin >= i64::from(fault.from) - 3 && begin <= i64::from(fault.until) + 2
    };
    for (nth, period) in periods.iter().enumerate() {
        detector.observe(period);
        for (fault, delay) in world.faults.iter().zip(&mut delays) {
            let passed = nth as u32 + 1;
            if delay.is_none() && (fault.from + 1..fault.from + 10).contains(&passed) {
                let found = |change: &Change| change.location == fault.location && coincides(change, fault);
                *delay = detector.changes().iter().any(found).then(|| passed - fault.from);
            }
        }
    }
    let explained = |change: &Change| {
        world.faults.iter().any(|fault| {
            coincides(change, fault)
                && change
                    .shifts
                    .iter()
                    .all(|s| fault.location.contains(s.pair) || fault.location.contains(s.pair.reversed()))
        })
    };
    let besides = detector.changes().into_iter().filter(|change| !explained(change)).collect();
    Day { faults: world.faults.into_iter().zip(delays).collect(), besides }
}
