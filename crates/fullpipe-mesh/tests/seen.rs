//! Simulated days with and without faults, and what is told of them.

use fullpipe_mesh::place::Place;
use fullpipe_mesh::record::{Pair, SiteId};
use fullpipe_mesh::see::{Change, Watch, changes, periods};
use fullpipe_mesh::simulate::{Fault, Injected, Pools, World};
use fullpipe_path::{BernoulliSpec, JitterSpec, LinkSpec, LossSpec, PolicerSpec};
use fullpipe_units::{Bytes, Fraction, Rate, Span};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const SITES: SiteId = 8;

/// A mesh of eight sites whose 56 directions differ: 20 to 500 Mbit/s, 10 to 220 ms, buffers of a fifth to two BDP, up to 0.1 % of random
/// loss on a third of them, jitter.
fn world(seed: u64, periods: u32) -> World {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut between = |low: f64, high: f64| {
        let u = random.next_u64() as f64 / u64::MAX as f64;
        low * (high / low).powf(u)
    };
    let mut world = World {
        sites: (0..SITES).map(|site| format!("s{site}")).collect(),
        controllers: vec!["cubic".into(), "bbr".into()],
        period: Span::from_secs(60),
        limit: Span::from_secs(20),
        size: Bytes(8_000_000),
        receive_buffer: None,
        start_ms: 1_700_000_040_000,
        periods,
        seed,
        pool: 16,
        links: Default::default(),
        faults: Vec::new(),
    };
    for pair in world.pairs().filter(|pair| pair.from < pair.to).collect::<Vec<_>>() {
        let one_way = between(0.005, 0.11);
        for pair in [pair, pair.turned()] {
            let loss = (between(1.0, 3.0) > 2.0).then(|| between(1e-5, 1e-3));
            world.links.insert(
                pair,
                LinkSpec {
                    rate: Some(Rate::from_bits_per_sec(between(20e6, 500e6) as u64)),
                    delay: Span::from_secs_f64(one_way),
                    queue: Some(
                        format!("{:.2}bdp", between(0.2, 2.0))
                            .parse::<fullpipe_path::Limit>()
                            .unwrap()
                            .into(),
                    ),
                    jitter: Some(JitterSpec::from(Span::from_secs_f64(one_way * 0.02))),
                    loss: loss.map(|loss| {
                        LossSpec::Bernoulli(BernoulliSpec {
                            share: Fraction::from_billionths((loss * 1e9) as u32),
                        })
                    }),
                    ..LinkSpec::default()
                },
            );
        }
    }
    world
}

/// The faults that must be located, each for an hour of its own with an hour between, when it has been seen for five hours what is usual.
fn faults(seed: u64) -> Vec<Injected> {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0xfa);
    let mut pair = || {
        let from = (random.next_u64() % u64::from(SITES)) as SiteId;
        let to = (from + 1 + (random.next_u64() % u64::from(SITES - 1)) as SiteId) % SITES;
        Pair { from, to }
    };
    let policer = PolicerSpec { rate: Rate::from_bits_per_sec(8_000_000), burst: Bytes(100_000), from: None };
    let all = [
        (Place::Direction(pair()), Fault::Loss(Fraction::from_billionths(10_000_000))),
        (Place::Direction(pair()), Fault::Rate(0.5)),
        (Place::Both(pair().both()), Fault::Delay(Span::from_millis(25))),
        (Place::Direction(pair()), Fault::Policer(policer)),
        (Place::Site(pair().from), Fault::Down),
        (Place::Sending(pair().from), Fault::Rate(0.5)),
        (Place::Receiving(pair().from), Fault::Loss(Fraction::from_billionths(10_000_000))),
    ];
    let at = |nth: usize| 300 + 120 * nth as u32;
    all.into_iter()
        .enumerate()
        .map(|(nth, (place, fault))| Injected { from: at(nth), until: at(nth) + 60, place, fault })
        .collect()
}

/// Worlds of different paths, each with several seeds for what is drawn: 20 in all.
fn seeds(worlds: u64) -> impl Iterator<Item = (u64, Vec<u64>)> {
    (1..=worlds).map(move |paths| (paths, (0..20 / worlds).map(|nth| nth * worlds + paths).collect()))
}

/// How many false alarms each of 20 days had.
fn quiet_days(worlds: u64) -> Vec<usize> {
    let mut told = Vec::new();
    for (paths, seeds) in seeds(worlds) {
        let mut pools = Pools::default();
        for seed in seeds {
            let world = World { seed, ..world(paths, 1440) };
            let history = world.history_from(&mut pools).unwrap();
            let all = changes(&history);
            told.push(all.len());
        }
    }
    told
}

/// After how many periods each fault of 20 days was located, and how many changes were told besides them.
fn located(worlds: u64) -> (Vec<(Injected, Option<u32>)>, usize) {
    let (mut all, mut besides) = (Vec::new(), 0);
    for (paths, seeds) in seeds(worlds) {
        let mut pools = Pools::default();
        for seed in seeds {
            let faults = faults(paths);
            let world = World { seed, faults, ..world(paths, 1200) };
            let history = world.history_from(&mut pools).unwrap();
            let periods = periods(&history);
            let mut watch = Watch::new(2, world.period);
            let mut heard: Vec<Option<u32>> = vec![None; world.faults.len()];
            let of = |change: &Change, fault: &Injected| {
                let begin = change.begin - periods[0].number;
                begin >= i64::from(fault.from) - 2 && begin <= i64::from(fault.until) + 2
            };
            for (nth, period) in periods.iter().enumerate() {
                watch.look(period);
                for (fault, heard) in world.faults.iter().zip(&mut heard) {
                    let passed = nth as u32 + 1;
                    if heard.is_none() && (fault.from + 1..fault.from + 10).contains(&passed) {
                        let found = |change: &Change| change.place == fault.place && of(change, fault);
                        *heard = watch.changes().iter().any(found).then(|| passed - fault.from);
                    }
                }
            }
            let told = watch.changes();
            let explained = |change: &Change| {
                world.faults.iter().any(|fault| {
                    of(change, fault)
                        && change
                            .shifts
                            .iter()
                            .all(|s| fault.place.holds(s.pair) || fault.place.holds(s.pair.turned()))
                })
            };
            besides += told.iter().filter(|change| !explained(change)).count();
            all.extend(world.faults.into_iter().zip(heard));
        }
    }
    (all, besides)
}

#[test]
fn a_day_without_faults_is_quiet() {
    let told = quiet_days(2);
    assert!(told.len() == 20 && told.iter().all(|alarms| *alarms <= 1), "{told:?}");
}

#[test]
fn each_fault_is_located_within_three_periods() {
    let (all, besides) = located(2);
    // Where CUBIC's transfers no longer arrive at all, they tell nothing of loss, and probes lose three or four in three minutes.
    for (fault, periods) in &all {
        assert!(periods.is_some_and(|n| n <= 4), "{:?} at {:?}: {periods:?}", fault.fault, fault.place);
    }
    let in_time = all.iter().filter(|(_, periods)| periods.is_some_and(|n| n <= 3)).count();
    assert!(all.len() == 140 && in_time >= 137, "{in_time} of {}", all.len());
    // Of twenty days of seven faults each.
    assert!(besides <= 20, "{besides} changes besides the faults");
}
