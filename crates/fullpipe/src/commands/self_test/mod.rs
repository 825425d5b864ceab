//! `fullpipe self-test`: checks which parts work on this machine.

mod bpf;
mod host;
mod network;
mod outcome;
mod paths;
mod sockets;

use crate::failure::Failure;
use crate::print::print_json;
use clap::ValueEnum;
use fullpipe_host::host::{Host, Machine};
use fullpipe_host::screen::Style;
use outcome::{Checked, Outcome, Verdict};
use std::time::Instant;

/// Check which parts of fullpipe work on this machine
///
/// Takes a few seconds and needs no root; as root it also loads the eBPF controllers for a moment.
/// Changes no setting and writes no file; traffic stays on loopback and on an emulated path in
/// namespaces of its own.
///
/// Exits with 0 if every checked part works, with 1 if a part failed that should work, and with 3
/// if a part is not possible on this machine. Parts that a busy machine left inconclusive do not
/// count.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe self-test lab serve")]
pub struct Args {
    /// Parts to check [default: all]
    #[arg(value_enum, value_name = "PART", value_delimiter = ',')]
    parts: Vec<Part>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// The parts that can be checked, in the order of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// Simulated TCP in virtual time
    Simulator,
    /// Every report format of this build
    Reports,
    /// Kernel TCP over an emulated path
    Lab,
    /// The measuring server, over loopback
    Serve,
    /// The kernel's list of connections
    Watch,
    /// Controllers loaded into the running kernel
    Ebpf,
    /// Records of connections as they close
    Records,
    /// The host facts that `doctor` reads
    Host,
    /// Whether `apply` could enable BBR here
    Apply,
}

/// The JSON output.
#[derive(serde::Serialize)]
struct Report {
    schema: &'static str,
    version: &'static str,
    kernel: String,
    root: bool,
    checks: Vec<Checked>,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Simulator => "simulator",
            Part::Reports => "reports",
            Part::Lab => "lab",
            Part::Serve => "serve",
            Part::Watch => "watch",
            Part::Ebpf => "ebpf",
            Part::Records => "records",
            Part::Host => "host",
            Part::Apply => "apply",
        }
    }

    fn check(self) -> Outcome {
        match self {
            Part::Simulator => paths::simulator(),
            Part::Reports => paths::reports(),
            Part::Lab => paths::lab(),
            Part::Serve => network::serve(),
            Part::Watch => sockets::watch(),
            Part::Ebpf => bpf::controllers(),
            Part::Records => bpf::records(),
            Part::Host => host::doctor(),
            Part::Apply => host::apply(),
        }
    }
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let identity = Machine::new().identity();
        let style = Style::for_stdout();
        let is_selected = |part: &&Part| self.parts.is_empty() || self.parts.contains(part);
        let mut checks = Vec::new();
        for part in Part::value_variants().iter().filter(is_selected) {
            let began = Instant::now();
            let outcome = part.check();
            let checked = Checked { part: part.name(), outcome, seconds: began.elapsed().as_secs_f64() };
            if !self.json {
                print!("{}", checked.text(style));
            }
            checks.push(checked);
        }
        let verdict = exit_status(&checks);
        if self.json {
            print_json(&Report {
                schema: "fullpipe/self-test/1",
                version: env!("CARGO_PKG_VERSION"),
                kernel: identity.release,
                root: identity.privileged,
                checks,
            })?;
        } else {
            println!("{}", tally(&checks));
        }
        verdict
    }
}

/// The number of parts per verdict.
fn tally(checks: &[Checked]) -> String {
    let words = [
        (Verdict::Works, "work"),
        (Verdict::Inconclusive, "inconclusive"),
        (Verdict::Impossible, "not possible here"),
        (Verdict::Failed, "failed"),
    ];
    let count = |verdict| checks.iter().filter(|checked| checked.outcome.verdict == verdict).count();
    let counts = words.map(|(verdict, word)| (count(verdict), word));
    let texts = counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// The exit code. The reasons have been printed.
fn exit_status(checks: &[Checked]) -> Result<(), Failure> {
    let any = |verdict| checks.iter().any(|checked| checked.outcome.verdict == verdict);
    if any(Verdict::Failed) {
        Err(Failure::Passed(1))
    } else if any(Verdict::Impossible) {
        Err(Failure::Passed(3))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(outcomes: Vec<Outcome>) -> Vec<Checked> {
        outcomes.into_iter().map(|outcome| Checked { part: "lab", outcome, seconds: 0.0 }).collect()
    }

    fn code(outcomes: Vec<Outcome>) -> u8 {
        match exit_status(&checks(outcomes)) {
            Ok(()) => 0,
            Err(Failure::Passed(code)) => code,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_failed_part_outweighs_an_impossible_one() {
        let works = || Outcome::works("as it should");
        assert_eq!(code(vec![works(), works()]), 0);
        assert_eq!(code(vec![works(), Outcome::inconclusive("the machine was busy")]), 0);
        assert_eq!(code(vec![works(), Outcome::impossible("no root", "run as root")]), 3);
        assert_eq!(code(vec![Outcome::impossible("no root", "run as root"), Outcome::failed("wrong")]), 1);
    }

    #[test]
    fn tally_counts_parts_per_verdict() {
        let some = vec![Outcome::works("a"), Outcome::works("b"), Outcome::impossible("c", "d")];
        assert_eq!(tally(&checks(some)), "2 work, 1 not possible here");
    }

    #[test]
    fn part_names_equal_the_command_line_values() {
        for part in Part::value_variants() {
            let value = part.to_possible_value().unwrap();
            assert_eq!(value.get_name(), part.name());
        }
    }
}
