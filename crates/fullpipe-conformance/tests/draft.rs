//! BBR v3 passes the draft's cases in the simulator, on every path; and a controller with any one
//! constant changed does not. `CASE=name` runs one case alone.

use fullpipe_conformance::{CASES, Case};
use fullpipe_experiment::Recording;
use std::ops::ControlFlow;

/// What each case on each path complains of, on all cores; with `first` only until there is a
/// complaint.
fn failures(cases: &[&Case], settings: &[(&str, &str)], first: bool) -> Vec<String> {
    let jobs: Vec<_> =
        cases.iter().flat_map(|case| case.paths().into_iter().map(move |s| (*case, s))).collect();
    let all = fullpipe_run::in_parallel(&jobs, 0, |_, (case, path)| {
        let runs = case.runs(path, "bbr3", settings).unwrap();
        let simulate = |run| fullpipe_run::run(run, &mut |_| ControlFlow::Continue(())).unwrap();
        let recordings: Vec<Recording> = runs.iter().map(simulate).collect();
        let lines =
            case.judge(path, &runs, &recordings).into_iter().map(|c| format!("{} ({path}): {c}", case.name));
        let lines: Vec<String> = lines.collect();
        if first && !lines.is_empty() { ControlFlow::Break(lines) } else { ControlFlow::Continue(lines) }
    });
    let mut all: Vec<String> = all.into_iter().flatten().flatten().collect();
    all.sort();
    all
}

#[test]
fn bbr3_passes_every_case_on_every_path() {
    let only = std::env::var("CASE").ok();
    let cases: Vec<&Case> = CASES.iter().filter(|c| only.as_ref().is_none_or(|n| n == c.name)).collect();
    let failures = failures(&cases, &[], false);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// A constant each, changed to what a slip of the pen or an older version of the algorithm might
/// have.
const MUTATIONS: &[(&str, &str)] = &[
    ("startup_pacing_gain", "2.885"),
    ("startup_cwnd_gain", "2.885"),
    ("drain_pacing_gain", "0.35"),
    ("default_cwnd_gain", "2.5"),
    ("probe_down_pacing_gain", "0.75"),
    ("probe_cruise_pacing_gain", "0.98"),
    ("probe_refill_pacing_gain", "1.1"),
    ("probe_up_pacing_gain", "1.5"),
    ("probe_up_cwnd_gain", "2"),
    ("probe_rtt_pacing_gain", "0.8"),
    ("probe_rtt_cwnd_gain", "0.25"),
    ("pacing_margin_percent", "0"),
    ("loss_thresh_permille", "10"),
    ("loss_thresh_permille", "100"),
    ("beta_percent", "50"),
    ("beta_percent", "85"),
    ("headroom_percent", "0"),
    ("headroom_percent", "30"),
    ("min_pipe_cwnd_packets", "2"),
    ("min_pipe_cwnd_packets", "8"),
    ("full_bw_growth", "1.6"),
    ("full_bw_rounds", "1"),
    ("full_bw_rounds", "6"),
    ("startup_full_loss_count", "2"),
    ("startup_full_loss_count", "12"),
    ("drain_rounds", "1"),
    ("drain_rounds", "6"),
    ("extra_acked_rounds", "1"),
    ("min_rtt_filter_ms", "5000"),
    ("min_rtt_filter_ms", "20000"),
    ("probe_rtt_interval_ms", "10000"),
    ("probe_rtt_interval_ms", "2500"),
    ("probe_rtt_duration_ms", "50"),
    ("probe_rtt_duration_ms", "800"),
    ("probe_wait_base_ms", "1000"),
    ("probe_wait_base_ms", "4000"),
    ("probe_wait_random_ms", "4000"),
    ("probe_max_rounds", "30"),
    ("probe_max_rounds", "120"),
];

#[test]
fn any_constant_changed_makes_a_case_fail() {
    let cases: Vec<&Case> = CASES.iter().collect();
    let mut survived = Vec::new();
    for (key, value) in MUTATIONS {
        match failures(&cases, &[(key, value)], true).first() {
            Some(complaint) => println!("killed   {key} = {value}: {complaint}"),
            None => survived.push(format!("{key} = {value}")),
        }
    }
    assert!(survived.is_empty(), "no case notices: {}", survived.join(", "));
}
