//! `fullpipe lab compare`: the same scenarios simulated and on kernel TCP, in one table.

use crate::failure::Failure;
use crate::runs::{self, LENT, Progress, read_as};
use fullpipe_cc::registry::{About, find};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{App, Case, FlowSpec, Setting, Vocabulary};
use fullpipe_kernel::facts::ticks;
use fullpipe_run::{Batch, Engine, InRealTime, Job};
use fullpipe_units::Span;
use std::fmt::Write;
use std::path::PathBuf;

/// Run scenarios in both engines and print a Markdown table of what differs.
#[derive(clap::Args)]
pub struct Args {
    /// Scenario files.
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Run no scenario for longer than this; a shortened one is marked.
    #[arg(long, value_name = "TIME")]
    at_most: Option<Span>,
    /// Only this many runs of each file, spread over its sweep.
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// One run after another in the lab, also those that may share the machine.
    #[arg(long)]
    alone: bool,
    /// Simulate with ends as Linux's are in what the simulator leaves out unless told: segmentation offload (`tso`), buffers of
    /// which a part is window (`auto_tuning` where there is a `receive_buffer`), and the running kernel's tick (`hz`).
    #[arg(long)]
    as_linux: bool,
    /// One row for runs that differ only in their seed: means over the pairs of same seeds, the quotient of the means and its
    /// standard error. Runs that are not valid in the lab are left out, and counted.
    #[arg(long)]
    means: bool,
}

/// What is compared.
const BOTH: [Engine; 2] = [Engine::Sim, Engine::Lab];

/// Agreement that needs no explanation: a tenth of the goodput.
const AGREES: f64 = 0.10;

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let mut names: Vec<String> = Vec::new();
        let mut jobs: Vec<Job> = Vec::new();
        // Nothing is judged here, so that the lab need not be able to measure what is checked.
        let vocabulary = Vocabulary { loss_of_whole_runs_only: false, ..fullpipe_run::vocabulary(&BOTH) };
        for file in &self.files {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            for (case, shortened) in self.cases(read_as(file, &vocabulary)?) {
                names.push(format!("{name}{}", if shortened { " (shortened)" } else { "" }));
                let mut simulated = case.clone();
                if self.as_linux {
                    simulated.scenario.flows.iter_mut().for_each(like_linux);
                }
                jobs.push(Job { engine: Engine::Sim, case: simulated });
                jobs.push(Job { engine: Engine::Lab, case });
            }
        }
        let progress = Progress::of(&jobs);
        let lab = InRealTime { together: !self.alone, lend: LENT, ..InRealTime::default() };
        let batch = Batch::new(jobs).keep_series(false).in_real_time(lab);
        let runs = batch.run(&progress).all().map_err(runs::failure)?;
        drop(progress);
        let pairs: Vec<(&str, &Recording, &Recording)> = names
            .iter()
            .zip(runs.chunks_exact(2))
            .filter_map(|(name, pair)| Some((name.as_str(), pair.first()?, pair.get(1)?)))
            .collect();
        let (rows, agree) = if self.means { print_means(&pairs) } else { print_each(&pairs) };
        println!(
            "\n{agree} of {rows} {} agree within {:.0} % of goodput.",
            if self.means { "means" } else { "runs" },
            AGREES * 100.0
        );
        Ok(())
    }

    /// The runs to compare, and whether each was shortened. Those whose controller the kernel lacks are
    /// left out.
    fn cases(&self, mut cases: Vec<Case>) -> Vec<(Case, bool)> {
        cases.retain(|c| c.scenario.flows.iter().all(|f| runs::kernel_offers(&f.cc)));
        cases.iter_mut().for_each(|c| c.scenario.checks.clear());
        let all = cases.len();
        let wanted = self.runs.unwrap_or(all).min(all);
        let picked = (0..wanted).map(|i| cases[i * all / wanted].clone());
        picked
            .map(|mut case| match self.at_most {
                Some(most) if case.scenario.duration > most && shorten(&mut case, most) => (case, true),
                _ => (case, false),
            })
            .collect()
    }
}

/// Gives a flow the ends that Linux has, where its scenario says nothing else.
fn like_linux(flow: &mut FlowSpec) {
    flow.tso = flow.tso.or(Some(true));
    flow.auto_tuning |= flow.receive_buffer.is_some();
    let has_a_tick = |about: &&About| about.settings.iter().any(|s| s.key == "hz");
    if let (Some(_), Some(ticks)) = (find(&flow.cc).filter(has_a_tick), ticks()) {
        flow.settings.entry("hz".to_owned()).or_insert(Setting::Integer(ticks.into()));
    }
}

