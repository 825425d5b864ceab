//! `fullpipe lab compare`: the same scenarios simulated and on kernel TCP, in one table.

use crate::failure::Failure;
use crate::runs::{self, EBPF_CONTROLLERS, Progress, read_as};
use fullpipe_cc::registry::{ControllerInfo, find};
use fullpipe_experiment::Recording;
use fullpipe_experiment::recording::{Health, Histogram};
use fullpipe_experiment::scenario::{App, Case, FlowSpec, Setting, Vocabulary};
use fullpipe_experiment::statistics;
use fullpipe_kernel::facts::tick_rate;
use fullpipe_lab::{INITIAL_BUFFER, max_buffer};
use fullpipe_path::{Distribution, JitterSpec, LinkSpec};
use fullpipe_run::{Batch, Engine, Job, LabOptions};
use fullpipe_units::{Bytes, Span};
use std::fmt::Write;
use std::path::PathBuf;

/// Compare simulator and lab on the same scenarios in a Markdown table
#[derive(clap::Args)]
pub struct Args {
    /// Scenario files
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Maximum duration of a run; a shortened run is marked [default: unlimited]
    #[arg(long, value_name = "TIME")]
    at_most: Option<Span>,
    /// Number of runs per file, spread over its sweep [default: all]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Run one after another in the lab, even if runs could share the machine
    #[arg(long)]
    alone: bool,
    /// Simulate Linux's segmentation offload (`tso`), buffer tuning (`auto_tuning`, starting at the
    /// lab's initial buffer unless the scenario sets `receive_buffer`) and the running kernel's
    /// tick (`hz`, `timer_hz`), which the simulator leaves out by default
    #[arg(long)]
    as_linux: bool,
    /// Simulate each valid run N more times, with other seeds and the lab's lateness (Pareto, same
    /// 99th percentile), and compare the lab with their median, or with their range where the
    /// outcome is random
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "means",
        value_parser = clap::value_parser!(u64).range(1..=1000)
    )]
    spread: Option<u64>,
    /// Print one row for runs that differ only in their seed: means over pairs of equal seeds, the
    /// ratio of the means and its standard error. Invalid lab runs are excluded and counted
    #[arg(long)]
    means: bool,
}

/// What is compared.
const BOTH: [Engine; 2] = [Engine::Sim, Engine::Lab];

/// Agreement that needs no explanation: a tenth of the goodput.
const AGREES: f64 = 0.10;

/// With `--spread`: a twentieth of the goodput and a tenth of the median round-trip time.
const CLOSE: (f64, f64) = (0.05, 0.10);

/// Where round trips alternate between two levels, a tenth of the time more on one moves the median
/// from one to the other. Any between these quantiles will do.
const MEDIAN: (f64, f64) = (0.40, 0.60);

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let mut names: Vec<String> = Vec::new();
        let mut jobs: Vec<Job> = Vec::new();
        let mut simulated_cases: Vec<Case> = Vec::new();
        // Nothing is judged here, so that the lab need not be able to measure what is checked.
        let vocabulary = Vocabulary { whole_run_loss_only: false, ..fullpipe_run::vocabulary(&BOTH) };
        for file in &self.files {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            for (case, shortened) in self.cases(read_as(file, &vocabulary)?) {
                names.push(cell(&name) + if shortened { " (shortened)" } else { "" });
                let mut simulated = case.clone();
                if self.as_linux {
                    simulated.scenario.flows.iter_mut().for_each(like_linux);
                }
                simulated_cases.push(simulated.clone());
                jobs.push(Job { engine: Engine::Sim, case: simulated });
                jobs.push(Job { engine: Engine::Lab, case });
            }
        }
        let progress = Progress::new(&jobs);
        let lab =
            LabOptions { share_machine: !self.alone, loader: EBPF_CONTROLLERS, ..LabOptions::default() };
        let batch =
            Batch::new(jobs).keep_series(false).keep_distributions(self.spread.is_some()).with_lab(lab);
        let runs = batch.run(&progress).into_runs().map_err(runs::failure)?;
        drop(progress);
        let pairs: Vec<(&str, &Recording, &Recording)> = names
            .iter()
            .zip(runs.chunks_exact(2))
            .filter_map(|(name, pair)| Some((name.as_str(), pair.first()?, pair.get(1)?)))
            .collect();
        if let Some(n) = self.spread {
            return print_spread(&pairs, &simulated_cases, n);
        }
        let (rows, agree) = if self.means { print_means(&pairs) } else { print_each(&pairs) };
        println!(
            "\n{agree} of {rows} {} agree within {:.0} % of goodput.",
            if self.means { "means" } else { "runs" },
            AGREES * 100.0
        );
        Ok(())
    }

    /// The runs to compare, and whether each was shortened. Those whose controller the kernel lacks
    /// are left out.
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
    if flow.receive_buffer.is_none() && !flow.auto_tuning {
        flow.receive_buffer = Some(Bytes(max_buffer()));
        flow.first_receive_buffer = Some(Bytes(INITIAL_BUFFER));
    }
    flow.auto_tuning = true;
    flow.timer_hz = flow.timer_hz.or_else(tick_rate);
    let has_a_tick = |about: &&ControllerInfo| about.settings.iter().any(|s| s.key == "hz");
    if let (Some(_), Some(hz)) = (find(&flow.cc).filter(has_a_tick), tick_rate()) {
        flow.settings.entry("hz".to_owned()).or_insert(Setting::Integer(hz.into()));
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
        "| scenario | run | goodput sim | lab | differs | RTT p50 sim | lab | retransmitted sim | lab | \
         lab valid |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|---|");
    let mut agree = 0;
    for (name, sim, lab) in pairs {
        let difference = relative(sim.summary.goodput_bps, lab.summary.goodput_bps);
        agree += usize::from(difference.abs() <= AGREES);
        println!("{}", row(name, &cell(&sim.label), sim, lab, difference));
    }
    (pairs.len(), agree)
}

