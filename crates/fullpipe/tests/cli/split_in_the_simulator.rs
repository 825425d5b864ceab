//! False positives and power of splits with simulated transfers: the goodput of each comes from
//! simulated TCP, not from a formula. (`fullpipe-split` tests the same with more, log-normal
//! samples.)
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{self, Case, FlowSpec, Scenario};
use fullpipe_run::{Engine, in_parallel, vocabulary};
use fullpipe_split::stats::Design;
use fullpipe_split::{Arms, Assigner, Guard, Ledger, Metric, Outcome, Plan, Statistic, cuts, pick};
use fullpipe_testing::Random;
use fullpipe_units::{Bytes, Span};
use std::net::SocketAddr;
use std::ops::ControlFlow;

const SIZE: Bytes = Bytes(150_000);

fn plan(by: &str, seed: u64) -> Plan {
    Plan {
        arms: Arms::parse(["a:cubic=50%", "b:cubic=50%"]).unwrap(),
        control: "b".to_owned(),
        by: by.parse().unwrap(),
        seed,
        min_transfer: "100kB".parse().unwrap(),
        ports: Vec::new(),
        condition: String::new(),
        cgroup: "/".to_owned(),
        guard: Guard::default(),
        began_unix_s: 0.0,
    }
}

/// A path without flows.
fn path(rate: &str, rtt: &str, loss: &str) -> Scenario {
    let text = format!(
        "duration = '30min'\nsample = '60s'\n[path]\nrate = '{rate}'\nrtt = '{rtt}'\nbuffer = '1bdp'\nloss \
         = '{loss}'\n\
         [[flow]]\ncc = 'cubic'"
    );
    let none = |name: &str| Err(format!("no file {name}"));
    scenario::parse("path", &text, &vocabulary(&[Engine::Sim]), &none).unwrap().remove(0).scenario
}

fn transfer(start: Span, extra_rtt: Span) -> FlowSpec {
    FlowSpec { size: Some(SIZE), start: start.into(), extra_rtt, ..FlowSpec::bulk("cubic") }
}

