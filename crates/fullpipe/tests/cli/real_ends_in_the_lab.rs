//! Compares TCP end points of the simulator and the kernel. Receive and send buffers allow the same
//! throughput if the simulator accounts for them as Linux does; otherwise the lab is 25 % faster
//! with a receive buffer, and 8 % slower with a send buffer. Timeouts occur at the same time if the
//! simulator has the kernel's timers; otherwise the lab is about 20 ms late.

use crate::lab;
use crate::program;
use crate::program::{fullpipe, output_within, tied};
use fullpipe_testing::{Attempt, check_brief_claim, check_claim, failed_checks, invalid_reasons};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Serialises the tests, which need the whole machine.
static ALONE: Mutex<()> = Mutex::new(());

/// CUBIC with a receive buffer of 500 kB over 100 ms, 20 Mbit/s with half of it.
fn receiving(auto_tuning: bool) -> String {
    format!(
        "duration = '8s'\nwarmup = '3s'\n[path]\nrate = '200mbit'\nrtt = '100ms'\n\
         [[flow]]\ncc = 'cubic'\nreceive_buffer = '500kB'\nauto_tuning = {auto_tuning}\n"
    )
}

/// CUBIC with a send buffer of 256 kB over 80 ms, 25.6 Mbit/s with all of it.
fn sending(tso: &str) -> String {
    format!(
        "duration = '6s'\nwarmup = '2s'\n[path]\nrate = '100mbit'\nrtt = '80ms'\n\
         [[flow]]\ncc = 'cubic'\nsend_buffer = '256kB'\n{tso}\n"
    )
}

/// The only run of a scenario; `None` if the lab is not possible on this machine.
fn run(engine: &str, scenario: &str) -> Option<Value> {
    run_by(fullpipe(), engine, scenario)
}

/// The same with a given command.
fn run_by(mut command: Command, engine: &str, scenario: &str) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("buffer.toml");
    fs::write(&file, scenario).unwrap();
    command.arg("run").arg(&file).args(["--engine", engine, "--again", "0", "--json"]);
    let output = output_within(&mut command, Duration::from_secs(100)).expect("it did not end in time");
    if lab::is_missing(&output) {
        return None;
    }
    // The exit code also reports an invalid run.
    let results: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    Some(results["runs"][0].clone())
}

/// A transfer of 100 kB whose very last packet is lost, which only a timer detects.
fn last_lost(timer: &str) -> String {
    format!(
        "duration = '2s'\n[path]\nrate = '100mbit'\nrtt = '50ms'\nbuffer = '1bdp'\nloss = {{ kind = \
         'list', packets = [72] }}\n\
         [[flow]]\ncc = 'cubic'\nsize = '100kB'\n{timer}\n"
    )
}

fn completed(run: &Value) -> f64 {
    run["summary"]["completion_s"].as_f64().unwrap() * 1e3
}

#[test]
fn a_simulated_timeout_is_as_late_as_the_kernels() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hz = fullpipe_kernel::facts::tick_rate().expect("every Linux tells the resolution of its clocks");
    let exact = completed(&run("sim", &last_lost("")).unwrap());
    let on_the_wheel: Vec<f64> = (1..=32)
        .map(|seed| format!("seed = {seed}\n{}", last_lost(&format!("timer_hz = {hz}"))))
        .map(|scenario| completed(&run("sim", &scenario).unwrap()))
        .collect();
    let least = on_the_wheel.iter().copied().fold(f64::INFINITY, f64::min);
    let most = on_the_wheel.iter().copied().fold(0.0, f64::max);
    // A timer 63 ticks or more ahead is late by up to an eighth of that, at least until the next
    // tick.
    let tick = 1e3 / f64::from(hz);
    assert!(
        least >= exact + tick / 2.0 && most <= exact + 250.0 / 7.0 + 2.0 * tick,
        "{exact}: {on_the_wheel:?}"
    );
    check_brief_claim("a time-out by the kernel's ticks", || {
        let run = run("lab", &last_lost(""))?;
        let got = completed(&run);
        // Emulator and end points may be late as well, but never early.
        let wrong = format!("{got:.1} ms; exactly {exact:.1}, by ticks {least:.1} to {most:.1}");
        Some(Attempt {
            disturbances: invalid_reasons(&run),
            failures: failed_checks([((least - 1.0..most + 20.0).contains(&got), wrong)]),
        })
    });
}