/// How a run of the lab compares with its simulation and with what that varies by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// With the simulation that is exact to the nanosecond.
    Agrees,
    /// With the middle of those that are as late as the lab was.
    AsLate,
    /// With one between the least and the most of these.
    Within,
    Differs,
}

/// Of one simulation or several, least and most of each: goodput, and what the median round-trip
/// time may be, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Range {
    goodput: (f64, f64),
    rtt: (f64, f64),
}

impl Range {
    fn of(run: &Recording) -> Range {
        let goodput = run.summary.goodput_bps;
        let mut rtts = Histogram::default();
        for distributions in run.flows.iter().filter_map(|flow| flow.distributions.as_deref()) {
            rtts.merge(&distributions.rtt);
        }
        let median = run.summary.rtt_ms.p50.unwrap_or_default();
        let at = |q| rtts.quantile(q).map_or(median, |nanos| nanos as f64 / 1e6);
        Range { goodput: (goodput, goodput), rtt: (at(MEDIAN.0).min(median), at(MEDIAN.1).max(median)) }
    }

    fn and(self, other: Range) -> Range {
        let both = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
        Range { goodput: both(self.goodput, other.goodput), rtt: both(self.rtt, other.rtt) }
    }

    /// The middle one of several, in each.
    fn middle(several: &[Range]) -> Option<Range> {
        let of =
            |value: fn(&Range) -> f64| statistics::median(&mut several.iter().map(value).collect::<Vec<_>>());
        Some(Range {
            goodput: (of(|range| range.goodput.0)?, of(|range| range.goodput.1)?),
            rtt: (of(|range| range.rtt.0)?, of(|range| range.rtt.1)?),
        })
    }

    /// Whether a run of this goodput and this median is as close as it should be.
    fn holds(&self, (goodput, rtt): (f64, f64)) -> bool {
        let holds = |(least, most): (f64, f64), value: f64, close: f64| {
            (least * (1.0 - close)..=most * (1.0 + close)).contains(&value)
        };
        holds(self.goodput, goodput, CLOSE.0) && holds(self.rtt, rtt, CLOSE.1)
    }
}

/// Whether `lab` is as close to `sim` as it should be, or to the middle of those `late` as it was,
/// or to one of their range.
fn judge(sim: Range, lab: (f64, f64), late: &[Range]) -> Verdict {
    let holds = |range: Option<Range>| range.is_some_and(|range| range.holds(lab));
    if sim.holds(lab) {
        Verdict::Agrees
    } else if holds(Range::middle(late)) {
        Verdict::AsLate
    } else if holds(late.iter().copied().reduce(Range::and)) {
        Verdict::Within
    } else {
        Verdict::Differs
    }
}

