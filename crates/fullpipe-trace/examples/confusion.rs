//! Confusion matrix of the controller identification, over simulated captures and captures from the
//! lab.
//!
//!     cargo run --release -p fullpipe-trace --example confusion -- table 2 120
//!     cargo run --release -p fullpipe-trace --example confusion -- residuals 1 120
//!     cargo run --release -p fullpipe-trace --example confusion -- scenarios 2 20 DIR
//!     for s in DIR/*.toml; do fullpipe run "$s" --engine lab --side-by-side --pcap "${s%.toml}"
//! --out "${s%.toml}.json"; done     cargo run --release -p fullpipe-trace --example confusion --
//! lab DIR…
//!
//! `table SEED N` draws N paths from SEED, simulates each controller on each path, and compares the
//! identification with the truth, at the sender and at the receiver. `residuals SEED N` prints the
//! deviation of each feature from simulations of the true controller on the estimated path: the
//! errors in `src/controller/features.rs`. Each SEED draws other paths and losses. `scenarios SEED
//! N DIR` writes N scenarios for the lab with every kernel controller, and `lab DIR…` identifies
//! the captures beside the recordings in DIR.
//!
//! `families SEED N [NAME…]` names the senders (or those called NAME) on N paths of each family
//! (`tests/it/support/families.rs`), at both ends, and prints a table; `lab-families SEED N DIR`
//! writes such scenarios for the lab, and `families DIR` names the senders that were captured there.
//! `dump` instead of `families` prints every run with its features as a line of JSON.

#[path = "../tests/it/support/families.rs"]
mod families;

use families::{Draw, Family};
use fullpipe_cc::registry::{Build, BuildError, ControllerInfo, LINUX, Settings};
use fullpipe_cc::{Ack, Config, CongestionControl, Recovery, RecoveryContext, Snapshot, Span, Time};
use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario, Setting};
use fullpipe_path::{Limit, LossSpec};
use fullpipe_sim::{Controllers, End};
use fullpipe_trace::{Analyser, Identification, Options, identify, input, simulate_capture};
use fullpipe_units::{Fraction, Rate};
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Controller, name in tables, and a setting.
type SenderSpec = (&'static str, &'static str, Option<(&'static str, &'static str)>);

/// The senders.
const SENDERS: [SenderSpec; 21] = [
    ("bbr", "bbr", None),
    ("bbr3", "bbr3", None),
    ("cubic", "cubic", None),
    ("cubic", "cubic, no HyStart", Some(("hystart", "off"))),
    ("reno", "reno", None),
    ("hybla", "hybla", None),
    ("multiple", "multiple (unknown)", None),
    ("delay", "delay (unknown)", None),
    ("bic", "bic", None),
    ("cdg", "cdg", None),
    ("dctcp", "dctcp", None),
    ("highspeed", "highspeed", None),
    ("htcp", "htcp", None),
    ("illinois", "illinois", None),
    ("lp", "lp", None),
    ("nv", "nv", None),
    ("scalable", "scalable", None),
    ("vegas", "vegas", None),
    ("veno", "veno", None),
    ("westwood", "westwood", None),
    ("yeah", "yeah", None),
];

/// As aggressive as four Reno connections (Crowcroft and Oechslin, MulTCP, CCR 1998): four packets
/// per round trip, and a decrease by 1/8 per loss.
struct Multiple {
    smss: u64,
    cwnd: u64,
    slow_start: bool,
}

impl CongestionControl for Multiple {
    fn on_ack(&mut self, ack: &Ack) {
        if ack.cwnd_limited {
            let grown =
                if self.slow_start { ack.newly_acked } else { 4 * self.smss * ack.newly_acked / self.cwnd };
            self.cwnd += grown;
        }
    }
    fn on_recovery(&mut self, event: Recovery, _: &RecoveryContext) {
        match event {
            Recovery::EnterFast => self.cwnd = (self.cwnd * 7 / 8).max(2 * self.smss),
            Recovery::EnterRto => self.cwnd = 2 * self.smss,
            _ => return,
        }
        self.slow_start = false;
    }
    fn cwnd(&self) -> u64 {
        self.cwnd
    }
    fn ssthresh(&self) -> u64 {
        self.cwnd
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot { state: "Steady", cwnd: self.cwnd, ..Snapshot::default() }
    }
}

