//! The recorded corpus: callbacks of the kernel's own BBR, which both cores must repeat exactly;
//! that they cover every branch. (mutants.rs asks whether a core with any one mistake would be
//! caught.)

use crate::corpus_files::{have, raw, records};
use fullpipe_ebpf::native::{Op, Tcp};
use fullpipe_ebpf::oracle::{c_core, replay, rust_core};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn both_cores_repeat_every_recorded_callback() {
    for (name, core) in [
        ("C", &mut c_core as &mut dyn FnMut(u64, &mut _, &mut Tcp, Op, u32) -> u32),
        ("Rust", &mut rust_core),
    ] {
        let report = replay(records().map(Ok), core).unwrap();
        println!("{name} core: {report}");
        assert_eq!(report.mismatches, 0, "{name} core: {report}");
        assert!(report.records >= 50_000, "{}", report.records);
        assert!(Op::ALL.len() == report.by_op.len(), "every callback is there: {report}");
    }
}

#[test]
fn every_state_and_event_that_matters_is_in_the_corpus() {
    let (mut modes, mut phases, mut long_term, mut conserving, mut idle) = ([0u64; 4], [0u64; 8], 0, 0, 0);
    for record in records() {
        modes[record.mode_after() as usize] += 1;
        if record.mode_after() == 2 {
            phases[record.cycle_after() as usize] += 1;
        }
        let modes_word = record.state_after[7] as u32;
        long_term += u64::from(modes_word >> 31);
        conserving += u64::from(modes_word >> 6 & 1);
        idle += u64::from(modes_word >> 8 & 1);
    }
    println!("STARTUP, DRAIN, PROBE_BW, PROBE_RTT: {modes:?}; phases of PROBE_BW: {phases:?}");
    println!("long-term bandwidth {long_term}, packet conservation {conserving}, idle restart {idle}");
    assert!(modes.iter().chain(&phases).all(|count| *count >= 20));
    assert!(long_term >= 20 && conserving >= 20 && idle >= 20);
}

fn sources() -> (PathBuf, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    (root.join("bpf"), root.join("tests/oracle/replay.c"))
}

fn run(program: &Path, raw: &Path, directory: &Path) -> (u64, u64) {
    let output = Command::new(program).arg(raw).current_dir(directory).output().unwrap();
    // A mutant may divide by zero: that is caught too.
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    match (numbers.next(), numbers.next()) {
        (Some(records), Some(mismatches)) => (records, mismatches),
        _ => (0, u64::MAX),
    }
}

fn compile(include: &Path, main: &Path, to: &Path, options: &[&str]) {
    let output = Command::new("gcc")
        .args(options)
        .args(["-Wno-unused-function", "-I"])
        .arg(include)
        .arg(main)
        .arg("-o")
        .arg(to)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_corpus_takes_every_branch_of_the_core_both_ways() {
    if !have("gcc") || !have("gcov") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (include, main) = sources();
    let program = directory.path().join("covered");
    compile(&include, &main, &program, &["-O0", "--coverage", "-DFP_INLINE=static"]);
    let raw = raw(directory.path());
    assert_eq!(run(&program, &raw, directory.path()).1, 0);

    let output = Command::new("gcov")
        .args(["--json-format", "--stdout", "--branch-probabilities"])
        .arg(directory.path().join("covered-replay.gcda"))
        .current_dir(directory.path())
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (mut branches, mut taken, mut missing) = (0, 0, Vec::new());
    for header in CORE {
        let file = report["files"]
            .as_array()
            .unwrap()
            .iter()
            .find(|file| file["file"].as_str().unwrap().ends_with(header))
            .unwrap();
        let source: Vec<String> =
            std::fs::read_to_string(include.join(header)).unwrap().lines().map(str::to_owned).collect();
        for line in file["lines"].as_array().unwrap() {
            let number = line["line_number"].as_u64().unwrap() as usize;
            let text = source[number - 1].trim();
            // Not the kernel's: the NULL checks that the verifier wants, and guards against dividing by zero.
            if text == "if (!c)"
                || text == "if (!interval_us)"
                || text.starts_with("default:")
                || text == "switch (op) {"
            {
                continue;
            }
            for (branch, count) in line["branches"].as_array().unwrap().iter().enumerate() {
                branches += 1;
                if count["count"].as_u64().unwrap() > 0 {
                    taken += 1;
                } else {
                    missing.push(format!("{header}, line {number}, branch {branch}: {text}"));
                }
            }
        }
    }
    println!("{taken} of {branches} branches taken");
    assert!(missing.is_empty(), "{taken} of {branches}; not taken:\n{}", missing.join("\n"));
    assert!(branches > 150, "{branches}");
}

/// The headers whose code is BBR v1's.
const CORE: [&str; 2] = ["bbr1.h", "types.h"];
