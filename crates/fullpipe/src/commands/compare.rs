//! `fullpipe lab compare`: the same scenarios simulated and on kernel TCP, in one table.

use crate::failure::Failure;
use crate::runs::{self, EBPF_CONTROLLERS, Progress, read_as};
use fullpipe_experiment::Recording;
use fullpipe_experiment::recording::Summary;
use fullpipe_experiment::scenario::{Case, Vocabulary};
use fullpipe_experiment::statistics;
use fullpipe_run::agreement::{
    Agreement, CLOSE_TOLERANCE, GOODPUT_TOLERANCE, MeanRatio, Range, agreement, agreement_of_each, count,
    label_without_seed, lateness, relative_difference, result, shorten, use_linux_ends, with_lateness,
};
use fullpipe_run::{Batch, Engine, Job, LabOptions};
use fullpipe_units::Span;
use std::fmt::Write;
use std::path::PathBuf;

/// Compare simulator and lab on the same scenarios in a Markdown table
///
/// Retransmissions beyond the data packets that the path dropped are counted as spurious.
#[derive(clap::Args)]
pub struct Args {
    /// Scenario files
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Maximum duration of a run; a shortened run is marked [default: unlimited]
    #[arg(long, value_name = "TIME")]
    at_most: Option<Span>,
    /// Maximum number of runs per file, chosen evenly over its sweep [default: all]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Make the lab runs one after another [default: in parallel, up to 200 Mbit/s in total per
    /// processor]
    #[arg(long)]
    alone: bool,
    /// Simulate what the simulator leaves out by default: Linux's segmentation offload, receive
    /// buffer tuning and timer tick. Sets the scenario keys `tso`, `auto_tuning`, `hz` and
    /// `timer_hz`; a flow without `receive_buffer` and `auto_tuning` starts with the lab's 1 MiB
    #[arg(long)]
    as_linux: bool,
    /// Simulate each valid lab run N more times (1 to 1000), with other seeds and with packet
    /// delays like those that the lab's emulator added, and report whether the lab agrees with the
    /// median of these simulations or at least lies within their range
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "means",
        value_parser = clap::value_parser!(u64).range(1..=1000)
    )]
    spread: Option<u64>,
    /// Print one row per group of runs that differ only in their seed: mean of the simulator, mean
    /// of the lab, their ratio and its standard error. Each lab run is paired with the simulation
    /// of the same seed; invalid lab runs are excluded and counted
    #[arg(long)]
    means: bool,
}