/// What each of `several` simulations would be told, were it the lab's run and the others all that
/// are as late.
fn of_each(sim: Range, several: &[Recording], late: &[Range]) -> Vec<Verdict> {
    let others = |i: usize| [&late[..i], &late[i + 1..]].concat();
    several.iter().enumerate().map(|(i, run)| judge(sim, result(run), &others(i))).collect()
}

/// How many there are of each verdict, from the best to the worst.
fn count(verdicts: &[Verdict]) -> [usize; 4] {
    [Verdict::Agrees, Verdict::AsLate, Verdict::Within, Verdict::Differs]
        .map(|what| verdicts.iter().filter(|verdict| **verdict == what).count())
}

/// Goodput and median round-trip time of a run.
fn result(run: &Recording) -> (f64, f64) {
    (run.summary.goodput_bps, run.summary.rtt_ms.p50.unwrap_or_default())
}

/// Simulates each valid run `n` times more, prints a row for each pair, and how many agree.
fn print_spread(pairs: &[(&str, &Recording, &Recording)], cases: &[Case], n: u64) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for ((_, _, lab), case) in pairs.iter().zip(cases).filter(|((_, _, lab), _)| lab.valid) {
        let late = lab.health.as_ref().map(lateness).unwrap_or_default();
        jobs.extend((1..=n).map(|seed| Job { engine: Engine::Sim, case: varied(case, seed, late) }));
    }
    let progress = Progress::new(&jobs);
    let runs = Batch::new(jobs)
        .keep_series(false)
        .keep_distributions(true)
        .run(&progress)
        .into_runs()
        .map_err(runs::failure)?;
    drop(progress);
    println!(
        "| scenario | run | goodput sim | of {n} | lab | differs | RTT p50 sim | of {n} | lab | \
         retransmitted sim | lab | lab |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|");
    let (mut verdicts, mut theirs) = (Vec::new(), Vec::new());
    let mut varied = runs.chunks_exact(n as usize);
    for (name, sim, lab) in pairs {
        let mut range = None;
        let mut told = "not valid";
        if lab.valid {
            let several = varied.next().unwrap_or_default();
            let late: Vec<Range> = several.iter().map(Range::of).collect();
            let exact = Range::of(sim);
            let verdict = judge(exact, result(lab), &late);
            verdicts.push(verdict);
            theirs.extend(of_each(exact, several, &late));
            told = match verdict {
                Verdict::Agrees => "agrees",
                Verdict::AsLate => "agrees, as late",
                Verdict::Within => "within",
                Verdict::Differs => "differs",
            };
            range = Some((
                spread(several.iter().map(|run| run.summary.goodput_bps / 1e6), 2),
                spread(several.iter().filter_map(|run| run.summary.rtt_ms.p50), 1),
            ));
        }
        let (goodputs, rtts) = range.unwrap_or_default();
        let cells = [
            (*name).to_owned(),
            cell(&sim.label),
            mbit(sim),
            goodputs,
            mbit(lab),
            format!("{:+.1} %", relative(sim.summary.goodput_bps, lab.summary.goodput_bps) * 100.0),
            rtt(sim),
            rtts,
            rtt(lab),
            again(sim),
            again(lab),
            told.to_owned(),
        ];
        println!("| {} |", cells.join(" | "));
    }
    let [agree, as_late, within, differ] = count(&verdicts);
    println!(
        "\nOf {} valid runs {agree} agree within {:.0} % of goodput and {:.0} % of the median round-trip \
         time, {as_late} do with the middle \
         of {n} simulations that are as late, {within} are within what these vary by, {differ} differ.",
        verdicts.len(),
        CLOSE.0 * 100.0,
        CLOSE.1 * 100.0,
    );
    let [agree, as_late, within, differ] = count(&theirs);
    println!(
        "Of these {} simulations, each judged by the others as if it were the lab's run, {agree} agree, \
         {as_late} do with the middle, \
         {within} are within, {differ} differ.",
        theirs.len(),
    );
    Ok(())
}

/// The middle, the least and the most.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    match (statistics::median(&mut values), values.as_slice()) {
        (Some(middle), [least, .., most]) => format!("{middle:.digits$} ({least:.digits$}–{most:.digits$})"),
        (Some(only), _) => format!("{only:.digits$}"),
        (None, _) => "–".to_owned(),
    }
}