impl Build for Multiple {
    const INFO: ControllerInfo =
        ControllerInfo { name: "multiple", aliases: &[], kernel: None, about: "MulTCP", settings: &[] };
    type Params = ();
    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }
    fn build(c: &Config, (): &()) -> Self {
        Multiple { smss: c.smss.into(), cwnd: c.initial_cwnd, slow_start: true }
    }
}

/// A window that grows by a packet per round trip below a queueing delay of 10 ms, and shrinks by a
/// quarter above.
struct Delay {
    smss: u64,
    cwnd: u64,
    base: Span,
    hold_until: Time,
}

impl CongestionControl for Delay {
    fn on_ack(&mut self, ack: &Ack) {
        let rtt = ack.rtt.unwrap_or(self.base);
        self.base = self.base.min(rtt);
        if rtt > self.base + Span::from_millis(10) && ack.now > self.hold_until {
            self.cwnd = (self.cwnd * 3 / 4).max(2 * self.smss);
            self.hold_until = ack.now + rtt;
        } else if ack.cwnd_limited {
            self.cwnd += self.smss * ack.newly_acked / self.cwnd;
        }
    }
    fn on_recovery(&mut self, event: Recovery, _: &RecoveryContext) {
        if matches!(event, Recovery::EnterFast | Recovery::EnterRto) {
            self.cwnd = (self.cwnd * 3 / 4).max(2 * self.smss);
        }
    }
    fn cwnd(&self) -> u64 {
        self.cwnd
    }
    fn ssthresh(&self) -> u64 {
        self.cwnd
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot { state: "Steady", cwnd: self.cwnd, ..Snapshot::default() }
    }
}

impl Build for Delay {
    const INFO: ControllerInfo =
        ControllerInfo { name: "delay", aliases: &[], kernel: None, about: "delay-based", settings: &[] };
    type Params = ();
    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }
    fn build(c: &Config, (): &()) -> Self {
        Delay { smss: c.smss.into(), cwnd: c.initial_cwnd, base: Span::MAX, hold_until: Time::ZERO }
    }
}

/// A path: 3 to 100 Mbit/s, 8 to 150 ms, a queue of 0.3 to 4 BDP, and on four of seven random loss
/// up to 1 %; 6 to 25 s.
fn path(draw: &mut Draw) -> Result<Scenario, Box<dyn Error>> {
    let rate = draw.between(3e6, 100e6);
    let rtt = draw.between(0.008, 0.15);
    let bdp = rate / 8.0 * rtt;
    let buffer = (draw.between(0.3, 4.0) * bdp).max(8.0 * 1500.0);
    let loss = [0.0, 0.0, 0.0, 2e-4, 1e-3, 4e-3, 1e-2][(draw.next() % 7) as usize];
    let seconds = draw.between(6.0, 25.0).max(80.0 * rtt).min(250_000.0 * 12_000.0 / rate);
    let round_trip = Span::from_secs_f64(rtt);
    let mut path =
        PathSpec::bottleneck(Rate::from_bits_per_sec(rate as u64), round_trip, Limit::Bytes(buffer as u64));
    if loss > 0.0 {
        path.forward[0].loss = Some(LossSpec::from(Fraction::from_billionths((loss * 1e9) as u32)));
    }
    let mut flow = FlowSpec::bulk("bbr");
    flow.initial_window = [10, 10, 10, 4, 32][(draw.next() % 5) as usize];
    let mut scenario = Scenario::new(path, vec![flow]);
    scenario.duration = Span::from_secs_f64(seconds);
    scenario.sample = scenario.duration;
    Ok(scenario)
}

