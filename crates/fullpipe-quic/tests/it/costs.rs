//! What a controller costs in a stack: CPU time per packet of whole connections, as ratios of
//! medians of interleaved runs.

use crate::world::{World, flow, link};

/// CPU time of this thread in nanoseconds.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn world(cc: &str) -> World {
    let forward = link("rate = '100mbit'\ndelay = '20ms'\nqueue = '1bdp'");
    World::new(&flow(cc), &[forward], &[link("delay = '20ms'")], 1)
}

/// CPU nanoseconds per packet of the sender in 20 s at 100 Mbit/s.
fn cost(cc: &str) -> f64 {
    let mut world = world(cc);
    let start = cpu_time();
    world.bulk(20.0);
    (cpu_time() - start) as f64 / world.sent as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// `cargo test --release -p fullpipe-quic --test it costs -- --ignored --nocapture`
#[test]
#[ignore = "a benchmark"]
fn our_controllers_cost_little_more_than_the_stacks_own() {
    let pairs = [
        ("cubic@noq", "noq/cubic", 1.1),
        ("cubic@quinn", "quinn/cubic", 1.1),
        ("bbr3@quinn", "quinn/cubic", 1.1),
        ("bbr3@noq", "noq/bbr3", 0.9),
    ];
    let mut exceeded = Vec::new();
    for (ours, own, bound) in pairs {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            a.push(cost(ours));
            b.push(cost(own));
        }
        let (a, b) = (median(a), median(b));
        println!("{ours}: {a:.0} ns per packet, {own}: {b:.0}; {:.2}, at most {bound}", a / b);
        if a > bound * b {
            exceeded.push(ours);
        }
    }
    assert!(exceeded.is_empty(), "{exceeded:?}");
}

/// As above.
#[test]
#[ignore = "a benchmark"]
fn a_hundred_megabytes_take_half_a_second() {
    for cc in ["bbr3@noq", "bbr3@quinn", "cubic@noq", "cubic@quinn"] {
        let seconds = median(
            (0..5)
                .map(|_| {
                    let mut world = world(cc);
                    let start = cpu_time();
                    world.open();
                    world.write(100_000_000);
                    world.finish(false);
                    while world.transport.delivered() < 100_000_000 {
                        world.run(0.1);
                        assert_eq!(world.failure(), None);
                    }
                    (cpu_time() - start) as f64 / 1e9
                })
                .collect(),
        );
        println!("{cc}: 100 MB in {seconds:.2} s of CPU time");
        assert!(seconds <= 0.5, "{cc}");
    }
}