/// Cuts a case to `most`, unless something in it would then never happen.
fn shorten(case: &mut Case, most: Span) -> bool {
    let s = &mut case.scenario;
    let last =
        s.flows.iter().map(|f| f.start.earliest() + f.stagger * u64::from(f.count)).max().unwrap_or_default();
    let links = s.path.forward.iter().chain(&s.path.reverse);
    let last = links.flat_map(|l| &l.schedule).map(|c| c.at).fold(last.max(s.warmup), Span::max);
    let writes = s.flows.iter().filter_map(|f| match &f.app {
        App::Writes { writes } => Some(writes),
        _ => None,
    });
    let last = writes.flatten().map(|write| write.at).fold(last, Span::max);
    if last * 2 > most {
        return false;
    }
    s.duration = most;
    true
}

/// Prints a row for each pair; gives how many there are, and how many agree.
fn print_each(pairs: &[(&str, &Recording, &Recording)]) -> (usize, usize) {
    println!(
        "| scenario | run | goodput sim | lab | differs | RTT p50 sim | lab | retransmitted sim | lab | lab valid |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|---|");
    let mut agree = 0;
    for (name, sim, lab) in pairs {
        let difference = relative(sim.summary.goodput_bps, lab.summary.goodput_bps);
        agree += usize::from(difference.abs() <= AGREES);
        println!("{}", row(name, &sim.label, sim, lab, difference));
    }
    (pairs.len(), agree)
}

