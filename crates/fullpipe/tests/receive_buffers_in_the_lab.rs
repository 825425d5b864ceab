//! What receive buffers let through, in the simulator and on the kernel's TCP: the same where the simulator tunes as Linux does, and a
//! quarter more in the lab where it does not.

mod lab;
mod program;

use fullpipe_testing::{Attempt, doubts, failed, shows};
use program::{fullpipe, output_within};
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// The only run of a flow with a receive buffer of 500 kB over 100 ms; `None` when this machine cannot make a lab.
fn run(engine: &str, cc: &str, auto_tuning: bool) -> Option<Value> {
    let scenario = format!(
        "duration = '8s'\nwarmup = '3s'\n[path]\nrate = '200mbit'\nrtt = '100ms'\n\
         [[flow]]\ncc = '{cc}'\nreceive_buffer = '500kB'\nauto_tuning = {auto_tuning}\n"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("buffer.toml");
    fs::write(&file, scenario).unwrap();
    let mut command = fullpipe();
    command.arg("run").arg(&file).args(["--engine", engine, "--json"]);
    let output = output_within(&mut command, Duration::from_secs(100)).expect("it did not end in time");
    if lab::is_missing(&output) {
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(results["runs"][0].clone())
}

fn mbit(run: &Value) -> f64 {
    run["summary"]["goodput_bps"].as_f64().unwrap() / 1e6
}

#[test]
fn both_engines_carry_what_a_tuned_buffer_lets_them() {
    // What it may be with 160 of 256 parts of the buffer as window, and with half of it.
    for (auto_tuning, simulated) in [(true, 24.0..25.1), (false, 19.5..20.1)] {
        let sim = mbit(&run("sim", "cubic", auto_tuning).expect("the simulator is everywhere"));
        assert!(simulated.contains(&sim), "{sim} Mbit/s, auto_tuning {auto_tuning}");
        shows(&format!("a receive buffer, auto_tuning {auto_tuning}"), || {
            let run = run("lab", "cubic", auto_tuning)?;
            let apart = mbit(&run) / sim - 1.0;
            let expected = if auto_tuning { apart.abs() < 0.04 } else { (0.18..0.3).contains(&apart) };
            Some(Attempt {
                doubts: doubts(&run),
                wrong: failed([(expected, format!("the lab carries {apart:+.3} of {sim}"))]),
            })
        });
    }
}