/// A path on which the lab can run five senders in parallel: 3 to 40 Mbit/s, 8 to 150 ms, a queue
/// of 0.3 to 4 BDP, and on four of seven random loss up to 1 %; 8 to 15 s.
fn lab_scenario(draw: &mut Draw) -> String {
    let rate = draw.between(3e6, 40e6);
    let rtt = draw.between(0.008, 0.15);
    let buffer = (draw.between(0.3, 4.0) * rate / 8.0 * rtt).max(8.0 * 1500.0);
    let loss = ["0%", "0%", "0%", "0.02%", "0.1%", "0.4%", "1%"][(draw.next() % 7) as usize];
    let seconds = (80.0 * rtt).clamp(8.0, 15.0);
    format!(
        "duration = \"{seconds:.1}s\"\nsample = \"50ms\"\n[path]\nrate = \"{:.0}kbit\"\nrtt = \"{:.1}ms\"\n\
         buffer = \"{buffer:.0} bytes\"\nloss = \"{loss}\"\n[[flow]]\ncc = \"bbr\"\n\
         [sweep]\n\"flow.cc\" = [\"bbr\", \"bbr3\", \"cubic\", \"reno\", \"hybla\"]\n",
        rate / 1e3,
        rtt * 1e3
    )
}

fn scenarios(seed: u64, paths: u64, dir: &Path) -> Result<(), Box<dyn Error>> {
    for n in 0..paths {
        std::fs::write(dir.join(format!("{n}.toml")), lab_scenario(&mut Draw(seed << 32 | n)))?;
    }
    Ok(())
}

/// The recordings in `dir`.
fn recordings(dir: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut recordings: Vec<PathBuf> =
        std::fs::read_dir(dir)?.map(|f| f.map(|f| f.path())).collect::<Result<_, _>>()?;
    recordings.retain(|f| f.extension().is_some_and(|e| e == "json"));
    recordings.sort();
    Ok(recordings)
}

/// The runs recorded by the lab in `dir`, captured at both ends, and the number of missing
/// captures.
fn recorded(dir: &Path) -> Result<(Vec<Run>, u32), Box<dyn Error>> {
    let (mut runs, mut missing) = (Vec::new(), 0);
    for file in recordings(dir)? {
        let recording: Value = serde_json::from_reader(std::io::BufReader::new(std::fs::File::open(&file)?))?;
        let all = recording["runs"].as_array().ok_or_else(|| format!("{}: no recording", file.display()))?;
        for (i, run) in all.iter().enumerate().filter(|(_, run)| run["valid"] == true) {
            let cc = run["cc"].as_str().unwrap_or_default();
            let Some(sender) = SENDERS.iter().position(|(name, ..)| *name == cc) else { continue };
            let has_losses = run["flows"][0]["summary"]["packets_lost"].as_u64().is_some_and(|n| n > 0);
            for (end, name) in [(End::Sender, "client"), (End::Receiver, "server")] {
                let capture =
                    file.with_extension("").display().to_string() + &format!("-{}-{name}.pcap", i + 1);
                let capture = Path::new(&capture);
                // A failed run of a sweep has no capture.
                let identification = if capture.exists() { identify_file(capture)? } else { None };
                let Some(identification) = identification else {
                    missing += 1;
                    continue;
                };
                let description = run["path"]["description"].as_str().unwrap_or_default();
                let path = format!("{description}; {}", capture.display());
                runs.push(Run { sender, end, path, has_losses, identification });
            }
        }
    }
    Ok((runs, missing))
}

/// Identifies the sender of the largest connection in `file`.
fn identify_file(file: &Path) -> Result<Option<Identification>, Box<dyn Error>> {
    let mut analyser = Analyser::new(Options::default());
    let read = std::fs::File::open(file).map_err(|e| format!("{}: {e}", file.display()))?;
    input::read(&file.display().to_string(), read, |frame| analyser.add_frame(frame))?;
    let analysed = analyser.finish();
    // The lab's flows have ports in their order.
    let most = analysed.connections.iter().min_by_key(|c| c.record.server.port());
    Ok(most.map(|most| identify(most, most.record.bulk().1)))
}

/// A run and its identification.
struct Run {
    sender: usize,
    end: End,
    path: String,
    /// Whether packets were lost: loss-based controllers differ only after losses.
    has_losses: bool,
    identification: Identification,
}

impl Run {
    fn named(&self) -> Option<&str> {
        self.identification.sender.name.as_deref()
    }
}

