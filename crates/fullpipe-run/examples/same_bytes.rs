//! Prints a hash of what the simulator records of each scenario file: `same_bytes LIMIT FILE...`
//!
//! LIMIT is the number of packets per file: of a larger file the runs are simulated for a shorter
//! time. `scripts/same-bytes` builds this for several processors and compares the output.

use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{Case, parse};
use fullpipe_run::{Engine, RunError, files_in, read_scenario, run, vocabulary};
use fullpipe_units::Span;
use std::error::Error;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

/// FNV-1a with 128 bits.
fn hash(bytes: &[u8], state: u128) -> u128 {
    bytes.iter().fold(state, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b))
}

fn packets(case: &Case) -> f64 {
    let scenario = &case.scenario;
    // Nothing bounds some paths but their windows.
    let rate = scenario.highest_rate().map_or(1e9, |rate| rate.as_bits_per_sec_f64());
    rate * scenario.duration.as_secs_f64() / (8.0 * f64::from(scenario.mtu))
}

/// The recording of the first part of a case, which is longer where flows would start after its end.
fn recording(case: &Case, share: f64) -> Result<Recording, RunError> {
    let mut shorter = case.clone();
    if share < 1.0 {
        let part = |span: Span| Span::from_nanos((span.as_secs_f64() * share * 1e9) as u64);
        shorter.scenario.duration = part(case.scenario.duration) + Span::from_millis(50);
        shorter.scenario.warmup = part(case.scenario.warmup);
    }
    match run(&shorter, &mut |_| ControlFlow::Continue(())) {
        Err(_) if share < 1.0 => recording(case, share * 2.0),
        outcome => outcome,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let limit: f64 = arguments.next().ok_or("usage: same_bytes LIMIT FILE...")?.parse()?;
    for name in arguments {
        let path = Path::new(&name);
        let text = read_scenario(&name, File::open(path)?)?;
        let open = files_in(path.parent().unwrap_or(Path::new("")).to_owned());
        let cases = parse(&name, &text, &vocabulary(&[Engine::Sim]), &open)?;
        let share = (limit / cases.iter().map(packets).sum::<f64>()).min(1.0);
        let mut state = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for case in &cases {
            state = hash(&serde_json::to_vec(&recording(case, share)?)?, state);
        }
        let note = if share < 1.0 { format!("{:.1}%", share * 100.0) } else { "whole".to_owned() };
        println!("{name} {} {note} {state:032x}", cases.len());
    }
    Ok(())
}
