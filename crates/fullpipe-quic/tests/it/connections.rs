use crate::world::{World, flow, link};

#[test]
fn own_controllers_fill_a_path() {
    for cc in ["noq/cubic", "quinn/cubic", "noq/reno", "quinn/reno", "noq/bbr3", "quinn/bbr"] {
        let started = std::time::Instant::now();
        let forward = [link("rate = '100mbit'\ndelay = '20ms'\nqueue = '1bdp'")];
        let mut world = World::new(&flow(cc), &forward, &[link("delay = '20ms'")], 1);
        let goodput = world.bulk(std::env::var("SECS").ok().and_then(|s| s.parse().ok()).unwrap_or(10.0));
        eprintln!(
            "{cc}: {:.2} Mbit/s, sent {} dropped {} queue {} failure {:?} cpu {:?} {:?} {:#?}",
            goodput / 1e6,
            world.sent,
            world.dropped,
            world.median_queue(),
            world.failure(),
            started.elapsed(),
            world.transport,
            world.transport.telemetry(),
        );
    }
}