fn runs(seed: u64, paths: u64, senders: &[usize]) -> Result<Vec<Run>, Box<dyn Error>> {
    let controllers = Controllers::new().with::<Multiple>().with::<Delay>();
    let mut runs = Vec::new();
    for n in 0..paths {
        let mut draw = Draw(seed << 32 | n);
        let scenario = path(&mut draw)?;
        for &sender in senders {
            let (name, _, setting) = SENDERS[sender];
            let mut scenario = scenario.clone();
            scenario.flows[0].cc = name.to_owned();
            let settings = setting.into_iter().map(|(k, v)| (k.to_owned(), Setting::Text(v.to_owned())));
            scenario.flows[0].settings = settings.collect();
            // Captures at both ends of a run are correlated: use one end per run.
            let end = if (n + sender as u64).is_multiple_of(2) { End::Sender } else { End::Receiver };
            let Some(traced) = simulate_capture(&scenario, draw.next(), &controllers, end, None)? else {
                continue;
            };
            let identification = identify(&traced, traced.record.bulk().1);
            let link = &scenario.path.forward[0];
            let path = format!(
                "{} {} loss {:?} iw {} {:.0} s buffer {:?}; estimated {:?} {:?}",
                link.rate.map_or(0.0, |r| r.as_bits_per_sec_f64() / 1e6).round(),
                (link.delay.as_millis_f64() * 2.0).round(),
                link.loss,
                scenario.flows[0].initial_window,
                scenario.duration.as_secs_f64(),
                link.queue.as_ref().map(|q| q.limit()),
                traced.record.to_server.rtprop,
                traced.record.to_server.btlbw_on_the_wire.map(|r| r.as_bits_per_sec_f64() / 1e6),
            );
            let has_losses = traced.record.to_server.retransmissions.segments > 0;
            runs.push(Run { sender, end, path, has_losses, identification });
        }
    }
    Ok(runs)
}

fn table(runs: &[Run]) {
    for (end, place) in [(End::Sender, "sender"), (End::Receiver, "receiver")] {
        let columns =
            ["bbr", "bbr3", "cubic", "reno", "hybla", "another", "two", "none", "unknown", "insufficient"];
        println!("\n| sender, captured at the {place} | {} | runs |", columns.join(" | "));
        println!("|---|{}---|", "---|".repeat(columns.len()));
        let all = || runs.iter().filter(|r| r.end == end);
        for (i, (_, called, _)) in SENDERS.iter().enumerate().filter(|(i, _)| all().any(|r| r.sender == *i)) {
            let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
            let mut n = 0;
            for run in all().filter(|r| r.sender == i) {
                n += 1;
                *counts.entry(column(&run.identification)).or_default() += 1;
            }
            let cells = columns.iter().map(|c| counts.get(c).map_or(String::new(), u32::to_string));
            println!("| {called} | {} | {n} |", cells.collect::<Vec<_>>().join(" | "));
        }
        let is_right = |r: &&Run| r.named() == Some(SENDERS[r.sender].0);
        let right = all().filter(is_right).count();
        let has_losses = || all().filter(|r| r.has_losses);
        let wrong = all().filter(|r| r.named().is_some_and(|name| name != SENDERS[r.sender].0)).count();
        let bbr = all().filter(|r| {
            !SENDERS[r.sender].0.starts_with("bbr") && r.named().is_some_and(|n| n.starts_with("bbr"))
        });
        println!("\n{} runs: {right} correct, {wrong} wrong, {} of these BBR", all().count(), bbr.count());
        println!("{} with losses: {} correct", has_losses().count(), has_losses().filter(is_right).count());
    }
}

/// The column of an identification.
fn column(identification: &Identification) -> &str {
    let words = &identification.sender.words;
    match &identification.sender.name {
        Some(name) if LINUX.contains(&&**name) => "another",
        Some(name) => name,
        None if words.starts_with("insufficient") => "insufficient",
        None if words.starts_with("none") => "none",
        None if words.contains(" or ") => "two",
        None => "unknown",
    }
}