/// The compared engines.
const BOTH: [Engine; 2] = [Engine::Sim, Engine::Lab];

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let mut names: Vec<String> = Vec::new();
        let mut jobs: Vec<Job> = Vec::new();
        let mut simulated_cases: Vec<Case> = Vec::new();
        // Checks are not judged here, so the lab need not be able to measure them.
        let vocabulary = Vocabulary { whole_run_loss_only: false, ..fullpipe_run::vocabulary(&BOTH) };
        for file in &self.files {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            for (case, shortened) in self.cases(read_as(file, &vocabulary)?) {
                names.push(cell(&name) + if shortened { " (shortened)" } else { "" });
                let mut simulated = case.clone();
                if self.as_linux {
                    simulated.scenario.flows.iter_mut().for_each(use_linux_ends);
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
            GOODPUT_TOLERANCE * 100.0
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

/// Prints one row per pair; returns the number of rows, and how many agree.
fn print_each(pairs: &[(&str, &Recording, &Recording)]) -> (usize, usize) {
    println!(
        "| scenario | run | goodput sim | lab | differs | RTT p50 sim | lab | retransmitted sim | lab | \
         lab valid |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|---|");
    let mut agree = 0;
    for (name, sim, lab) in pairs {
        let difference = relative_difference(sim.summary.goodput_bps, lab.summary.goodput_bps);
        agree += usize::from(difference.abs() <= GOODPUT_TOLERANCE);
        println!("{}", row(name, &cell(&sim.label), sim, lab, difference));
    }
    (pairs.len(), agree)
}

/// Simulates each valid run `n` more times, and prints one row per pair and the totals.
fn print_spread(pairs: &[(&str, &Recording, &Recording)], cases: &[Case], n: u64) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for ((_, _, lab), case) in pairs.iter().zip(cases).filter(|((_, _, lab), _)| lab.valid) {
        let late = lab.health.as_ref().map(lateness).unwrap_or_default();
        jobs.extend((1..=n).map(|seed| Job { engine: Engine::Sim, case: with_lateness(case, seed, late) }));
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
        let mut text = "invalid";
        if lab.valid {
            let several = varied.next().unwrap_or_default();
            let late: Vec<Range> = several.iter().map(Range::from_recording).collect();
            let exact = Range::from_recording(sim);
            let verdict = agreement(exact, result(lab), &late);
            verdicts.push(verdict);
            theirs.extend(agreement_of_each(exact, several, &late));
            text = match verdict {
                Agreement::Exact => "agrees",
                Agreement::AsLate => "agrees, as late",
                Agreement::WithinRange => "within",
                Agreement::Differs => "differs",
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
            format!(
                "{:+.1} %",
                relative_difference(sim.summary.goodput_bps, lab.summary.goodput_bps) * 100.0
            ),
            rtt(sim),
            rtts,
            rtt(lab),
            retransmitted([&sim.summary]),
            retransmitted([&lab.summary]),
            text.to_owned(),
        ];
        println!("| {} |", cells.join(" | "));
    }
    let [agree, as_late, within, differ] = count(&verdicts);
    println!(
        "\nOf {} valid runs, {agree} agree within {:.0} % of goodput and {:.0} % of the median RTT, \
         {as_late} agree with the median of {n} equally late simulations, {within} are within their \
         range, {differ} differ.",
        verdicts.len(),
        CLOSE_TOLERANCE.0 * 100.0,
        CLOSE_TOLERANCE.1 * 100.0,
    );
    let [agree, as_late, within, differ] = count(&theirs);
    println!(
        "Of these {} simulations, each compared with the others as if it were the lab run, {agree} agree, \
         {as_late} agree with the median, {within} are within the range, {differ} differ.",
        theirs.len(),
    );
    Ok(())
}

/// Median, minimum and maximum as text.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    match (statistics::median(&mut values), values.as_slice()) {
        (Some(median), [min, .., max]) => format!("{median:.digits$} ({min:.digits$}–{max:.digits$})"),
        (Some(only), _) => format!("{only:.digits$}"),
        (None, _) => "–".to_owned(),
    }
}

/// Prints one row per group of pairs that differ only in their seed; returns the number of rows,
/// and how many agree.
fn print_means(pairs: &[(&str, &Recording, &Recording)]) -> (usize, usize) {
    println!(
        "| scenario | run | pairs | goodput sim | lab | lab / sim | standard error | retransmitted sim | \
         lab | invalid |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let (mut rows, mut agree) = (0, 0);
    let mut left = pairs.to_vec();
    while let Some((name, first, _)) = left.first().copied() {
        let label = label_without_seed(first);
        let is_one = |(file, sim, _): &(&str, &Recording, &Recording)| {
            *file == name && label_without_seed(sim) == label
        };
        let (own, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_one);
        left = others;
        let goodputs: Vec<(f64, f64)> = own
            .iter()
            .filter(|(_, _, lab)| lab.valid)
            .map(|(_, sim, lab)| (sim.summary.goodput_bps, lab.summary.goodput_bps))
            .collect();
        let valid = || own.iter().filter(|(_, _, lab)| lab.valid);
        let means = MeanRatio::new(&goodputs);
        rows += 1;
        agree += usize::from((means.ratio - 1.0).abs() <= GOODPUT_TOLERANCE);
        println!(
            "| {name} | {} | {} | {:.2} ± {:.2} | {:.2} ± {:.2} | {:.3} | {} | {} | {} | {} |",
            cell(&label),
            goodputs.len(),
            means.sim.0 / 1e6,
            means.sim.1 / 1e6,
            means.lab.0 / 1e6,
            means.lab.1 / 1e6,
            means.ratio,
            means.error.map_or("–".to_owned(), |error| format!("{error:.3}")),
            retransmitted(valid().map(|(_, sim, _)| &sim.summary)),
            retransmitted(valid().map(|(_, _, lab)| &lab.summary)),
            own.len() - goodputs.len(),
        );
    }
    (rows, agree)
}

/// Escaped for a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn mbit(run: &Recording) -> String {
    format!("{:.2}", run.summary.goodput_bps / 1e6)
}

fn rtt(run: &Recording) -> String {
    run.summary.rtt_ms.p50.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"))
}

/// Retransmitted packets and, of these, the spurious ones, as shares of all that were sent.
fn retransmitted<'a>(runs: impl IntoIterator<Item = &'a Summary>) -> String {
    let (mut sent, mut retransmitted, mut spurious) = (0, 0, 0);
    for run in runs {
        sent += run.packets_sent;
        retransmitted += run.packets_retransmitted;
        spurious += run.packets_retransmitted.saturating_sub(run.packets_lost);
    }
    let share = |packets: u64| packets as f64 / sent.max(1) as f64 * 100.0;
    format!("{:.2} % (spurious {:.2} %)", share(retransmitted), share(spurious))
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
        retransmitted([&sim.summary]),
        retransmitted([&lab.summary])
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_in_cells_are_escaped() {
        assert_eq!(cell("a|b"), "a\\|b");
    }

    #[test]
    fn retransmissions_that_nothing_lost_are_spurious() {
        let of = |lost| Summary {
            packets_sent: 1000,
            packets_retransmitted: 50,
            packets_lost: lost,
            ..Summary::default()
        };
        assert_eq!(retransmitted([&of(30)]), "5.00 % (spurious 2.00 %)");
        // What one run has not yet repaired at its end does not hide another's.
        assert_eq!(retransmitted([&of(30), &of(70)]), "5.00 % (spurious 1.00 %)");
    }

    #[test]
    fn spread_shows_median_and_range() {
        assert_eq!(spread([3.0, 1.0, 9.0].into_iter(), 1), "3.0 (1.0–9.0)");
        assert_eq!(spread([3.0, 1.0].into_iter(), 0), "2 (1–3)");
        assert_eq!(spread([3.0].into_iter(), 1), "3.0");
        assert_eq!(spread([].into_iter(), 0), "–");
    }
}
