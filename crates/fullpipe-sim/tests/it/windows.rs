//! Both engines record the same bytes, whatever a scenario file describes.

use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario, Vocabulary, parse};
use fullpipe_sim::{Controllers, Engine, SimError, Simulation};
use fullpipe_testing::files_below;
use fullpipe_units::Span;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

/// Most packets of a run at full rate: bounds the time.
const PACKETS: f64 = 60_000.0;
/// Runs per file, evenly spread over its sweep, each on one number of threads. The nightly tests set
/// `EVERY_RUN`, and try all on each number.
const RUNS: usize = 3;

/// The recording, with the scenario in it, as text: missing values are NaN, which never compares
/// equal.
fn record(scenario: &Scenario, engine: Engine, threads: usize) -> String {
    let simulation = Simulation::new(scenario, scenario.seed).engine(engine);
    let recording = simulation.threads(NonZeroUsize::new(threads).unwrap()).run().unwrap();
    serde_json::to_string(&recording).unwrap()
}

#[test]
fn scenario_files_give_the_same_bytes_event_by_event_and_in_windows_on_any_number_of_threads() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    let vocabulary = Vocabulary::new(Controllers::new().names());
    let every = std::env::var_os("EVERY_RUN").is_some();
    let (mut compared, mut in_windows) = (0, 0);
    for file in files_below(root, "toml") {
        let open = |name: &str| fs::read_to_string(file.with_file_name(name)).map_err(|e| e.to_string());
        let text = fs::read_to_string(&file).unwrap();
        let cases = parse(&file.display().to_string(), &text, &vocabulary, &open);
        let cases = cases.unwrap_or_else(|e| panic!("{e}"));
        for case in cases.iter().step_by(if every { 1 } else { cases.len().div_ceil(RUNS) }) {
            let mut s = case.scenario.clone();
            if let Some(packets) = s.max_packets().filter(|&packets| packets > PACKETS) {
                let share = PACKETS / packets;
                s.duration = Span::from_nanos((s.duration.as_nanos() as f64 * share) as u64);
                s.warmup = Span::from_nanos((s.warmup.as_nanos() as f64 * share) as u64);
                s.sample = s.sample.min(s.duration / 10);
                for flow in &mut s.flows {
                    flow.stagger = Span::from_nanos((flow.stagger.as_nanos() as f64 * share) as u64);
                }
            }
            let windowed = Simulation::new(&s, s.seed).engine(Engine::Windowed).chosen_engine().0;
            if Simulation::new(&s, s.seed)
                .max_events(1)
                .run()
                .is_err_and(|e| matches!(e, SimError::Scenario(_)))
            {
                // A flow that starts after the shortened run.
                continue;
            }
            in_windows += u32::from(windowed == Engine::Windowed);
            compared += 1;
            let expected = record(&s, Engine::Sequential, 1);
            let all = [1, 2, 4];
            for &threads in if every { &all[..] } else { std::slice::from_ref(&all[compared as usize % 3]) } {
                let same = expected == record(&s, Engine::Windowed, threads);
                assert!(same, "{}: {} on {threads} threads", file.display(), case.label());
            }
        }
    }
    assert!(in_windows > compared / 2, "{in_windows} of {compared}");
}

#[test]
fn the_engine_follows_from_the_flows_and_what_couples_them() {
    let path =
        PathSpec::bottleneck("1gbit".parse().unwrap(), "40ms".parse().unwrap(), "1bdp".parse().unwrap());
    let mut s = Scenario::new(path, vec![FlowSpec::bulk("bbr")]);
    let chosen = |s: &Scenario| Simulation::new(s, 1).chosen_engine();
    assert_eq!(chosen(&s).0, Engine::Sequential);
    s.flows[0].count = 1000;
    assert_eq!(chosen(&s).0, Engine::Windowed);
    assert_eq!(Simulation::new(&s, 1).engine(Engine::Sequential).chosen_engine().0, Engine::Sequential);
    assert_eq!(Simulation::new(&s, 1).max_events(1 << 30).chosen_engine().0, Engine::Sequential);
    s.path.reverse.clear();
    let (engine, reason) = chosen(&s);
    assert_eq!(engine, Engine::Sequential);
    assert!(reason.contains("no constant delay"), "{reason}");
}