fn residuals(runs: &[Run]) {
    let Some(first) = runs.iter().find(|r| !r.identification.compared.is_empty()) else { return };
    for (i, feature) in first.identification.compared.iter().map(|k| k.feature).enumerate() {
        let mut errors: Vec<f64> = runs
            .iter()
            .filter(|r| !r.identification.compared.is_empty())
            .filter_map(|r| {
                let k = &r.identification.compared[i];
                let (mean, deviation) = k.candidates[r.sender];
                let square = (k.observed - mean).powi(2) - deviation.powi(2);
                (!square.is_nan()).then_some(square.max(0.0))
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        // Ignore the largest 5 %.
        errors.truncate(errors.len() * 19 / 20);
        let rms = (errors.iter().sum::<f64>() / errors.len().max(1) as f64).sqrt();
        println!("{rms:.3}  {feature} ({} runs)", errors.len());
    }
}

/// Prints the identification of other captures, and the distance of each candidate.
fn captures(files: &[String]) -> Result<(), Box<dyn Error>> {
    for file in files {
        if let Some(identification) = identify_file(Path::new(file))? {
            print_identification(file, &identification);
        }
    }
    Ok(())
}

fn print_identification(what: &str, identification: &Identification) {
    let distances = identification.candidates.iter().zip(&identification.distances);
    let distances: Vec<String> = distances.map(|(c, d)| format!("{c} {d:.2}")).collect();
    println!("{what}: {} [{}]", identification.sender.words, distances.join(", "));
    for line in &identification.sender.evidence {
        println!("    {line}");
    }
}

/// Prints the features that deviate most from the true controller.
fn largest_deviations(identification: &Identification, sender: usize) {
    if sender >= identification.candidates.len() {
        return;
    }
    let mut compared: Vec<_> = identification.compared.iter().collect();
    let off = |k: &fullpipe_trace::FeatureComparison| {
        let deviation = (k.observed - k.candidates[sender].0).abs() / k.error.hypot(k.candidates[sender].1);
        if deviation.is_nan() { 0.0 } else { deviation }
    };
    compared.sort_by(|a, b| off(b).total_cmp(&off(a)));
    for k in compared.iter().take(6) {
        println!("    off by {:.1}: {}: {:.2}, {:.2}", off(k), k.feature, k.observed, k.candidates[sender].0);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "confusion table|residuals|wrong|families|dump SEED PATHS, \
                 scenarios|lab-families SEED PATHS DIR, families|dump DIR, lab DIR…, or captures FILE…";
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["captures", _, ..] => captures(&args[1..]),
        ["scenarios", seed, paths, dir] => scenarios(seed.parse()?, paths.parse()?, Path::new(dir)),
        ["lab-families", seed, count, dir] => lab_families(seed.parse()?, count.parse()?, Path::new(dir)),
        ["lab", dirs @ ..] if !dirs.is_empty() => {
            let mut all = Vec::new();
            let mut missing = 0;
            for dir in dirs {
                let (runs, none) = recorded(Path::new(dir))?;
                all.extend(runs);
                missing += none;
            }
            table(&all);
            if missing > 0 {
                println!("\n{missing} captures of valid runs are missing");
            }
            wrong(&all);
            Ok(())
        }
        ["families", rest @ ..] => {
            let mut runs = Vec::new();
            each_family_run(rest, &mut |run| runs.push(run))?;
            family_table(&runs);
            Ok(())
        }
        ["dump", rest @ ..] => each_family_run(rest, &mut |run| dump(&run)),
        ["residuals", seed, paths] => {
            residuals(&runs(seed.parse()?, paths.parse()?, &[0, 1, 2, 3, 4, 5])?);
            Ok(())
        }
        [what @ ("table" | "wrong"), seed, paths] => {
            let runs = runs(seed.parse()?, paths.parse()?, &Vec::from_iter(0..8))?;
            table(&runs);
            if *what == "wrong" {
                wrong(&runs);
            }
            Ok(())
        }
        _ => Err(usage.into()),
    }
}

/// Senders of the families: those that are known, and two that are not.
const FAMILY_SENDERS: [usize; 20] = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

/// Writes `count` scenarios of each family for the lab, with every controller of the kernel.
fn lab_families(seed: u64, count: u64, dir: &Path) -> Result<(), Box<dyn Error>> {
    for family in Family::ALL {
        for n in 0..count {
            let mut scenario = family.scenario(&mut Draw(seed << 32 | n << 8 | family as u64));
            scenario.sample = Span::from_millis(50);
            scenario.flows.iter_mut().filter(|f| f.cc == "bbr3").for_each(|f| f.cc = "bbr".to_owned());
            scenario.flows[0].label = Some("main".to_owned());
            let text =
                scenario.to_toml() + "\n[sweep]\n\"flow.0.cc\" = [\"bbr\", \"bbr3\", \"cubic\", \"reno\"]\n";
            std::fs::write(dir.join(format!("{family:?}-{n}.toml").to_lowercase()), text)?;
        }
    }
    Ok(())
}

/// A run on a path of a family.
struct FamilyRun {
    family: String,
    path: String,
    cc: String,
    end: End,
    identification: Identification,
}

/// Names the senders of `count` paths of each family, captured at both ends, and gives each to `add`.
fn by_family(
    (seed, count): (u64, u64),
    senders: &[usize],
    add: &mut dyn FnMut(FamilyRun),
) -> Result<(), Box<dyn Error>> {
    let controllers = Controllers::new().with::<Multiple>().with::<Delay>();
    for family in Family::ALL {
        for (n, sender) in (0..count).flat_map(|n| senders.iter().map(move |sender| (n, *sender))) {
            let mut draw = Draw(seed << 32 | n << 8 | family as u64);
            let mut scenario = family.scenario(&mut draw);
            scenario.flows[0].cc = SENDERS[sender].0.to_owned();
            let seed = Draw(draw.0 ^ sender as u64).next();
            for end in [End::Sender, End::Receiver] {
                let Some(traced) = simulate_capture(&scenario, seed, &controllers, end, None)? else {
                    continue;
                };
                add(FamilyRun {
                    family: format!("{family:?}").to_lowercase(),
                    path: n.to_string(),
                    cc: SENDERS[sender].0.to_owned(),
                    end,
                    identification: identify(&traced, traced.record.bulk().1),
                });
            }
        }
    }
    Ok(())
}

/// Names the first sender of each valid run recorded by the lab in `dir`. The family is the first
/// part of a file's name.
fn by_family_in_lab(dir: &Path, add: &mut dyn FnMut(FamilyRun)) -> Result<(), Box<dyn Error>> {
    for file in recordings(dir)? {
        let recording: Value = serde_json::from_reader(std::io::BufReader::new(std::fs::File::open(&file)?))?;
        let all = recording["runs"].as_array().ok_or_else(|| format!("{}: no recording", file.display()))?;
        for (i, run) in all.iter().enumerate().filter(|(_, run)| run["valid"] == true) {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let (family, path) = stem.split_once('-').unwrap_or((&stem, ""));
            for (end, place) in [(End::Sender, "client"), (End::Receiver, "server")] {
                let capture = file.with_file_name(format!("{stem}-{}-{place}.pcap", i + 1));
                if let Some(identification) = identify_file(&capture)? {
                    let (family, path) = (family.to_owned(), path.to_owned());
                    let cc = run["flows"][0]["cc"].as_str().unwrap_or_default().to_owned();
                    add(FamilyRun { family, path, cc, end, identification });
                }
            }
        }
    }
    Ok(())
}

/// Names the senders of simulated runs (`SEED COUNT`), or of those in a directory.
fn each_family_run(args: &[&str], add: &mut dyn FnMut(FamilyRun)) -> Result<(), Box<dyn Error>> {
    match args {
        [dir] => by_family_in_lab(Path::new(dir), add),
        [seed, count, names @ ..] => {
            let is_meant = |sender: &usize| names.is_empty() || names.contains(&SENDERS[*sender].0);
            let senders: Vec<usize> = FAMILY_SENDERS.into_iter().filter(is_meant).collect();
            by_family((seed.parse()?, count.parse()?), &senders, add)
        }
        _ => Err("families and dump need SEED COUNT [NAME…], or DIR".into()),
    }
}

/// Any name of these is wrong.
const UNKNOWN: [&str; 2] = ["multiple", "delay"];

/// Which controllers a row of the table counts.
type Selection = fn(&str) -> bool;

/// Prints how often the names are right, per family, group of controllers and end.
fn family_table(runs: &[FamilyRun]) {
    const MAIN: [&str; 4] = ["bbr", "bbr3", "cubic", "reno"];
    const GROUPS: [(&str, Selection, &[End]); 5] = [
        ("bbr, bbr3, cubic, reno", |cc| MAIN.contains(&cc), &[End::Sender]),
        ("bbr, bbr3, cubic, reno", |cc| MAIN.contains(&cc), &[End::Receiver]),
        ("hybla", |cc| cc == "hybla", &[End::Sender, End::Receiver]),
        ("Linux's others", |cc| LINUX.contains(&cc), &[End::Sender, End::Receiver]),
        ("unknown ones", |cc| UNKNOWN.contains(&cc), &[End::Sender, End::Receiver]),
    ];
    println!(
        "| family | controllers | captured at | runs | right | cannot tell | none of the known | wrong |"
    );
    println!("|---|---|---|--:|--:|--:|--:|--:|");
    let mut families: Vec<&str> = runs.iter().map(|r| r.family.as_str()).collect();
    families.dedup();
    for (controllers, is_one, ends) in GROUPS {
        for family in &families {
            let these: Vec<&FamilyRun> = runs
                .iter()
                .filter(|r| r.family == *family && ends.contains(&r.end) && is_one(&r.cc))
                .collect();
            let name = |r: &FamilyRun| r.identification.sender.name.clone();
            let right = these.iter().filter(|r| name(r).as_deref() == Some(&r.cc)).count();
            let named = these.iter().filter(|r| name(r).is_some()).count();
            let none = these.iter().filter(|r| r.identification.sender.words.starts_with("none of")).count();
            let all = these.len();
            if all > 0 {
                let ends: Vec<String> = ends.iter().map(|end| format!("{end:?}").to_lowercase()).collect();
                println!(
                    "| {family} | {controllers} | {} | {all} | {right} ({:.0} %) | {} | {none} | {} |",
                    ends.join(", "),
                    100.0 * right as f64 / all as f64,
                    all - named - none,
                    named - right
                );
            }
        }
    }
}

/// Prints a run with everything that it was compared by, as a line of JSON.
fn dump(run: &FamilyRun) {
    let number = |v: f64| if v.is_finite() { Value::from(v) } else { Value::Null };
    let i = &run.identification;
    let pairs = |of: fn(&(f64, f64)) -> f64| {
        i.compared
            .iter()
            .map(|k| k.candidates.iter().map(|c| number(of(c))).collect())
            .collect::<Vec<Vec<_>>>()
    };
    let likelihoods: BTreeMap<_, _> =
        i.sender.likelihoods.iter().map(|l| (l.name.clone(), l.share)).collect();
    let line = serde_json::json!({
        "family": run.family, "n": run.path, "cc": run.cc, "end": format!("{:?}", run.end),
        "words": i.sender.words, "name": i.sender.name, "candidates": i.candidates,
        "distances": i.distances.iter().map(|d| number(*d)).collect::<Vec<_>>(),
        "likelihoods": likelihoods,
        "conditions": i.conditions.iter().map(|(n, v)| (*n, number(*v))).collect::<BTreeMap<_, _>>(),
        "flags": i.sender.conditions,
        "features": i.compared.iter().map(|k| number(k.observed)).collect::<Vec<_>>(),
        "errors": i.compared.iter().map(|k| k.error).collect::<Vec<_>>(),
        "means": pairs(|c| c.0), "deviations": pairs(|c| c.1), "evidence": i.sender.evidence,
    });
    println!("{line}");
}

/// Prints every run that is not identified correctly, with the evidence.
fn wrong(runs: &[Run]) {
    for run in runs {
        let (name, called, _) = SENDERS[run.sender];
        if run.named() != Some(name) {
            print_identification(
                &format!("{called} at the {:?}, {}", run.end, run.path),
                &run.identification,
            );
            largest_deviations(&run.identification, run.sender);
        }
    }
}
