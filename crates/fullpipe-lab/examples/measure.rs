//! Runs one controller on one path and prints what came out:
//! `cargo run --release -p fullpipe-lab --example measure -- bbr 100mbit 100ms 1bdp 1% 15s`
use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    fullpipe_lab::reenter();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cc, rate, rtt, buffer, loss, duration] = &arguments[..] else {
        return Err("arguments: CC RATE RTT BUFFER LOSS DURATION".into());
    };
    let mut path = PathSpec::bottleneck(rate.parse()?, rtt.parse()?, buffer.parse()?);
    let loss: fullpipe_units::Fraction = loss.parse()?;
    path.forward[0].loss = Some(loss.into());
    let mut scenario = Scenario::new(path, cc.split('+').map(FlowSpec::bulk).collect());
    scenario.duration = duration.parse()?;
    let recording = fullpipe_lab::run(&scenario, 1, &mut |_| ControlFlow::Continue(()))?;
    println!("{:#?}", recording.summary);
    for link in &recording.links {
        println!("{}: in {} out {} drops {:?}", link.label, link.packets_in, link.packets_out, link.drops);
    }
    for flow in &recording.flows {
        println!(
            "{} {:.2} Mbit/s, {} rows",
            flow.label,
            flow.summary.goodput_bps / 1e6,
            flow.series.t_s.len()
        );
        for state in flow.states.iter().take(12) {
            print!(" {:.2}:{}", state.at_s, state.state);
        }
        println!();
    }
    println!(
        "limit {:?} {:#?} {:?}",
        recording.path.goodput_limit_bps, recording.health, recording.invalid_because
    );
    Ok(())
}