/// The standard deviation of deviations by Pareto's law of shape 3 ([`Distribution::Pareto`]) of
/// which one in a hundred is as large as the emulator's lateness was for one in a hundred.
fn lateness(health: &Health) -> Span {
    // In standard deviations: (100^⅓ − 3/2) / √¾.
    const P99: f64 = 3.628;
    Span::from_nanos((health.lateness_p99_us / P99 * 1e3) as u64)
}

/// `case` with another seed, and with packets that leave the path on time, but for three in ten.
fn varied(case: &Case, seed: u64, spread: Span) -> Case {
    let mut case = case.clone();
    case.scenario.seed = case.scenario.seed.wrapping_add(seed);
    let late = JitterSpec { spread, distribution: Distribution::Pareto, reorder: false };
    if !spread.is_zero() {
        for links in [&mut case.scenario.path.forward, &mut case.scenario.path.reverse] {
            links.push(LinkSpec { jitter: Some(late), ..LinkSpec::default() });
        }
    }
    case
}

/// Prints a row for all pairs that differ in their seed alone; gives how many rows there are, and
/// how many agree.
fn print_means(pairs: &[(&str, &Recording, &Recording)]) -> (usize, usize) {
    println!(
        "| scenario | run | pairs | goodput sim | lab | lab / sim | standard error | retransmitted sim | \
         lab | not valid |"
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
            "| {name} | {} | {} | {:.2} ± {:.2} | {:.2} ± {:.2} | {:.3} | {} | {} | {} | {} |",
            cell(&label),
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
    /// The mean of each pair's quotient would be too large where the simulated ones vary: one that
    /// is small by chance counts for more. The error is that of `lab − quotient · sim`, so that
    /// what both have of the same seed is not counted as noise.
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

/// As a table of Markdown can hold it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn mbit(run: &Recording) -> String {
    format!("{:.2}", run.summary.goodput_bps / 1e6)
}

fn rtt(run: &Recording) -> String {
    run.summary.rtt_ms.p50.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"))
}

/// What was sent again of all that was sent.
fn again(run: &Recording) -> String {
    let share = run.summary.packets_retransmitted as f64 / run.summary.packets_sent.max(1) as f64;
    format!("{:.2} %", share * 100.0)
}

fn row(name: &str, label: &str, sim: &Recording, lab: &Recording, difference: f64) -> String {
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
    use fullpipe_experiment::recording::Distributions;
    use std::ops::ControlFlow;

    #[test]
    fn nothing_against_something_differs_without_bound() {
        assert_eq!(relative(0.0, 0.0), 0.0);
        assert_eq!(relative(0.0, 1.0), f64::INFINITY);
        assert!((relative(100.0, 90.0) + 0.1).abs() < 1e-9);
    }

    #[test]
    fn what_does_not_agree_may_be_within_what_a_run_varies_by() {
        let one = |goodput, rtt| Range { goodput: (goodput, goodput), rtt: (rtt, rtt) };
        let sim = one(10e6, 50.0);
        assert_eq!(judge(sim, (10.4e6, 54.0), &[]), Verdict::Agrees);
        let far = (7e6, 50.0);
        assert_eq!(judge(sim, far, &[one(6.9e6, 51.0), one(9e6, 49.0)]), Verdict::Within);
        assert_eq!(judge(sim, far, &[one(6.9e6, 51.0), one(9e6, 49.0), one(7.1e6, 48.0)]), Verdict::AsLate);
        assert_eq!(judge(sim, far, &[one(8e6, 51.0), one(9e6, 49.0)]), Verdict::Differs);
        let late = [one(6.9e6, 60.0), one(7.1e6, 59.0), one(9e6, 58.0)];
        assert_eq!(judge(sim, far, &late), Verdict::Differs, "its round trip");
        assert_eq!(judge(sim, far, &[]), Verdict::Differs);
    }

    #[test]
    fn simulations_are_judged_by_the_others() {
        let file = "duration = '1s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'";
        let run = fullpipe_run::run(&case(file), &mut |_| ControlFlow::Continue(())).unwrap();
        let of = |factor: f64| {
            let mut run = run.clone();
            run.summary.goodput_bps *= factor;
            run
        };
        // One agrees with the exact one, two with each other only, and the last with none.
        let several = [of(1.0), of(0.8), of(0.8), of(2.0)];
        let late: Vec<Range> = several.iter().map(Range::of).collect();
        let verdicts = of_each(Range::of(&run), &several, &late);
        assert_eq!(verdicts[0], Verdict::Agrees);
        assert_eq!(verdicts[3], Verdict::Differs);
        assert_eq!(count(&verdicts), [1, 0, 2, 1]);
    }

    #[test]
    fn a_name_does_not_end_its_cell() {
        assert_eq!(cell("a|b"), "a\\|b");
    }

    #[test]
    fn several_are_told_by_their_middle_and_their_ends() {
        assert_eq!(spread([3.0, 1.0, 9.0].into_iter(), 1), "3.0 (1.0–9.0)");
        assert_eq!(spread([3.0, 1.0].into_iter(), 0), "2 (1–3)");
        assert_eq!(spread([3.0].into_iter(), 1), "3.0");
        assert_eq!(spread([].into_iter(), 0), "–");
    }

    #[test]
    fn the_median_may_be_any_near_the_middle() {
        let file = "duration = '1s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'";
        let mut run = fullpipe_run::run(&case(file), &mut |_| ControlFlow::Continue(())).unwrap();
        // Half of them take 40 ms and half 57.
        let mut rtts = Histogram::default();
        (0..50).for_each(|_| rtts.add(40_000_000));
        (0..50).for_each(|_| rtts.add(57_000_000));
        rtts.flush();
        run.summary.rtt_ms = rtts.rtt_ms();
        run.flows[0].distributions = Some(Box::new(Distributions { rtt: rtts, ..Distributions::default() }));
        let range = Range::of(&run);
        let goodput = run.summary.goodput_bps;
        assert!(
            range.holds((goodput, 40.0)) && range.holds((goodput, 57.0)) && !range.holds((goodput, 30.0))
        );
    }

    #[test]
    fn what_varies_is_the_seed_and_how_late_packets_are() {
        let late = Health { lateness_p99_us: 362.8, ..Health::default() };
        assert_eq!(lateness(&late), Span::from_micros(100));
        let exact = case("duration = '1s'\nseed = 7\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'");
        let one = varied(&exact, 2, Span::from_micros(100));
        assert_eq!(one.scenario.seed, 9);
        assert_eq!(one.scenario.path.reverse.last().unwrap().jitter.unwrap().spread, Span::from_micros(100));
        assert_eq!(varied(&exact, 2, Span::ZERO).scenario.path, exact.scenario.path);
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
        let file = "duration = '1s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'\nreceive_buffer = \
            '500kB'\n[[flow]]\ncc = 'reno'\n\
                    [[flow]]\ncc = 'cubic'\nsettings = { hz = 100 }\ntso = false";
        let mut flows = case(file).scenario.flows;
        flows.iter_mut().for_each(like_linux);
        assert!(tick_rate().is_some() && flows.iter().all(|f| f.timer_hz == tick_rate()));
        let hz = tick_rate().map(|n| Setting::Integer(n.into()));
        assert_eq!(flows.iter().map(|f| f.tso).collect::<Vec<_>>(), [Some(true), Some(true), Some(false)]);
        assert!(flows.iter().all(|f| f.auto_tuning));
        let buffers = |f: &FlowSpec| (f.first_receive_buffer, f.receive_buffer);
        assert_eq!(buffers(&flows[0]), (None, Some(Bytes(500_000))));
        assert_eq!(buffers(&flows[1]), (Some(Bytes(INITIAL_BUFFER)), Some(Bytes(max_buffer()))), "the lab's");
        assert_eq!(flows[0].settings.get("hz").cloned(), hz);
        assert!(flows[1].settings.is_empty(), "Reno has no clock");
        assert_eq!(flows[2].settings["hz"], Setting::Integer(100));
    }

    #[test]
    fn a_scenario_is_not_cut_before_its_last_change() {
        let file = "duration = '60s'\n[path]\n[[path.forward]]\nrate = '10mbit'\nschedule = [{ at = '20s', \
            rate = '5mbit' }]\n[[flow]]\ncc = 'cubic'";
        let writes = "duration = '60s'\n[path]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'\n\
                      app = { kind = 'writes', writes = [{ at = '20s', bytes = '10kB' }] }";
        assert!(!shorten(&mut case(writes), Span::from_secs(30)));
        assert!(!shorten(&mut case(file), Span::from_secs(30)));
        let mut cut = case(file);
        assert!(shorten(&mut cut, Span::from_secs(50)));
        assert_eq!(cut.scenario.duration, Span::from_secs(50));
    }
}
