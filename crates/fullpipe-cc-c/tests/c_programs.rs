//! The header, and C programs that link the static library.

use fullpipe_cc::*;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const HEADER: &str = "include/fullpipe_cc.h";
const WARNINGS: &[&str] = &["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn temporary() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cc-c");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a program to its end; its output.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The static library, built once for each profile. The target folder is not that of the Cargo that
/// runs this test and holds its lock.
fn library(profile: &'static str) -> &'static Path {
    static RELEASE: OnceLock<PathBuf> = OnceLock::new();
    static CHECKED: OnceLock<PathBuf> = OnceLock::new();
    let built = if profile == "release" { &RELEASE } else { &CHECKED };
    built.get_or_init(|| {
        let target = temporary().join("target");
        output(
            Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--offline", "--locked", "--profile", profile, "--manifest-path"])
                .arg(root().join("staticlib/Cargo.toml"))
                .arg("--target-dir")
                .arg(&target),
        );
        target.join(profile).join("libfullpipe_cc.a")
    })
}

/// Whether `compiler` is installed. Without it a test is skipped, which is a failure in CI.
fn has(compiler: &str) -> bool {
    let found = Command::new(compiler).arg("--version").output().is_ok();
    if !found {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{compiler} is missing: ci/packages.txt");
        println!("SKIPPED: C programs: {compiler} is missing: install the packages of ci/packages.txt");
    }
    found
}

/// Compiles a C program and links it with the static library of `profile`.
fn compile(source: &str, profile: &'static str, flags: &[&str]) -> Command {
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let program = temporary().join(format!("{name}-{profile}"));
    output(
        Command::new("gcc")
            .args(WARNINGS)
            .args(flags)
            .arg("-I")
            .arg(root().join("include"))
            .arg(root().join(source))
            .arg(library(profile))
            .arg("-o")
            .arg(&program),
    );
    Command::new(program)
}

fn compile_sanitized(source: &str) -> Command {
    let mut program = compile(
        source,
        "checked",
        &[
            "-g",
            "-O1",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            "-fno-omit-frame-pointer",
        ],
    );
    program.env("ASAN_OPTIONS", "detect_stack_use_after_return=1:strict_string_checks=1");
    program
}

#[test]
fn header_is_up_to_date() {
    let mut config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let about = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let about = about.lines().map_while(|line| line.strip_prefix("//!"));
    let about: Vec<String> = about.map(|line| format!("//{line}")).collect();
    config.header = Some(about.join("\n"));
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["types", "controller", "events", "queries", "helpers", "registry"] {
        builder = builder.with_src(root().join("src").join(file).with_extension("rs"));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    let text = String::from_utf8(text).unwrap();
    if std::env::var_os("FULLPIPE_WRITE_HEADER").is_some() {
        fs::write(root().join(HEADER), &text).unwrap();
    }
    let committed = fs::read_to_string(root().join(HEADER)).unwrap_or_default();
    assert!(
        text == committed,
        "{HEADER} is out of date: run FULLPIPE_WRITE_HEADER=1 cargo test -p fullpipe-cc-c"
    );
}

#[test]
fn version_macro_is_that_of_the_crate() {
    let number = |text: &str| text.parse::<u32>().unwrap();
    let version = number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
        | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
        | number(env!("CARGO_PKG_VERSION_PATCH"));
    assert_eq!(fullpipe_cc_c::FULLPIPE_CC_VERSION, version);
    let manifest = fs::read_to_string(root().join("staticlib/Cargo.toml")).unwrap();
    assert!(manifest.contains(&format!("version = \"{}\"", env!("CARGO_PKG_VERSION"))));
}

/// The example is short enough to be read, and exits with an error if bbr3 does not fill the link.
#[test]
fn example_sender_fills_the_link() {
    if !has("gcc") {
        return;
    }
    let lines = fs::read_to_string(root().join("examples/sender.c")).unwrap().lines().count();
    assert!(lines < 250, "{lines} lines");
    let printed = output(&mut compile("examples/sender.c", "release", &["-O2"]));
    println!("{printed}");
    assert_eq!(printed.lines().count(), 3);
    let again = output(&mut compile_sanitized("examples/sender.c"));
    assert_eq!(printed, again, "the same with sanitizers and overflow checks");
}

#[test]
fn wrong_and_random_calls_are_harmless() {
    if !has("gcc") {
        return;
    }
    let mut program = compile_sanitized("tests/hostile.c");
    for seed in ["1", "2", "3", "4"] {
        print!("{}", output(Command::new(program.get_program()).args([seed, "250000"])));
    }
    program.arg("5").arg("0");
    output(&mut program);
}

/// A test that calls everything is worth little if it forgets new functions.
#[test]
fn c_programs_call_every_function_of_the_header() {
    let programs: String = ["tests/hostile.c", "tests/replay.c"]
        .map(|file| fs::read_to_string(root().join(file)).unwrap())
        .concat();
    let functions = exported();
    assert!(functions.len() > 50, "{functions:?}");
    for name in functions {
        assert!(programs.contains(&format!("{name}(")), "{name} is not called");
    }
}

#[test]
fn header_compiles_as_cpp() {
    if !has("clang") {
        return;
    }
    let program = temporary().join("include");
    output(
        Command::new("clang")
            .args(["-x", "c++", "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(root().join("include"))
            .arg(root().join("tests/include.cpp"))
            .args(["-x", "none"])
            .arg(library("release"))
            .arg("-o")
            .arg(&program),
    );
    output(&mut Command::new(program));
}

/// A program supplies the six functions that the header names, and nothing else.
#[test]
fn library_links_without_a_c_library() {
    if !has("gcc") {
        return;
    }
    let wanted: Vec<String> = exported().iter().map(|function| format!("-Wl,-u,{function}")).collect();
    let mut flags =
        vec!["-ffreestanding", "-nostdlib", "-static", "-fno-stack-protector", "-Wl,--gc-sections"];
    flags.extend(wanted.iter().map(String::as_str));
    let program = compile("tests/freestanding.c", "release", &flags);
    println!("{} bytes with every function", fs::metadata(program.get_program()).unwrap().len());
}

/// The functions of the header.
fn exported() -> Vec<String> {
    let header = fs::read_to_string(root().join(HEADER)).unwrap();
    let code =
        header.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let name = |at: usize| -> String {
        code[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let names = code.match_indices("fullpipe_cc_").map(|(at, _)| (at, name(at)));
    names.filter(|(at, name)| code[at + name.len()..].starts_with('(')).map(|(_, name)| name).collect()
}

#[test]
fn c_and_rust_agree_on_every_value() {
    if !has("gcc") {
        return;
    }
    let program = compile_sanitized("tests/replay.c");
    let specs = [
        "bbr3",
        "bbr3:variant=linux",
        "bbr3:ecn=off,beta_percent=50",
        "bbr",
        "cubic",
        "cubic:hystart=plus",
        "reno",
        "hybla",
        "fixed:window=25",
    ];
    for (i, spec) in specs.into_iter().enumerate() {
        for paced in [0, 1] {
            let (seed, steps) = (i as u64 * 2 + paced, 20_000);
            let c = output(Command::new(program.get_program()).args([
                spec,
                &seed.to_string(),
                &steps.to_string(),
                &paced.to_string(),
            ]));
            let rust = Replay::new(spec, seed, paced == 1).run(steps);
            assert_eq!(c.trim_end(), rust, "seed {seed}, paced {paced}");
            println!("{rust}");
        }
    }
}

struct Sent {
    number: u64,
    bytes: u64,
    stamp: Stamp,
}

/// tests/replay.c, line by line, with the Rust interface.
struct Replay {
    spec: ControllerSpec,
    config: Config,
    control: SendController<Controller>,
    rtt: RttEstimator,
    episode: RecoveryEpisode,
    limited: WindowLimited,
    flight: VecDeque<Sent>,
    inflight: u64,
    now: Time,
    next: u64,
    random: u64,
    digest: u64,
}

impl Replay {
    fn new(spec: &str, seed: u64, paced: bool) -> Self {
        let spec = ControllerSpec::parse(spec).unwrap();
        let config = Config { smss: 1200, initial_cwnd: 12_000, seed: 5, selective_acks: true, paced };
        let mut control = SendController::new(spec.build(&config), config.smss);
        if paced {
            control = control.paced_by_window();
        }
        let now = Time::from_nanos(1_000_000);
        control.on_handshake(now, Span::from_millis(40));
        Replay {
            spec,
            config,
            control,
            rtt: RttEstimator::new(),
            episode: RecoveryEpisode::new(),
            limited: WindowLimited::new(),
            flight: VecDeque::new(),
            inflight: 0,
            now,
            next: 0,
            random: seed,
            digest: 0xcbf2_9ce4_8422_2325,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn later(&mut self, below: u64) {
        let wait = Span::from_nanos(self.draw(below));
        self.now += wait;
    }

    fn note(&mut self, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x0100_0000_01b3);
        self.digest ^= self.digest >> 29;
    }

    fn note_span(&mut self, span: Option<Span>) {
        self.note(span.map_or(u64::MAX, Span::as_nanos));
    }

    fn note_rate(&mut self, rate: Option<Rate>) {
        self.note(rate.map_or(u64::MAX, Rate::as_bytes_per_sec));
    }

    fn note_all(&mut self) {
        self.note(self.control.window());
        self.note_rate(self.control.pacing_rate());
        self.note(self.control.send_quantum());
        self.note(u64::from(self.control.ready(self.now)));
        self.note(self.control.next_departure().as_nanos());
        self.note(self.control.delivered());
        self.note(self.control.lost());
        self.note(match self.control.recovery() {
            RecoveryState::Open | RecoveryState::Disorder => 0,
            RecoveryState::Recovery => 1,
            RecoveryState::Loss => 2,
        });
        self.note(u64::from(self.control.controller().claims_ecn()));
        let s = self.control.controller().snapshot();
        for byte in s.state.bytes() {
            self.note(u64::from(byte));
        }
        self.note(s.cwnd);
        self.note(s.ssthresh.unwrap_or(u64::MAX));
        for rate in [s.pacing_rate, s.bw, s.max_bw, s.bw_shortterm] {
            self.note_rate(rate);
        }
        self.note_span(s.min_rtt);
        for gain in [s.pacing_gain, s.cwnd_gain] {
            self.note(gain.map_or(u64::MAX, |gain| u64::from(gain.as_256ths())));
        }
        for value in [s.inflight_longterm, s.inflight_shortterm, s.rounds] {
            self.note(value.unwrap_or(u64::MAX));
        }
        let rtt = self.rtt;
        for span in [rtt.latest(), rtt.smoothed(), rtt.variation(), rtt.min(), rtt.probe_timeout()] {
            self.note_span(span);
        }
    }

    fn oldest_packet(&mut self) -> Option<Sent> {
        let packet = self.flight.pop_front()?;
        self.inflight -= packet.bytes;
        Some(packet)
    }

    fn send(&mut self) {
        let bytes = if self.draw(8) == 0 { 100 } else { 1200 };
        let retransmit = self.draw(20) == 0;
        let open = self.inflight + bytes <= self.control.window();
        if !open {
            self.limited.on_limited(self.control.delivered(), self.inflight);
        }
        if !open || self.flight.len() >= 512 || !self.control.ready(self.now) {
            return self.later(500_000);
        }
        let stamp = self.control.on_sent(self.now, bytes, self.inflight, retransmit);
        self.flight.push_back(Sent { number: self.next, bytes, stamp });
        self.next += 1;
        self.note(stamp.id);
        self.note(stamp.tx_in_flight);
        self.note(u64::from(stamp.app_limited));
        self.control.on_batch_sent(self.now, bytes, 1);
        self.inflight += bytes;
    }

    fn ack(&mut self) {
        let count = 1 + self.draw(3);
        let before = self.inflight;
        self.later(2_000_000);
        let (now, mut first_lost) = (self.now, true);
        let mut event = self.control.begin_ack(before);
        for _ in 0..count {
            let Some(p) = self.oldest_packet() else { break };
            if self.draw(40) == 0 {
                self.control.on_lost(&mut event, now, p.bytes, &p.stamp, first_lost);
                self.episode.on_lost(p.number, self.next);
                first_lost = false;
            } else {
                self.control.on_acked(&mut event, now, p.bytes, &p.stamp);
                self.episode.on_acked(p.number);
                let delay = Span::from_nanos(self.draw(1_000_000));
                self.rtt.on_sample(now - p.stamp.sent_at + Span::from_millis(10), delay);
            }
        }
        self.note(event.newly_acked());
        self.note(event.newly_lost());
        if self.draw(400) == 0 {
            self.control.on_persistent_congestion(&mut event, now, self.inflight);
            self.rtt.on_persistent_congestion();
            self.episode.restart(self.next);
        }
        let change = self.episode.update(self.flight.front().map(|p| p.number), self.next);
        if change.exit {
            self.control.exit_recovery(now, self.inflight);
        }
        if change.enter {
            self.control.enter_recovery(&mut event, now);
        }
        self.note(u64::from(self.episode.is_active()));
        let report = AckReport {
            rtt: self.rtt.latest(),
            srtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min(),
            advanced: self.draw(10) != 0,
            ce_count: u32::from(self.draw(50) == 0),
            disorder: self.draw(10) == 0,
            lone_runt: self.draw(30) == 0,
            cwnd_limited: self.limited.is_limited(self.control.delivered()),
            ..AckReport::at(now, self.inflight)
        };
        let sample = self.control.finish_ack(event, &report);
        self.note_rate(sample.rate);
        self.note(sample.delivered);
        self.note(sample.interval.as_nanos());
        self.note(sample.prior_delivered);
        self.note(sample.tx_in_flight);
        self.note(sample.lost);
        self.note(u64::from(sample.app_limited));
        self.note(u64::from(sample.has_packet));
    }

    fn losses(&mut self) {
        let close = self.draw(3);
        let mut event = self.control.begin_losses(self.inflight);
        if let Some(p) = self.oldest_packet() {
            self.control.on_lost(&mut event, self.now, p.bytes, &p.stamp, true);
        }
        self.note(event.newly_lost());
        if close == 0 {
            self.control.enter_recovery_on_timer(event, self.now, self.inflight);
            self.episode.restart(self.next);
        } else if close == 1 && self.draw(4) == 0 {
            self.control.enter_loss(event, self.now, self.inflight);
            self.episode.restart(self.next);
        } else {
            self.control.finish_losses(event);
        }
    }

    fn run(mut self, steps: u64) -> String {
        for _ in 0..steps {
            match self.draw(1000) {
                0..500 => self.send(),
                500..850 => self.ack(),
                850..865 => self.losses(),
                865..868 => {
                    self.control.undo(self.now, self.inflight);
                    self.episode.clear();
                }
                868..870 => self.control.reduce_for_repaired_loss(self.now, self.inflight),
                870..872 => {
                    let smss = 1000 + self.draw(500) as u32;
                    self.control.on_mtu(smss);
                }
                872..880 => self.control.mark_app_limited(self.inflight),
                880..885 => {
                    if let Some(packet) = self.oldest_packet() {
                        self.control.on_packet_discarded(packet.bytes);
                    }
                }
                885 => {
                    let cc = self.spec.build(&self.config);
                    self.control.on_path_change(self.now, cc, self.config.smss);
                    self.rtt = RttEstimator::new();
                    self.episode = RecoveryEpisode::new();
                    self.limited = WindowLimited::new();
                }
                886..890 => {} // A copy, which continues.
                _ => self.later(3_000_000),
            }
            self.note_all();
        }
        let (delivered, lost) = (self.control.delivered(), self.control.lost());
        format!("{} {:016x} delivered {delivered} lost {lost}", self.spec, self.digest)
    }
}
