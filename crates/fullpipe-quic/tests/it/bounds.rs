//! How close a controller in a QUIC stack comes to the same controller in the simulated TCP.

use crate::world::{flow, link};
use fullpipe_experiment::Scenario;
use fullpipe_experiment::scenario::PathSpec;
use fullpipe_quic::harness::Stacks;
use fullpipe_sim::Simulation;
use fullpipe_units::Span;

/// Goodput in Mbit/s and median queue in bytes, means of five seeds.
#[derive(Clone, Copy, Debug)]
struct Means {
    goodput: f64,
    queue: f64,
}

/// Ten seconds of one flow of `cc` over 100 Mbit/s, 40 ms and a queue of one BDP.
fn means(cc: &str, loss: &str) -> Means {
    const SEEDS: u64 = 5;
    let forward = link(&format!("rate = '100mbit'\ndelay = '20ms'\nqueue = '1bdp'\nloss = '{loss}'"));
    let path = PathSpec { forward: vec![forward], reverse: vec![link("delay = '20ms'")] };
    let scenario = Scenario { duration: Span::from_secs(10), ..Scenario::new(path, vec![flow(cc)]) };
    let mut sum = Means { goodput: 0.0, queue: 0.0 };
    for seed in 1..=SEEDS {
        let recording = Simulation::new(&scenario, seed).transports(&Stacks).run().unwrap();
        sum.goodput += recording.flows[0].summary.goodput_bps / 1e6;
        let mut queue: Vec<f64> = recording.links[0].series.get("queue_bytes").unwrap().to_vec();
        queue.sort_by(f64::total_cmp);
        sum.queue += queue[queue.len() / 2];
    }
    Means { goodput: sum.goodput / SEEDS as f64, queue: sum.queue / SEEDS as f64 }
}

/// Compares the controller in both stacks with the simulated TCP. `within` are the shares by which
/// goodput may differ without loss and at 1 %.
fn compare(cc: &str, within: [f64; 2]) -> Vec<Means> {
    let mut all = Vec::new();
    for (loss, within) in ["0%", "1%"].into_iter().zip(within) {
        let tcp = means(cc, loss);
        println!("{cc}, loss {loss}: {:.2} Mbit/s, queue {:.1} kB", tcp.goodput, tcp.queue / 1e3);
        for stack in ["noq", "quinn"] {
            let quic = means(&format!("{cc}@{stack}"), loss);
            let differs = quic.goodput / tcp.goodput - 1.0;
            println!(
                "{cc}@{stack}, loss {loss}: {:.2} Mbit/s ({:+.1} %), queue {:.1} kB",
                quic.goodput,
                100.0 * differs,
                quic.queue / 1e3
            );
            assert!(differs.abs() <= within, "{cc}@{stack}, loss {loss}: {quic:?}, TCP {tcp:?}");
            all.push(quic);
        }
    }
    all
}

#[test]
fn bbr3_over_quic_is_close_to_bbr3_over_tcp() {
    for quic in compare("bbr3", [0.04, 0.05]) {
        assert!(quic.queue <= 15e3, "{quic:?}");
    }
}

#[test]
fn bbr_over_quic_is_close_to_bbr_over_tcp() {
    compare("bbr", [0.05, 0.05]);
}

#[test]
fn cubic_over_quic_is_close_to_cubic_over_tcp() {
    compare("cubic", [0.05, 0.2]);
}