fn simulated(scenario: &Scenario, seed: u64) -> Recording {
    let case = Case { scenario: Scenario { seed, ..scenario.clone() }, contender: None, varied: Vec::new() };
    fullpipe_run::run(&case, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// The simulated outcome of one transfer, if it completed.
fn outcome(run: &Recording, flow: usize, remote: SocketAddr) -> Option<Outcome> {
    let of = &run.flows[flow];
    let (s, took_s) = (&of.summary, of.summary.completion_s?);
    const MSS: u64 = 1448;
    Some(Outcome {
        arm: 0,
        generation: 0,
        cookie: flow as u64,
        opened_unix_s: of.start_s,
        duration_s: took_s,
        local: "192.0.2.1:443".parse().unwrap(),
        remote,
        active: false,
        delivered_bytes: SIZE.0,
        received_bytes: 0,
        sent_bytes: s.packets_sent * MSS,
        resent_bytes: s.packets_retransmitted * MSS,
        segments: s.packets_sent,
        resent_segments: s.packets_retransmitted,
        busy_s: took_s,
        rtt_ms: s.rtt_ms.p50,
        min_rtt_ms: s.rtt_ms.min,
        deliver_100kb_s: None,
        deliver_1mb_s: None,
        deliver_10mb_s: None,
        chose: None,
        failed: false,
    })
}

fn differs(ledger: &Ledger, metric: Metric) -> bool {
    ledger.contrast(0, metric, Statistic::Mean, 0.05).is_some_and(|contrast| contrast.is_significant())
}

const METRICS: [Metric; 3] = [Metric::Goodput, Metric::Rtt, Metric::Retransmitted];

/// Half an hour of transfers of a hundred clients at different distances that share a bottleneck:
/// the metrics that an A/A split reports as different, checked every minute.
fn half_an_hour(seed: u64, by: &[&str]) -> Vec<[bool; 3]> {
    let mut random = Random::new(seed);
    let far: Vec<Span> = (0..100).map(|_| Span::from_micros(1000 + random.draw() % 60_000)).collect();
    let mut scenario = path("20mbit", "20ms", "0.5%");
    scenario.flows.clear();
    let mut remotes = Vec::new();
    for n in 0..480_u16 {
        // A few clients make much of the traffic.
        let client = (random.share().powf(1.5) * 100.0) as usize % 100;
        let start = Span::from_millis((random.share() * 1_780_000.0) as u64);
        scenario.flows.push(transfer(start, far[client]));
        remotes.push(SocketAddr::new([10, 1, client as u8, 1].into(), 2000 + n));
    }
    let run = simulated(&scenario, seed);
    let mut all: Vec<Outcome> =
        remotes.iter().enumerate().filter_map(|(flow, remote)| outcome(&run, flow, *remote)).collect();
    assert!(all.len() > 470, "{} transfers ended", all.len());
    all.sort_by(|a, b| (a.opened_unix_s + a.duration_s).total_cmp(&(b.opened_unix_s + b.duration_s)));
    let one = |by: &&str| {
        let plan = plan(by, seed);
        let (assigner, cuts) = (Assigner::new(seed, plan.by), cuts(&plan.arms.shares()));
        let (mut ledger, mut found, mut minute) = (Ledger::new(&plan), [false; 3], 1.0);
        let mut judged = false;
        for o in &all {
            while o.opened_unix_s + o.duration_s > minute * 60.0 {
                minute += 1.0;
                METRICS
                    .iter()
                    .zip(&mut found)
                    .for_each(|(metric, found)| *found |= differs(&ledger, *metric));
                judged |= ledger.contrast(0, Metric::Goodput, Statistic::Mean, 0.05).is_some();
            }
            let arm = pick(&cuts, assigner.hash(o.local, o.remote)).unwrap() as u8;
            ledger.add(&Outcome { arm, ..o.clone() });
        }
        assert!(judged, "{by}: too little for a verdict");
        found
    };
    by.iter().map(one).collect()
}

#[test]
fn two_hundred_a_a_runs_with_interim_looks_every_minute() {
    let seeds: Vec<u64> = (0..200).collect();
    let by = ["connection", "client-prefix/24"];
    let found: Vec<Vec<[bool; 3]>> =
        in_parallel(&seeds, 0, |_, seed| ControlFlow::Continue(half_an_hour(*seed, &by)))
            .into_iter()
            .flatten()
            .collect();
    assert_eq!(found.len(), 200);
    for (place, by) in by.iter().enumerate() {
        for (of, metric) in METRICS.iter().enumerate() {
            let wrong = found.iter().filter(|run| run[place][of]).count();
            println!("{by}, {metric}: a difference found in {wrong} of 200 A/A runs");
            // 8 %.
            assert!(wrong <= 16, "{by}, {metric}: {wrong} of 200");
        }
    }
}

/// Logarithms of the goodput of one transfer on each of many separate paths, with RTTs scaled by
/// `shorter`.
fn on_many_paths(shorter: f64) -> Vec<f64> {
    let numbers: Vec<u64> = (0..1500).collect();
    let one = |_: usize, number: &u64| {
        let mut random = Random::new(*number);
        let rtt_us = (20_000.0 * (1.2 * random.share()).exp() * shorter) as u64;
        let rate = 10_000 + random.draw() % 40_000;
        let mut scenario = path(&format!("{rate}kbit"), &format!("{rtt_us}us"), "0.3%");
        scenario.duration = Span::from_secs(20);
        scenario.flows = vec![transfer(Span::ZERO, Span::ZERO)];
        let run = simulated(&scenario, *number);
        let took_s = run.flows[0].summary.completion_s;
        ControlFlow::Continue((8.0 * SIZE.0 as f64 / took_s.expect("it ends in twenty seconds")).ln())
    };
    in_parallel(&numbers, 0, one).into_iter().flatten().collect()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

fn variance(of: &[f64]) -> f64 {
    let middle = mean(of);
    of.iter().map(|x| (x - middle).powi(2)).sum::<f64>() / of.len() as f64
}

/// A verdict needs a hundred connections per arm; with this many expected, fewer are unlikely, as
/// in `split plan`.
const FIRST: u64 = 260;

#[test]
fn simulated_effects_are_detected_at_the_planned_power() {
    let control = on_many_paths(1.0);
    // The effect of shorter RTTs on goodput is about the same; the actual effect is measured.
    for (about, shorter) in [(0.05, 0.94), (0.1, 0.88), (0.2, 0.78)] {
        let arm = on_many_paths(shorter);
        let effect = mean(&arm) - mean(&control);
        assert!((effect.exp_m1() - about).abs() < 0.3 * about, "{about}: {}", effect.exp_m1());
        let deviation = (0.5 * (variance(&arm) + variance(&control))).sqrt();
        let design = Design { deviation, inflation: 1.0, shares: [0.5, 0.5], alpha: 0.05, scale: 0.1 };
        let needed = design.needed(effect, 0.8, FIRST).unwrap().next_multiple_of(100);
        let printed = design.power(effect, needed, FIRST);
        let plan = plan("connection", 0);
        let found = (0..200_u64)
            .filter(|seed| {
                let (mut random, mut ledger) = (Random::new(*seed), Ledger::new(&plan));
                let template = template();
                let (assigner, cuts) = (Assigner::new(*seed, plan.by), cuts(&plan.arms.shares()));
                (0..needed).any(|n| {
                    let remote =
                        SocketAddr::new([10, (n >> 12) as u8, 0, 1].into(), 2000 + (n & 4095) as u16);
                    let place = pick(&cuts, assigner.hash(template.local, remote)).unwrap();
                    let goodput = [&arm, &control][place][(random.draw() % control.len() as u64) as usize];
                    let busy_s = 8.0 * SIZE.0 as f64 / goodput.exp();
                    ledger.add(&Outcome { arm: place as u8, remote, busy_s, ..template.clone() });
                    n % 100 == 99 && differs(&ledger, Metric::Goodput)
                })
            })
            .count();
        let power = found as f64 / 200.0;
        println!(
            "an effect of {:+.1} %, spread {deviation:.2}: {needed} transfers, found in {found} of 200; \
             the calculator says {:.0} %",
            effect.exp_m1() * 100.0,
            printed * 100.0
        );
        assert!((power - printed).abs() <= 0.1, "{about}: {power} and not {printed}");
    }
}

/// A transfer of which only the end and the duration matter.
fn template() -> Outcome {
    let mut scenario = path("20mbit", "20ms", "0");
    scenario.duration = Span::from_secs(20);
    scenario.flows = vec![transfer(Span::ZERO, Span::ZERO)];
    outcome(&simulated(&scenario, 1), 0, "10.0.0.1:2000".parse().unwrap()).unwrap()
}
