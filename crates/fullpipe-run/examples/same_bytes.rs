//! Prints a hash of what the simulator records of each scenario file: `same_bytes LIMIT FILE...`
//!
//! LIMIT is the number of packets per file: of a larger file the runs are simulated for a shorter
//! time. `scripts/same-bytes` builds this for several processors and compares the output.

use fullpipe_experiment::scenario::{Case, Vocabulary, parse};
use fullpipe_run::{Engine, files_in, read_scenario, run, vocabulary};
use fullpipe_units::Span;
use std::error::Error;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

/// FNV-1a with 128 bits.
fn hash(bytes: &[u8], state: u128) -> u128 {
    bytes.iter().fold(state, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b))
}

/// Assumed packets per second of a path without a rate limit: 1 Gbit/s.
const UNLIMITED: f64 = 1e9 / (8.0 * 1500.0);

fn packets(case: &Case) -> f64 {
    let scenario = &case.scenario;
    scenario.max_packets().unwrap_or_else(|| UNLIMITED * scenario.duration.as_secs_f64())
}

/// The first part of a case.
fn first_part(case: &Case, share: f64) -> Case {
    let mut shorter = case.clone();
    if share < 1.0 {
        let part = |span: Span| Span::from_nanos((span.as_secs_f64() * share * 1e9) as u64);
        shorter.scenario.duration = part(case.scenario.duration) + Span::from_millis(50);
        shorter.scenario.warmup = part(case.scenario.warmup);
    }
    shorter
}

/// The first part of all cases, and its share: `share`, or more where that part would be invalid,
/// for example because a flow starts after its end.
fn first_parts(cases: &[Case], mut share: f64, vocabulary: &Vocabulary) -> (Vec<Case>, f64) {
    loop {
        let parts: Vec<Case> = cases.iter().map(|case| first_part(case, share)).collect();
        if share >= 1.0 || parts.iter().all(|part| part.scenario.validate(vocabulary).is_ok()) {
            return (parts, share);
        }
        share = (share * 2.0).min(1.0);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let limit: f64 = arguments.next().ok_or("usage: same_bytes LIMIT FILE...")?.parse()?;
    for name in arguments {
        let path = Path::new(&name);
        let text = read_scenario(&name, File::open(path)?)?;
        let open = files_in(path.parent().unwrap_or(Path::new("")).to_owned());
        let vocabulary = vocabulary(&[Engine::Sim]);
        let cases = parse(&name, &text, &vocabulary, &open)?;
        let share = (limit / cases.iter().map(packets).sum::<f64>()).min(1.0);
        let (parts, share) = first_parts(&cases, share, &vocabulary);
        let mut state = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for part in &parts {
            let recording = run(part, &mut |_| ControlFlow::Continue(()))?;
            state = hash(&serde_json::to_vec(&recording)?, state);
        }
        let note = if share < 1.0 { format!("{:.1}%", share * 100.0) } else { "whole".to_owned() };
        println!("{name} {} {note} {state:032x}", cases.len());
    }
    Ok(())
}
