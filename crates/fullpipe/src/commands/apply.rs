//! `fullpipe apply`: enables a controller; journaled, verified and reversible.

use super::guard::{self, Signals};
use super::host::{Target, failure, settle};
use super::plan::{self, program};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_host::apply::{self, Applied, OnTrial, Options};
use fullpipe_host::destinations;
use fullpipe_host::screen::{self, Style};
use fullpipe_host::trial::{self, Cause, Decision, TrialOutcome};
use fullpipe_units::Span;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use nix::sys::stat::{SFlag, fstat};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

/// Enable a controller; journaled, verified and reversible
///
/// If any step fails, all steps are rolled back. `fullpipe revert` restores the host exactly as it
/// was.
#[derive(clap::Args)]
#[command(after_help = "Example: sudo fullpipe apply bbr --confirm 60s")]
pub struct Args {
    /// Controller: bbr, hybla, cubic, reno, or a loaded eBPF controller such as fp_bbr3
    #[arg(default_value = "bbr", value_name = "CC")]
    controller: String,
    #[command(flatten)]
    options: plan::Options,
    /// Roll everything back unless confirmed within TIME, by typing `yes` here or by `fullpipe
    /// confirm` in another session. Use it over SSH; cannot be combined with --to
    #[arg(long, value_name = "TIME", conflicts_with = "to")]
    confirm: Option<Span>,
    /// Overwrite settings that were changed by hand since the last `apply`
    #[arg(long, conflicts_with = "to")]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        settle(&*host, &store)?;
        if let Some(destinations) = self.options.destinations(&self.controller) {
            let applied = destinations::apply(&*host, &store, &destinations).map_err(failure)?;
            return report(self.json, &applied);
        }
        let within = self.confirm.map(Duration::from);
        if within.is_some_and(|w| w < Duration::from_secs(1)) {
            return Err(Failure::usage("--confirm must be at least 1s, for example --confirm 60s"));
        }
        // Ctrl-C and `kill` roll the change back; signals that arrive while it is made are handled
        // afterwards.
        let signals = within.map(|_| Signals::block(&[Signal::SIGINT, Signal::SIGTERM])).transpose();
        let signals = signals.map_err(|e| Failure::Impossible(format!("cannot wait for signals: {e}")))?;
        let guard = || guard::start(&self.target);
        let trial = within.map(|within| OnTrial { within, guard: &guard });
        let options = Options { force: self.force, trial, program: program() };
        let request = self.options.request(self.controller);
        let applied = apply::apply(&*host, &store, &request, &options).map_err(failure)?;
        report(self.json, &applied)?;
        let (Some(within), Some(signals), true) = (within, signals, applied.on_trial) else { return Ok(()) };
        let mut confirmation = Confirmation::new(signals);
        eprintln!(
            "{} {} from a new connection within {} s to keep this change; otherwise it is rolled back.",
            if confirmation.is_terminal { "Type yes, or run" } else { "Run" },
            host.identity().command("confirm"),
            within.as_secs()
        );
        let outcome = trial::watch(&*host, &store, &mut |time| confirmation.wait(time)).map_err(failure)?;
        let TrialOutcome::Reverted { cause, exceptions } = outcome else {
            eprintln!("Confirmed.");
            return Ok(());
        };
        let why = match cause {
            Cause::Request => "not confirmed",
            Cause::Deadline => "not confirmed in time",
            Cause::OtherProcess => {
                eprintln!("It was reverted meanwhile.");
                return Ok(());
            }
        };
        let exceptions = exceptions.join("; ");
        let what = if exceptions.is_empty() { "the change was" } else { "all else was" };
        let colon = if exceptions.is_empty() { "" } else { ": " };
        Err(Failure::Check(format!("{why}: {what} rolled back{colon}{exceptions}")))
    }
}

fn report(json: bool, applied: &Applied) -> Result<(), Failure> {
    if json {
        return print_json(&Document { schema: "fullpipe/apply/1", value: applied });
    }
    print!("{}", screen::applied(Style::for_stdout(), applied));
    Ok(())
}

/// Where a confirmation may come from: typed at the terminal. The end of the input rolls the change
/// back.
struct Confirmation {
    signals: Signals,
    /// Only input typed at a terminal counts as an answer.
    is_terminal: bool,
    /// Whether the end of the input means that the other side is gone: of a terminal or pipe, not
    /// of /dev/null or a file.
    watches_input: bool,
    typed: Vec<u8>,
}

impl Confirmation {
    fn new(signals: Signals) -> Confirmation {
        let is_terminal = std::io::stdin().is_terminal();
        let kind =
            fstat(std::io::stdin()).map(|about| SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT);
        let watches_input = is_terminal || matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFSOCK));
        Confirmation { signals, is_terminal, watches_input, typed: Vec::new() }
    }

    fn wait(&mut self, time: Duration) -> Decision {
        let stdin = std::io::stdin();
        let mut watched = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if self.watches_input {
            watched.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        if poll(&mut watched, guard::timeout(time)).is_err() {
            return Decision::Pending;
        }
        let has_input = watched.get(1).is_some_and(|input| input.any() == Some(true));
        if self.signals.pending() {
            return Decision::Undo;
        }
        let mut bytes = [0; 256];
        match has_input.then(|| nix::unistd::read(&stdin, &mut bytes)) {
            None => Decision::Pending,
            Some(Ok(0) | Err(_)) => {
                self.watches_input = false;
                Decision::Undo
            }
            Some(Ok(n)) if self.is_terminal => self.read(&bytes[..n]),
            Some(Ok(_)) => Decision::Pending,
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Decision {
        self.typed.extend_from_slice(bytes);
        let Some(end) = self.typed.iter().rposition(|&b| b == b'\n') else {
            // An answer is shorter than that.
            self.typed.truncate(256);
            return Decision::Pending;
        };
        let lines: Vec<u8> = self.typed.drain(..=end).collect();
        let is_yes = |line: &str| line.trim().eq_ignore_ascii_case("yes");
        if String::from_utf8_lossy(&lines).lines().any(is_yes) {
            return Decision::Keep;
        }
        eprintln!("Type yes to keep it; press Ctrl-C to roll it back now.");
        Decision::Pending
    }
}
