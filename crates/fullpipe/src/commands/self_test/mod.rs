//! `fullpipe self-test`: what works on this machine.

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

/// What works on this machine, and what would make the rest work
///
/// Takes a few seconds and needs no root; as root it also loads the eBPF controllers for a moment. Nothing stays: no
/// setting is changed, no file is written, and traffic goes over loopback and a path in namespaces of its own.
///
/// Ends with 0 if everything that was asked for works, 1 if something failed that ought to work, 3 if something is not
/// possible on this machine. What a busy machine could not show counts as neither.
#[derive(clap::Args)]
pub struct Args {
    /// Only these [default: all]
    #[arg(value_enum, value_name = "PART", value_delimiter = ',')]
    parts: Vec<Part>,
    /// For machines
    #[arg(long)]
    json: bool,
}

/// What can be examined, in the order in which it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// TCP in virtual time
    Simulator,
    /// Every form of report that this build can write
    Reports,
    /// The kernel's TCP over an emulated path
    Lab,
    /// The server and a test of it over loopback
    Serve,
    /// The kernel's list of connections
    Watch,
    /// Controllers loaded into the running kernel
    Ebpf,
    /// Records of connections as they close
    Records,
    /// What `doctor` reads of this host
    Host,
    /// Whether BBR could be put in force here
    Apply,
}

/// What the commands print as JSON.
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

    fn examine(self) -> Outcome {
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
        let wanted = |part: &&Part| self.parts.is_empty() || self.parts.contains(part);
        let mut checks = Vec::new();
        for part in Part::value_variants().iter().filter(wanted) {
            let began = Instant::now();
            let outcome = part.examine();
            let checked = Checked { part: part.name(), outcome, seconds: began.elapsed().as_secs_f64() };
            if !self.json {
                print!("{}", checked.text(style));
            }
            checks.push(checked);
        }
        let verdict = end(&checks);
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

/// How many came out how.
fn tally(checks: &[Checked]) -> String {
    let words = [
        (Verdict::Works, "work"),
        (Verdict::NotShown, "not shown"),
        (Verdict::Impossible, "not possible here"),
        (Verdict::Failed, "failed"),
    ];
    let of = |verdict| checks.iter().filter(|checked| checked.outcome.verdict == verdict).count();
    let parts = words.map(|(verdict, word)| (of(verdict), word));
    let told = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
    told.collect::<Vec<_>>().join(", ")
}

/// The exit code. What it stands for is on the screen already.
fn end(checks: &[Checked]) -> Result<(), Failure> {
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
        match end(&checks(outcomes)) {
            Ok(()) => 0,
            Err(Failure::Passed(code)) => code,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn what_failed_outweighs_what_is_not_possible() {
        let works = || Outcome::works("as it should");
        assert_eq!(code(vec![works(), works()]), 0);
        assert_eq!(code(vec![works(), Outcome::not_shown("the machine was busy")]), 0);
        assert_eq!(code(vec![works(), Outcome::impossible("no root", "run as root")]), 3);
        assert_eq!(code(vec![Outcome::impossible("no root", "run as root"), Outcome::failed("wrong")]), 1);
    }

    #[test]
    fn the_last_line_counts() {
        let some = vec![Outcome::works("a"), Outcome::works("b"), Outcome::impossible("c", "d")];
        assert_eq!(tally(&checks(some)), "2 work, 1 not possible here");
    }

    #[test]
    fn parts_are_named_as_they_are_asked_for() {
        for part in Part::value_variants() {
            let value = part.to_possible_value().unwrap();
            assert_eq!(value.get_name(), part.name());
        }
    }
}