/// Prints a row for all pairs that differ in their seed alone; gives how many rows there are, and how many agree.
fn print_means(pairs: &[(&str, &Recording, &Recording)]) -> (usize, usize) {
    println!(
        "| scenario | run | pairs | goodput sim | lab | lab / sim | standard error | retransmitted sim | lab | not valid |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let (mut rows, mut agree) = (0, 0);
    let mut left = pairs.to_vec();
    while let Some((name, first, _)) = left.first().copied() {
        let label = without_seed(first);
        let is_one =
            |(file, sim, _): &(&str, &Recording, &Recording)| *file == name && without_seed(sim) == label;
        let (own, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_one);
        left = others;
        let goodputs: Vec<(f64, f64)> = own
            .iter()
            .filter(|(_, _, lab)| lab.valid)
            .map(|(_, sim, lab)| (sim.summary.goodput_bps, lab.summary.goodput_bps))
            .collect();
        let again = |of: fn(&(&str, &Recording, &Recording)) -> (u64, u64)| {
            let sums = own.iter().filter(|(_, _, lab)| lab.valid).map(of);
            let (again, sent) = sums.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            format!("{:.2} %", again as f64 / sent.max(1) as f64 * 100.0)
        };
        let quotient = Quotient::of(&goodputs);
        rows += 1;
        agree += usize::from((quotient.quotient - 1.0).abs() <= AGREES);
        println!(
            "| {name} | {label} | {} | {:.2} ± {:.2} | {:.2} ± {:.2} | {:.3} | {} | {} | {} | {} |",
            goodputs.len(),
            quotient.sim.0 / 1e6,
            quotient.sim.1 / 1e6,
            quotient.lab.0 / 1e6,
            quotient.lab.1 / 1e6,
            quotient.quotient,
            quotient.error.map_or("–".to_owned(), |error| format!("{error:.3}")),
            again(|(_, sim, _)| (sim.summary.packets_retransmitted, sim.summary.packets_sent)),
            again(|(_, _, lab)| (lab.summary.packets_retransmitted, lab.summary.packets_sent)),
            own.len() - goodputs.len(),
        );
    }
    (rows, agree)
}

/// What a run is of, whatever its seed.
fn without_seed(run: &Recording) -> String {
    let seed = format!(", seed {}", run.seed);
    run.label.strip_suffix(&seed).unwrap_or(&run.label).to_owned()
}

/// Two series of same seeds: mean and standard deviation of each, and the quotient of the means.
struct Quotient {
    sim: (f64, f64),
    lab: (f64, f64),
    quotient: f64,
    /// Its standard error, of two pairs and more.
    error: Option<f64>,
}

impl Quotient {
    /// The mean of each pair's quotient would be too large where the simulated ones vary: one that is small by chance counts for
    /// more. The error is that of `lab − quotient · sim`, so that what both have of the same seed is not counted as noise.
    fn of(pairs: &[(f64, f64)]) -> Quotient {
        let n = pairs.len().max(1) as f64;
        let about = |values: &mut dyn Iterator<Item = f64>| {
            let values: Vec<f64> = values.collect();
            let mean = values.iter().sum::<f64>() / n;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (mean, (squares / (n - 1.0).max(1.0)).sqrt())
        };
        let sim = about(&mut pairs.iter().map(|pair| pair.0));
        let lab = about(&mut pairs.iter().map(|pair| pair.1));
        let quotient = 1.0 + relative(sim.0, lab.0);
        let (_, rest) = about(&mut pairs.iter().map(|pair| pair.1 - quotient * pair.0));
        let error = (pairs.len() > 1).then(|| rest / n.sqrt() / sim.0);
        Quotient { sim, lab, quotient, error }
    }
}

/// How much more (or less) the lab has than the simulator.
fn relative(sim: f64, lab: f64) -> f64 {
    if sim == 0.0 { if lab == 0.0 { 0.0 } else { f64::INFINITY } } else { lab / sim - 1.0 }
}

fn row(name: &str, label: &str, sim: &Recording, lab: &Recording, difference: f64) -> String {
    let mbit = |r: &Recording| format!("{:.2}", r.summary.goodput_bps / 1e6);
    let rtt = |r: &Recording| r.summary.rtt_ms.p50.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"));
    let again = |r: &Recording| {
        let share = r.summary.packets_retransmitted as f64 / r.summary.packets_sent.max(1) as f64;
        format!("{:.2} %", share * 100.0)
    };
    let valid = if lab.valid { "yes".to_owned() } else { format!("no: {}", lab.invalid_because.join("; ")) };
    let mut text = String::new();
    let _ = write!(
        text,
        "| {name} | {label} | {} | {} | {:+.1} % | {} | {} | {} | {} | {valid} |",
        mbit(sim),
        mbit(lab),
        difference * 100.0,
        rtt(sim),
        rtt(lab),
        again(sim),
        again(lab)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_against_something_differs_without_bound() {
        assert_eq!(relative(0.0, 0.0), 0.0);
        assert_eq!(relative(0.0, 1.0), f64::INFINITY);
        assert!((relative(100.0, 90.0) + 0.1).abs() < 1e-9);
    }

    #[test]
    fn what_both_have_of_a_seed_is_no_noise() {
        // The lab has nine tenths of each, however they vary.
        let alike = Quotient::of(&[(10.0, 9.0), (20.0, 18.0), (40.0, 36.0)]);
        assert!((alike.quotient - 0.9).abs() < 1e-9 && alike.error.unwrap() < 1e-9);
        // By hand: means 10 and 11, lab − 1.1 · sim is ∓1, its deviation √2, over √2 pairs and 10.
        let apart = Quotient::of(&[(10.0, 10.0), (10.0, 12.0)]);
        assert!((apart.quotient - 1.1).abs() < 1e-9 && (apart.error.unwrap() - 0.1).abs() < 1e-9);
        assert!(Quotient::of(&[(10.0, 10.0)]).error.is_none());
    }

    fn case(text: &str) -> Case {
        let vocabulary = fullpipe_run::vocabulary(&BOTH);
        fullpipe_experiment::scenario::parse("x", text, &vocabulary, &|_| Err(String::new()))
            .unwrap()
            .remove(0)
    }

    #[test]
    fn ends_like_linuxs_keep_what_a_scenario_says() {
        let file = "duration = '1s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'\nreceive_buffer = '500kB'\n[[flow]]\ncc = 'reno'\n\
                    [[flow]]\ncc = 'cubic'\nsettings = { hz = 100 }\ntso = false";
        let mut flows = case(file).scenario.flows;
        flows.iter_mut().for_each(like_linux);
        let ticks = ticks().map(|n| Setting::Integer(n.into()));
        assert_eq!(flows.iter().map(|f| f.tso).collect::<Vec<_>>(), [Some(true), Some(true), Some(false)]);
        assert_eq!(flows.iter().map(|f| f.auto_tuning).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(flows[0].settings.get("hz").cloned(), ticks);
        assert!(flows[1].settings.is_empty(), "Reno has no clock");
        assert_eq!(flows[2].settings["hz"], Setting::Integer(100));
    }

    #[test]
    fn a_scenario_is_not_cut_before_its_last_change() {
        let file = "duration = '60s'\n[path]\n[[path.forward]]\nrate = '10mbit'\nschedule = [{ at = '20s', rate = '5mbit' }]\n[[flow]]\ncc = 'cubic'";
        let writes = "duration = '60s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'\n\
                      app = { kind = 'writes', writes = [{ at = '20s', bytes = '10kB' }] }";
        assert!(!shorten(&mut case(writes), Span::from_secs(30)));
        assert!(!shorten(&mut case(file), Span::from_secs(30)));
        let mut cut = case(file);
        assert!(shorten(&mut cut, Span::from_secs(50)));
        assert_eq!(cut.scenario.duration, Span::from_secs(50));
    }
}