/// The ACK of the last packet's probe is delayed if the window has stopped growing and an even
/// number of segments was acknowledged before. Both hold with two of the initial buffers; a
/// simulator with other window growth completes 40 ms earlier.
#[test]
fn windows_start_and_grow_as_in_the_lab() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for first in ["128KiB", "1MiB"] {
        let ends = format!("auto_tuning = true\nreceive_buffer = '32MiB'\nfirst_receive_buffer = '{first}'");
        let exact = completed(&run("sim", &last_lost(&format!("{ends}\ntso = true"))).unwrap());
        assert!((525.0..529.0).contains(&exact), "{first}: {exact} ms");
        check_brief_claim(&format!("a window from a buffer of {first}"), || {
            let run = run("lab", &last_lost(&ends))?;
            let got = completed(&run);
            // Timer ticks delay a probe 63 ticks ahead by up to eight more, and the end points may
            // be late.
            Some(Attempt {
                disturbances: invalid_reasons(&run),
                failures: failed_checks([(
                    (exact - 1.0..exact + 60.0).contains(&got),
                    format!("{got:.1} of {exact:.1} ms"),
                )]),
            })
        });
    }
}

/// Emulator and end points share a processor: none may wait for another that it prevents from
/// running, or the run never ends.
#[test]
fn one_processor_is_enough_for_a_lab() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let first = allowed.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let scenario =
        "duration = '3s'\nwarmup = '1s'\n[path]\nrate = '20mbit'\nrtt = '20ms'\n[[flow]]\ncc = 'bbr'\n";
    check_claim("a lab on one processor", || {
        let mut command = Command::new("taskset");
        command.args(["-c", first]).arg(program::path());
        tied(&mut command).stdin(Stdio::null());
        let run = run_by(command, "lab", scenario)?;
        let got = mbit(&run);
        Some(Attempt {
            disturbances: invalid_reasons(&run),
            failures: failed_checks([((18.0..19.4).contains(&got), format!("{got} of 19.3 Mbit/s"))]),
        })
    });
}

fn mbit(run: &Value) -> f64 {
    run["summary"]["goodput_bps"].as_f64().unwrap() / 1e6
}

#[test]
fn both_engines_agree_with_linux_buffer_accounting() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Throughput with 160/256 of the receive buffer as window and with half of it; with a send
    // buffer that has overhead and is filled by thirds, and with all of it.
    let cases = [
        ("tuned", receiving(true), receiving(true), 24.0..25.1, -0.04..0.04),
        ("not tuned", receiving(false), receiving(false), 19.5..20.1, 0.18..0.3),
        ("kept as Linux does", sending("tso = true"), sending(""), 23.0..24.5, -0.04..0.04),
        ("kept in bytes", sending(""), sending(""), 25.2..25.7, -0.11..-0.05),
    ];
    for (what, simulated, real, expected, apart) in cases {
        let sim = mbit(&run("sim", &simulated).expect("the simulator is everywhere"));
        assert!(expected.contains(&sim), "{what}: {sim} Mbit/s");
        check_claim(&format!("a buffer {what}"), || {
            let run = run("lab", &real)?;
            let got = mbit(&run) / sim - 1.0;
            Some(Attempt {
                disturbances: invalid_reasons(&run),
                failures: failed_checks([(
                    apart.contains(&got),
                    format!("the lab carries {got:+.3} of {sim}"),
                )]),
            })
        });
    }
}
