use crate::world::{World, flow, link};
use fullpipe_experiment::scenario::FlowSpec;
use fullpipe_quic::harness::Stacks;
use fullpipe_sim::{Opening, Transports};

#[test]
fn every_controller_fills_a_path_and_recovers_from_loss() {
    let names = Stacks.names();
    assert_eq!(names.len(), 2 * (fullpipe_cc::CONTROLLERS.len() + 3));
    for cc in names.iter().filter(|cc| !cc.starts_with("fixed")) {
        // TCP-LP halves its window as soon as a queue delays its packets, and again after that.
        let least = if cc.starts_with("lp@") { [12e6, 2e6] } else { [18e6, 3e6] };
        for (loss, least) in ["0%", "1%"].into_iter().zip(least) {
            let forward =
                [link(&format!("rate = '25mbit'\ndelay = '10ms'\nqueue = '1bdp'\nloss = '{loss}'"))];
            let mut world = World::new(&flow(cc), &forward, &[link("delay = '10ms'")], 1);
            let goodput = world.bulk(5.0);
            assert!(world.failure().is_none() && goodput > least, "{cc}, loss {loss}: {goodput:.0} bit/s");
            let telemetry = world.transport.telemetry();
            assert!(telemetry.sent.abs_diff(world.sent) <= 3, "{cc}: {telemetry:?}");
            assert!(telemetry.srtt > telemetry.rtt.map(|rtt| rtt / 2) && telemetry.window > 0);
        }
    }
}

#[test]
fn jumbo_frames_and_small_first_windows_fill_a_path() {
    for cc in ["cubic@noq", "noq/cubic", "cubic@quinn", "quinn/cubic"] {
        for initial_window in [2, 10] {
            let flow = FlowSpec { initial_window, ..flow(cc) };
            let opening = Opening { flow: &flow, mtu: 9000, seed: 1 };
            let forward = [link("rate = '25mbit'\ndelay = '10ms'\nqueue = '100p'")];
            let transport = Stacks.open(&opening).unwrap();
            let mut world = World::with(transport, &forward, &[link("delay = '10ms'")], 1);
            let goodput = world.bulk(5.0);
            assert!(goodput > 18e6, "{cc}, {initial_window} packets at first: {goodput:.0} bit/s");
        }
    }
}
