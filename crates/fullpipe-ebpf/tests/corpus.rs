//! The recorded corpus: callbacks of the kernel's own BBR, which both cores must repeat exactly; that they
//! cover every branch; and that a core with any one mistake would be caught.

use fullpipe_ebpf::native::{Op, Tcp};
use fullpipe_ebpf::oracle::{Reader, Record, c_core, random_that_led_to, replay, rust_core};
use std::path::{Path, PathBuf};
use std::process::Command;

fn corpus() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rec"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn records() -> impl Iterator<Item = Record> {
    corpus().into_iter().flat_map(|file| {
        Reader::new(std::fs::File::open(file).unwrap()).unwrap().map(|record| record.unwrap())
    })
}

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

/// The corpus as the C programs read it: records one after the other, the random number filled in.
fn raw(directory: &Path) -> PathBuf {
    let path = directory.join("corpus.raw");
    let mut bytes = Vec::new();
    for mut record in records() {
        record.tcp.random = random_that_led_to(&record);
        bytes.extend_from_slice(bytemuck::bytes_of(&record));
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

fn sources() -> (PathBuf, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    (root.join("bpf"), root.join("tests/oracle/replay.c"))
}

/// Whether a test that needs `tool` can run; in CI it must.
fn have(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(there || std::env::var_os("CI").is_none(), "{tool} is missing, and CI must have it");
    if !there {
        println!("SKIPPED: {tool} is not installed");
    }
    there
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

/// One mistake each: what the line says, and what it says instead.
const MUTATIONS: [(&str, &str); 34] = [
    ("BBR1_GAIN_UNIT * 2885 / 1000 + 1)", "BBR1_GAIN_UNIT * 2885 / 1000)"),
    ("#define BBR1_DRAIN_GAIN (BBR1_GAIN_UNIT * 1000 / 2885)", "#define BBR1_DRAIN_GAIN 89U"),
    ("#define BBR1_BW_WINDOW_ROUNDS (BBR1_CYCLE_LEN + 2)", "#define BBR1_BW_WINDOW_ROUNDS 9U"),
    ("#define BBR1_MIN_RTT_WINDOW_S 10U", "#define BBR1_MIN_RTT_WINDOW_S 11U"),
    ("#define BBR1_PROBE_RTT_MS 200U", "#define BBR1_PROBE_RTT_MS 201U * 2"),
    ("#define BBR1_PROBE_RTT_CWND 4U", "#define BBR1_PROBE_RTT_CWND 5U"),
    ("#define BBR1_FULL_BW_ROUNDS 3U", "#define BBR1_FULL_BW_ROUNDS 2U"),
    ("#define BBR1_LT_LOSS_THRESHOLD 50U", "#define BBR1_LT_LOSS_THRESHOLD 51U"),
    ("#define BBR1_LT_BW_RATIO (BBR1_GAIN_UNIT / 8)", "#define BBR1_LT_BW_RATIO (BBR1_GAIN_UNIT / 16)"),
    ("#define BBR1_LT_MAX_ROUNDS 48U", "#define BBR1_LT_MAX_ROUNDS 47U"),
    ("#define BBR1_AGGREGATION_WINDOW_ROUNDS 5U", "#define BBR1_AGGREGATION_WINDOW_ROUNDS 6U"),
    ("#define BBR1_AGGREGATION_EPOCH_MAX (1U << 20)", "#define BBR1_AGGREGATION_EPOCH_MAX (1U << 21)"),
    ("#define BBR1_AGGREGATION_MAX_US 100000U", "#define BBR1_AGGREGATION_MAX_US 1000U"),
    ("#define BBR1_PACING_MARGIN_PERCENT 1U", "#define BBR1_PACING_MARGIN_PERCENT 0U"),
    ("if (v >= m[0].v || t - m[2].t > window)", "if (v > m[0].v || t - m[2].t > window)"),
    ("age > window / 4", "age >= window / 4"),
    ("age > window / 2", "age >= window / 2"),
    ("rtt_us = fp_max32(c->tcp.srtt_us >> 3, 1);", "rtt_us = fp_max32(c->tcp.srtt_us >> 2, 1);"),
    (
        "c->s.prev_ca_state < FP_CA_RECOVERY && c->s.mode != BBR1_PROBE_RTT",
        "c->s.prev_ca_state < FP_CA_RECOVERY",
    ),
    ("if (c->s.min_rtt_us == ~0U)", "if (c->s.min_rtt_us == 0)"),
    ("+ BBR1_BW_UNIT - 1) >> BBR1_BW_SCALE);", ") >> BBR1_BW_SCALE);"),
    ("cwnd = (cwnd + 1) & ~1U;", "cwnd = cwnd & ~1U;"),
    ("if (c->s.mode == BBR1_PROBE_BW && c->s.cycle_idx == 0)\n\t\tcwnd += 2;", ""),
    ("return delivered >= inflight ? 0 : inflight - delivered;", "return inflight;"),
    ("c->s.lt_bw = (bw + c->s.lt_bw) >> 1;", "c->s.lt_bw = bw;"),
    ("c->s.lt_rtt_cnt > 4 * BBR1_LT_MIN_ROUNDS", "c->s.lt_rtt_cnt >= 4 * BBR1_LT_MIN_ROUNDS"),
    ("\t\tc->s.round_start = 1;\n\t\tc->s.packet_conservation = 0;", "\t\tc->s.round_start = 1;"),
    ("|| bw >= bbr1_max_bw(c))", "|| bw > bbr1_max_bw(c) + 1)"),
    ("if (c->s.ack_epoch_acked <= expected ||", "if (c->s.ack_epoch_acked < expected ||"),
    ("c->tcp.rs_rtt_us < (s64)c->s.min_rtt_us", "c->tcp.rs_rtt_us <= (s64)c->s.min_rtt_us"),
    ("expired && !c->s.idle_restart && c->s.mode", "expired && c->s.mode"),
    ("cwnd = fp_max32(cwnd, c->s.prior_cwnd);", ""),
    ("c->tcp.delivered < FP_INIT_CWND", "0"),
    ("bbr1_lt_sample(c, 1, 0);", "bbr1_lt_sample(c, 0, 0);"),
];

#[test]
fn each_deliberate_mistake_in_the_core_is_caught() {
    if !have("gcc") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (include, main) = sources();
    let raw = raw(directory.path());
    for header in CORE.into_iter().chain(["record.h"]) {
        std::fs::copy(include.join(header), directory.path().join(header)).unwrap();
    }
    let program = directory.path().join("mutant");
    let mut survivors = Vec::new();
    for (original, mutant) in MUTATIONS {
        let (header, source) = CORE
            .into_iter()
            .map(|header| (header, std::fs::read_to_string(include.join(header)).unwrap()))
            .find(|(_, source)| source.contains(original))
            .unwrap_or_else(|| panic!("the core no longer says: {original}"));
        std::fs::write(directory.path().join(header), source.replacen(original, mutant, 1)).unwrap();
        compile(directory.path(), &main, &program, &["-O1"]);
        std::fs::write(directory.path().join(header), source).unwrap();
        let (_, mismatches) = run(&program, &raw, directory.path());
        println!("{mismatches:>8} mismatches: {} -> {}", original.trim(), mutant.trim());
        if mismatches == 0 {
            survivors.push(original);
        }
    }
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
}
